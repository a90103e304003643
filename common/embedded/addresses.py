"""The addresses of the embedded servers of an `$ORCAFLOW_HOME`, while they run.

The servers' modules write these files when a server is ready; all other code reads them. A file
alone never means "running": its pid counts only together with the start time of its process.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from common.errors import ServiceUnreachableError
from common.process_identity import is_alive

OWNER = "orcaflow"
"""The role of daemons and of the command line: owner of its database, and of nothing else."""
SUPERUSER = "orcaflow_superuser"
AUTHENTICATION = "scram-sha-256"
"""The only authentication that clients accept. A program that has taken the port of a stopped
server could otherwise request the password as it is."""
READER = "orcaflow_reader"
"""A role that reads views (`common.store.reading` lists them) and writes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """A running embedded PostgreSQL. The password is only in `password_file`, in libpq's format."""

    host: str
    port: int
    user: str
    password_file: Path
    dbname: str
    pid: int
    start_time: float

    def seen_by(self, role: str) -> PostgresAddress:
        """The same server for another of its roles."""
        file = password_file(self.password_file.parent, role)
        return replace(self, user=role, password_file=file)

    def password(self) -> str:
        """The password of the role; `ServiceUnreachableError` if its file is not there."""
        try:
            return stored_password(self.password_file)
        except (OSError, ValueError):
            raise ServiceUnreachableError(
                f"{self.password_file} can't be read, which holds the password of the role "
                f"{self.user}; `stop postgres` and `start postgres` draw another"
            ) from None

    @property
    def dsn(self) -> str:
        """For libpq: psql and psycopg2 take it as it is. Holds no password, so `ps` shows none.

        Daemons use `url`, which also sets the authentication that older programs do not know.
        """
        return (
            f"host={self.host} port={self.port} user={self.user} dbname={self.dbname}"
            f" passfile={_dsn_quoted(str(self.password_file))}"
        )

    @property
    def url(self) -> str:
        """For SQLAlchemy; holds no password either."""
        return (
            f"postgresql+psycopg2://{self.user}@{self.host}:{self.port}/{self.dbname}"
            f"?passfile={quote(str(self.password_file), safe='/')}&require_auth={AUTHENTICATION}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperAddress:
    """A running embedded ZooKeeper."""

    host: str
    port: int
    pid: int
    start_time: float

    @property
    def hosts(self) -> str:
        """As a client's list of servers."""
        return f"{self.host}:{self.port}"


def password_file(home: Path, role: str) -> Path:
    """The file with the password of a role, in libpq's format, mode 0600."""
    return home / ("postgres.password" if role == OWNER else f"{role}.password")


def stored_password(file: Path) -> str:
    """Read the password in a file of one line in libpq's format; an error if it is not there."""
    line = file.read_text(encoding="utf-8").strip()
    # As libpq reads it: a backslash stands before a colon or a backslash.
    return re.sub(r"\\(.)", r"\1", line.split(":", 4)[4]) if line.count(":") >= 4 else ""


def postgres_file(home: Path) -> Path:
    return home / "run" / "postgres.json"


def zookeeper_file(home: Path) -> Path:
    return home / "run" / "zookeeper.json"


def zookeeper_account(home: Path) -> int | None:
    """Return the number of the account of the embedded ZooKeeper; None if it has never run."""
    try:
        return zookeeper_file(home).stat().st_uid
    except OSError:
        return None


def postgres_address(home: Path) -> PostgresAddress:
    """Return the running PostgreSQL of this home; `ServiceUnreachableError` names the remedy."""
    address = recorded_postgres(home)
    if address is None or not is_alive(address.pid, address.start_time):
        raise ServiceUnreachableError(_not_running("PostgreSQL", "database.url", "postgres", home))
    return address


def zookeeper_address(home: Path) -> ZookeeperAddress:
    """Return the running ZooKeeper of this home; `ServiceUnreachableError` names the remedy."""
    address = recorded_zookeeper(home)
    if address is None or not is_alive(address.pid, address.start_time):
        raise ServiceUnreachableError(
            _not_running("ZooKeeper", "zookeeper.hosts", "zookeeper", home)
        )
    return address


def recorded_postgres(home: Path) -> PostgresAddress | None:
    """The last address that was written, whether or not the server still runs."""
    record = _read(postgres_file(home))
    try:
        return PostgresAddress(
            host=str(record["host"]),
            port=int(record["port"]),
            user=str(record["user"]),
            password_file=Path(record["password_file"]),
            dbname=str(record["dbname"]),
            pid=int(record["pid"]),
            start_time=float(record["start_time"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def recorded_zookeeper(home: Path) -> ZookeeperAddress | None:
    """The last address that was written, whether or not the server still runs."""
    record = _read(zookeeper_file(home))
    try:
        return ZookeeperAddress(
            host=str(record["host"]),
            port=int(record["port"]),
            pid=int(record["pid"]),
            start_time=float(record["start_time"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def record(path: Path, address: PostgresAddress | ZookeeperAddress) -> None:
    """Write the address so that a reader sees the old file or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(address), default=str, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def _read(path: Path) -> dict[str, Any]:
    """The record, or nothing at all: a missing or half-written file means that nothing is known."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _not_running(server: str, key: str, daemon: str, home: Path) -> str:
    return (
        f"the embedded {server} of {home} is not running; start it with "
        f"`bin/orcaflow-daemon.sh start standalone-server` (or `start {daemon}`), "
        f"or name your own in {key}"
    )


def _dsn_quoted(value: str) -> str:
    if value and all(character.isalnum() or character in "/._-" for character in value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
