"""The `connection_params` of a data source: written for people, read for connecting and showing.

Two forms: the original's (`address`, `database`, `user`, `password`, `other`) for PostgreSQL, and
`{"url": ...}`, an SQLAlchemy URL, for every other database. A password comes in from standard input
or the environment, never from the command line, where everybody on the computer sees it; it leaves
this module only inside a URL for connecting. Nothing here connects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from common.datasource_keys import URL_PASSWORD
from common.errors import SchedulerError
from common.model.connection_params import ConnectionParamsError, read_connection_params
from common.model.datasource_urls import RefusedUrlError, check_url, split_url, with_netloc
from common.model.streams.connections import KAFKA

TYPES: Final[Mapping[str, int]] = {
    "mysql": 0,
    "postgresql": 1,
    "hive": 2,
    "spark": 3,
    "clickhouse": 4,
    "oracle": 5,
    "sqlserver": 6,
    "db2": 7,
    "kafka": KAFKA,
}
"""The codes of DbType (contract §2.1), and Orcaflow's code for connections to Kafka."""

POSTGRESQL: Final = TYPES["postgresql"]

_TYPE_OF_DIALECT: Final[Mapping[str, str]] = {"mssql": "sqlserver", "ibm_db_sa": "db2"}
_ADDRESS = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_DATABASE = re.compile(r"[\w$.-]{1,63}")
_URL = re.compile(r"[a-z][a-z0-9_]*(\+[a-z0-9_]+)?://", re.IGNORECASE)
_JDBC = "jdbc:postgresql://"


class DatasourceError(SchedulerError):
    """A data source is specified wrongly, or its row can't be read; the text has no password."""


def postgresql_params(
    *, address: str, database: str, user: str, password: str | None, other: Mapping[str, str]
) -> str:
    """The original's form for PostgreSQL."""
    if not _ADDRESS.fullmatch(address):
        raise DatasourceError(f"--address must be HOST or HOST:PORT, not {address!r:.100}")
    if not _DATABASE.fullmatch(database):
        raise DatasourceError("--database must be a name of letters, digits and _ $ . - only")
    full = address if re.search(r":[0-9]+$", address) else f"{address}:5432"
    document: dict[str, Any] = {
        "address": f"{_JDBC}{full}",
        "database": database,
        "jdbcUrl": f"{_JDBC}{full}/{database}",
        "user": user,
        "password": password or "",
    }
    if other:
        document["other"] = urlencode(other)
    return json.dumps(document, ensure_ascii=False)


def url_params(url: str, *, password: str | None, data_dir: str) -> tuple[int, str]:
    """The type and the `{"url": ...}` form of an SQLAlchemy URL that has no password yet.

    Files that it names must be below `data_dir`.
    """
    match = _URL.match(url)
    if match is None:
        raise DatasourceError("--url must begin like postgresql://, mysql+pymysql:// or sqlite:///")
    try:
        parts = split_url(url)
        has_password = parts.password is not None
        user = parts.username
    except ValueError:
        raise DatasourceError("--url is malformed") from None
    if has_password:
        raise DatasourceError(
            "--url must not hold a password, which everybody on this computer could see;"
            " give it by --password-stdin or --password-env"
        )
    if password is not None:
        if not user:
            raise DatasourceError("--url must name a user for the password: …://USER@HOST/…")
        # Behind the last @, since a user's name may hold one.
        before, _, host = parts.netloc.rpartition("@")
        url = with_netloc(url, f"{before}:{quote(password, safe='')}@{host}")
    try:
        check_url(url, data_dir=data_dir)
    except RefusedUrlError as error:
        raise DatasourceError(f"--url {error}") from None
    dialect = match.group().partition(":")[0].partition("+")[0].lower()
    name = _TYPE_OF_DIALECT.get(dialect, dialect)
    # The column has no code for other databases; with a URL it decides nothing.
    return TYPES.get(name, POSTGRESQL), json.dumps({"url": url}, ensure_ascii=False)


def shown(connection_params: str) -> dict[str, object]:
    """The parts that may be shown: kind, address, database, user, has_password."""
    try:
        given = _read(connection_params)
    except DatasourceError as error:
        return {"kind": None, "address": None, "database": None, "user": None, "note": str(error)}
    url = given.get("url")
    if isinstance(url, str) and url:
        try:
            parts = split_url(url)
            host, port = parts.hostname or "", parts.port
            user, password = parts.username, parts.password
        except ValueError:
            return {"kind": "url", "address": None, "database": None, "user": None}
        return {
            "kind": url.partition("://")[0].partition("+")[0],
            "address": f"{host}:{port}" if port else host or None,
            "database": parts.path[1:] or None,
            "user": user,
            "has_password": bool(password or given.get(URL_PASSWORD)),
        }
    address = str(given.get("address") or given.get("jdbcUrl") or "")
    return {
        "kind": address.removeprefix("jdbc:").partition(":")[0] or None,
        "address": address.partition("://")[2].partition("?")[0] or None,
        "database": given.get("database"),
        "user": given.get("user"),
        "has_password": bool(given.get("password")),
    }


def has_password(connection_params: str) -> bool:
    """True if there is a password to be encrypted."""
    return shown(connection_params).get("has_password") is True


def fault_of(connection_params: str, *, data_dir: str) -> str | None:
    """The reason for which the row's own URL is refused; None if it is not."""
    try:
        url = _read(connection_params).get("url")
        if isinstance(url, str) and url:
            check_url(url, data_dir=data_dir)
    except RefusedUrlError as error:
        return f"its url {error}"
    except DatasourceError as error:
        return str(error)
    return None


def connection_url(type_: int, connection_params: str, *, data_dir: str) -> str:
    """The SQLAlchemy URL, with its password: for connecting, and never to be shown."""
    given = _read(connection_params)
    url = given.get("url")
    if isinstance(url, str) and url:
        if fault := fault_of(connection_params, data_dir=data_dir):
            raise DatasourceError(fault)
        scheme, _, rest = url.partition("://")
        if scheme.lower() in ("postgresql", "postgres"):
            # SQLAlchemy would take a driver that is not installed with Orcaflow.
            return f"postgresql+psycopg2://{rest}"
        return url
    if type_ == KAFKA:
        raise DatasourceError("this is a connection to Kafka, which only supervisors use")
    if type_ != POSTGRESQL:
        raise DatasourceError(
            "only PostgreSQL is reached by an address; give any other database by --url"
        )
    address = str(given.get("address") or given.get("jdbcUrl") or "")
    rest, _, query = address.removeprefix(_JDBC).partition("?")
    host, _, path = rest.partition("/")
    database = str(given.get("database") or path)
    if not address.startswith(_JDBC) or not _ADDRESS.fullmatch(host):
        raise DatasourceError("address must be like jdbc:postgresql://host:5432")
    user = quote(str(given.get("user") or ""), safe="")
    password = quote(str(given.get("password") or ""), safe="")
    account = f"{user}:{password}@" if password else f"{user}@" if user else ""
    more = "&".join(part for part in (query, str(given.get("other") or "")) if part)
    tail = f"?{more}" if more else ""
    return f"postgresql+psycopg2://{account}{host}/{quote(database, safe='')}{tail}"


def _read(connection_params: str) -> dict[str, Any]:
    try:
        return read_connection_params(connection_params)
    except ConnectionParamsError as error:
        raise DatasourceError(f"connection_params {error}") from None
