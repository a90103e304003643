"""Starts, stops and finds the embedded PostgreSQL and ZooKeeper of one `$ORCAFLOW_HOME`.

`common.embedded` has the servers themselves; this module gives them the settings, and reports what
they lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from common.config import Config
from common.embedded.addresses import recorded_postgres, recorded_zookeeper
from common.embedded.firewall import CURE, NAMES, Server
from common.embedded.postgres import EmbeddedPostgres
from common.embedded.servers import postgres_of, zookeeper_of
from common.embedded.zookeeper import EmbeddedZookeeper
from common.ports import is_port_free
from common.process_identity import is_alive
from operations.daemon_process import moment
from operations.daemon_status import DaemonStatus, Started


class EmbeddedServers:
    """The embedded servers of a home.

    Starting calls `notify` with the protection that the server lacks.
    """

    def __init__(self, config: Config, *, within: timedelta) -> None:
        """`within` is the time that a server has for its start."""
        self._config = config
        self._within = within

    def start_postgres(self, port: int | None, notify: Callable[[str], None]) -> Started:
        """Start PostgreSQL at `port` or at the port of the settings, unless it runs."""
        server = postgres_of(self._config, within=self._within, port=port)
        return _started("postgres", server, notify)

    def start_zookeeper(self, port: int | None, notify: Callable[[str], None]) -> Started:
        """Start ZooKeeper at `port` or at the port of the settings, unless it runs."""
        server = zookeeper_of(self._config, within=self._within, port=port)
        return _started("zookeeper", server, notify)

    def stop(self, server: Server, *, now: bool) -> bool:
        """Stop a server and return True, or False if it did not run; `now` kills it."""
        embedded: EmbeddedPostgres | EmbeddedZookeeper
        if server == "postgres":
            embedded = EmbeddedPostgres(self._config.home)
        else:
            embedded = EmbeddedZookeeper(self._config.home)
        ran = embedded.is_running()
        # A server that has died must not be started again, and may have left rules.
        if ran or (self._config.home / "run").is_dir():
            embedded.stop(now=now)
        return ran

    def statuses(self) -> Iterator[DaemonStatus]:
        """Yield the servers that run."""
        recorded = {
            "postgres": recorded_postgres(self._config.home),
            "zookeeper": recorded_zookeeper(self._config.home),
        }
        for name, address in recorded.items():
            if address is not None and is_alive(address.pid, address.start_time):
                yield DaemonStatus(
                    name=name,
                    host=address.host,
                    port=address.port,
                    pid=address.pid,
                    incarnation=None,
                    # Others need only its port; `doctor` checks whether it answers well.
                    state="not answering" if is_port_free(address.port) else "ready",
                    since=moment(address.start_time),
                )


def _started(
    name: Server, server: EmbeddedPostgres | EmbeddedZookeeper, notify: Callable[[str], None]
) -> Started:
    already = server.is_running()
    address = server.start()
    if server.firewall.problem is not None:
        notify(
            f"warning: tasks of tenants can block the embedded {NAMES[name]}, because"
            f" {server.firewall.problem}: {CURE}"
        )
    return Started(
        name=name, host=address.host, port=address.port, pid=address.pid, already=already
    )
