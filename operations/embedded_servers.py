"""Starts, stops and finds the embedded PostgreSQL and ZooKeeper of one `$ORCAFLOW_HOME`.

`common.embedded` has the servers themselves; this module gives them the settings, and reports what
they lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from common.config import Config, zookeeper_digest
from common.embedded.addresses import recorded_postgres, recorded_zookeeper
from common.embedded.firewall import CURE, NAMES, Firewall, Server, firewall_of
from common.embedded.postgres import EmbeddedPostgres
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
        firewall = firewall_of(self._config, "postgres")
        server = EmbeddedPostgres(
            self._config.home,
            port=self._config.embedded.postgres_port if port is None else port,
            start_within=self._within,
            firewall=firewall,
        )
        already = server.is_running()
        address = server.start()
        _report(firewall, "postgres", notify)
        return Started(
            name="postgres",
            host=address.host,
            port=address.port,
            pid=address.pid,
            already=already,
        )

    def start_zookeeper(self, port: int | None, notify: Callable[[str], None]) -> Started:
        """Start ZooKeeper at `port` or at the port of the settings, unless it runs."""
        embedded = self._config.embedded
        firewall = firewall_of(self._config, "zookeeper")
        server = EmbeddedZookeeper(
            self._config.home,
            port=embedded.zookeeper_port if port is None else port,
            tick_ms=embedded.zookeeper_tick_ms,
            heap_mb=embedded.zookeeper_heap_mb,
            # Servers that the settings name have a credential of their own.
            digest="" if self._config.zookeeper.hosts else zookeeper_digest(self._config),
            start_within=self._within,
            firewall=firewall,
        )
        already = server.is_running()
        address = server.start()
        _report(firewall, "zookeeper", notify)
        return Started(
            name="zookeeper",
            host=address.host,
            port=address.port,
            pid=address.pid,
            already=already,
        )

    def stop(self, server: Server, *, now: bool) -> bool:
        """Stop a server and return True, or False if it did not run; `now` kills it."""
        embedded: EmbeddedPostgres | EmbeddedZookeeper
        if server == "postgres":
            embedded = EmbeddedPostgres(self._config.home)
        else:
            embedded = EmbeddedZookeeper(self._config.home)
        ran = embedded.is_running()
        if ran:
            embedded.stop(now=now)
        else:
            # A server that was killed has left its rules.
            firewall_of(self._config, server).release()
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


def _report(firewall: Firewall, server: Server, notify: Callable[[str], None]) -> None:
    if firewall.problem is not None:
        notify(
            f"warning: tasks of tenants can block the embedded {NAMES[server]}, because"
            f" {firewall.problem}: {CURE.format(server=server)}"
        )
