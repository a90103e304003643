"""The firewall of a cluster, on computers where tasks run as tenants' accounts.

A task can connect to every port of the loopback interface, and neither server can limit clients by
account before they log in. The kernel knows the account of a connection, so nftables refuses or
limits it. `PortGuard` also keeps tasks from answering at the port of a daemon that is down. The
rules are in separate tables; the tables of other programs are not read or changed.

A server starts without rules where they cannot be set. The caller then shows or logs the reason,
which is an attribute of `Firewall`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from common.config import Config
from common.embedded.addresses import recorded_postgres, recorded_zookeeper, zookeeper_file
from common.embedded.postgres_account import own_account
from common.errors import ConfigurationError
from common.firewall_rules import Limits, answers, mark, marked, removal, ruleset, table_of
from common.process_identity import is_alive

Server: TypeAlias = Literal["postgres", "zookeeper"]
SERVERS: Final[tuple[Server, ...]] = ("postgres", "zookeeper")
NAMES: Final[dict[Server, str]] = {"postgres": "PostgreSQL", "zookeeper": "ZooKeeper"}

MOST_CONNECTIONS: Final = 200
"""The connections that the embedded PostgreSQL accepts."""
_TOGETHER: Final = MOST_CONNECTIONS // 2
"""The connections of all tenants; the other half is left for the daemons."""
_PROGRAMS: Final = ("/usr/sbin/nft", "/sbin/nft", "/usr/local/sbin/nft", "/usr/bin/nft")
"""Places of `nft`. The PATH of the starter does not choose a program that root runs."""
_SECONDS: Final = 10
_LAST_PORT: Final = 65_535

PORTS_CURE: Final = (
    "install the package nftables, and in a container add CAP_NET_ADMIN; a worker then sets the "
    "rules within 30 s"
)
CURE: Final = (
    f"{PORTS_CURE}. Or use servers that tenants cannot reach (database.url, zookeeper.hosts)"
)
PORTS: Final = "ports"
"""The name of the rules for the ports of the cluster."""
_DAEMON_FILE: Final = re.compile(r"(?:master|worker|api)-server-(\d{1,5})\.(?:pid|json)")


class Firewall:
    """The rules for one embedded server of a home."""

    def __init__(self, home: Path, server: Server, *, connections: int | None) -> None:
        """`connections`: the limit of each account that is not trusted; None sets no rules."""
        # Resolved, so that every path of the home leads to the same table.
        self._home = home.expanduser().resolve()
        self._server: Server = server
        self._connections = connections
        self._table = table_of(self._home, server)
        self.problem: str | None = None
        """The reason why the last `protect` has failed; None if it has not."""

    def protect(self, port: int) -> None:
        """Set the rules for the server at this port, unless they are in force."""
        self.problem = None
        if self._connections is None:
            return
        rules = self._rules(port)
        # Rules that are set again would forget the connections that they have counted.
        if not self._is_loaded(rules):
            self.problem = _nft(marked(rules))

    def release(self) -> None:
        """Remove the rules after the server has ended."""
        if os.geteuid() == 0:
            # Without nft no rules exist.
            _nft(removal(self._table))

    def missing(self, port: int) -> str | None:
        """Return the reason why the server at this port is not protected; None if it is."""
        if self._connections is None:
            return "embedded.firewall is false"
        if (reason := _obstacle()) is not None:
            return reason
        if self._is_loaded(self._rules(port)):
            return None
        return "its firewall rules are not in force"

    def _rules(self, port: int) -> str:
        limits = None
        if self._server == "postgres" and self._connections is not None:
            limits = Limits(each=self._connections, together=_TOGETHER)
        trusted = {0, os.geteuid(), *_owners(self._home)}
        return ruleset(self._table, port=port, trusted=trusted, limits=limits)

    def _is_loaded(self, rules: str) -> bool:
        return _is_loaded(self._table, rules)


class PortGuard:
    """The rules for the ports of the daemons and embedded servers of a home on this computer.

    They stay while a daemon is down, because a task could take its port then.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._home = config.home.expanduser().resolve()
        self._table = table_of(self._home, PORTS)
        self._is_wanted = config.embedded.firewall and config.worker.tenant_mode == "tenant"

    def protect(self, *more: int) -> str | None:
        """Set the rules unless they are in force; return the reason if that failed.

        `more` are ports of daemons that start for the first time.
        """
        if not self._is_wanted:
            return None
        rules = self._rules(more)
        return None if _is_loaded(self._table, rules) else _nft(marked(rules))

    def release(self) -> None:
        """Remove the rules."""
        if self._is_wanted and os.geteuid() == 0:
            _nft(removal(self._table))

    def missing(self) -> str | None:
        """Return the reason why the ports are not protected; None if they are."""
        if not self._config.embedded.firewall:
            return "embedded.firewall is false"
        if (reason := _obstacle()) is not None:
            return reason
        return None if _is_loaded(self._table, self._rules(())) else "the rules are not in force"

    def ports_of_daemons(self) -> set[int]:
        """Return the ports at which masters, workers and api-servers were started here."""
        folder = self._home / "run"
        files = folder.iterdir() if folder.is_dir() else ()
        found = (_DAEMON_FILE.fullmatch(file.name) for file in files)
        return {int(match.group(1)) for match in found if match is not None}

    def _ports(self) -> Iterator[int]:
        """Yield the configured ports, and the ports that servers and daemons have used here."""
        config = self._config
        yield from (config.master.port, config.worker.port)
        yield from (config.api.port, config.api.gateway_port)
        yield from self.ports_of_daemons()
        if not config.database.url:
            yield config.embedded.postgres_port
            if (postgres := recorded_postgres(self._home)) is not None:
                yield postgres.port
        if not config.zookeeper.hosts:
            yield config.embedded.zookeeper_port
            if (zookeeper := recorded_zookeeper(self._home)) is not None:
                yield zookeeper.port

    def _rules(self, more: Collection[int]) -> str:
        ports = {port for port in (*self._ports(), *more) if 0 < port <= _LAST_PORT}
        trusted = {0, os.geteuid(), *_owners(self._home)}
        # The next start of PostgreSQL may give its files to this account.
        with suppress(ConfigurationError):
            trusted.add(own_account(self._home).uid)
        return answers(self._table, ports=ports, trusted=trusted)


def firewall_of(config: Config, server: Server) -> Firewall:
    """Return the firewall as the settings have it; in mode `single` it sets no rules."""
    embedded = config.embedded
    is_wanted = embedded.firewall and config.worker.tenant_mode == "tenant"
    return Firewall(
        config.home, server, connections=embedded.tenant_connections if is_wanted else None
    )


def running_servers(config: Config) -> Iterator[tuple[Server, int]]:
    """Yield the name and port of each embedded server that the settings use and that runs."""
    recorded = {
        "postgres": None if config.database.url else recorded_postgres(config.home),
        "zookeeper": None if config.zookeeper.hosts else recorded_zookeeper(config.home),
    }
    for server in SERVERS:
        address = recorded[server]
        if address is not None and is_alive(address.pid, address.start_time):
            yield server, address.port


def protect_running(config: Config) -> Mapping[str, str]:
    """Set missing rules for the ports of the cluster and for the servers that run.

    Returns each reason for missing rules, by the name of the server or `PORTS`.
    """
    problems: dict[str, str] = {}
    if (reason := PortGuard(config).protect()) is not None:
        problems[PORTS] = reason
    for server, port in running_servers(config):
        firewall = firewall_of(config, server)
        firewall.protect(port)
        if firewall.problem is not None:
            problems[server] = firewall.problem
    return problems


def _owners(home: Path) -> Iterator[int]:
    """Yield the accounts of the home and of its servers, which no tenant may have."""
    for place in (home, home / "postgres", home / "zookeeper", zookeeper_file(home)):
        with suppress(OSError):
            yield place.lstat().st_uid


def _is_loaded(table: str, rules: str) -> bool:
    return _nft(f"list chain {table} {mark(rules)}\n") is None


def _program() -> str | None:
    return next((path for path in _PROGRAMS if os.access(path, os.X_OK)), None)


def _obstacle() -> str | None:
    """Return the reason why this process can neither read nor set rules; None if it may."""
    if os.geteuid() != 0:
        return "only root can read and set firewall rules"
    return "nft is not installed" if _program() is None else None


def _nft(commands: str) -> str | None:
    """Execute commands in one transaction; return the reason if they failed."""
    if (reason := _obstacle()) is not None:
        return reason
    try:
        done = subprocess.run(
            [str(_program()), "-f", "-"],
            input=commands,
            capture_output=True,
            text=True,
            errors="replace",
            env={"LC_ALL": "C"},
            cwd="/",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nft could not be run: {error}"
    if done.returncode == 0:
        return None
    first = next(iter(done.stderr.splitlines()), f"exit code {done.returncode}")
    return f"nft failed: {first.strip()}"
