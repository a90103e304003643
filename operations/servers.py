"""Starts, stops and restarts servers by their names, and reports those of this home.

`operations.daemons` does the work on one daemon; this maps a name, which may stand for several of
them, to the daemons that it means.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from operations.daemon_options import Options
from operations.daemon_status import DaemonStatus, Started
from operations.daemons import Cluster, Kind
from operations.server_names import ServerName


def start(
    cluster: Cluster,
    name: ServerName,
    *,
    port: int | None = None,
    options: Options | None = None,
    free_ports: bool = False,
    masters: int = 1,
    workers: int = 1,
    apis: int = 1,
    notify: Callable[[str], None] = lambda _: None,
) -> list[Started]:
    """Start the servers of this name and return when they are ready; running ones are left alone.

    `notify` is called with what is not started, since the settings name another server, and with
    what a started server lacks.
    """
    match name:
        case ServerName.STANDALONE:
            return cluster.start_standalone(
                masters=masters,
                workers=workers,
                apis=apis,
                free_ports=free_ports,
                options=options,
                notify=notify,
            )
        case ServerName.POSTGRES:
            if cluster.config.database.url:
                notify("note: database.url names another server, which is the one that is used")
            return [cluster.start_postgres(0 if free_ports else port, notify=notify)]
        case ServerName.ZOOKEEPER:
            if cluster.config.zookeeper.hosts:
                notify("note: zookeeper.hosts names another server, which is the one that is used")
            return [cluster.start_zookeeper(0 if free_ports else port, notify=notify)]
        case ServerName.MASTER | ServerName.WORKER | ServerName.API:
            kind = Kind(name)
            if free_ports or port == 0:
                running = cluster.running_ports(kind)
                port = cluster.free_ports(notify).port_of(kind, running)
            if port is None:
                port = cluster.configured_port(kind)
            return [cluster.start_daemon(kind, port, options)]


def stop(
    cluster: Cluster, name: ServerName, *, port: int | None, now: bool, within: timedelta
) -> list[str]:
    """Stop the servers of this name, and return those that ran; without `port` all of a kind."""
    if name is ServerName.STANDALONE:
        return cluster.stop_everything(now=now, within=within)
    if name in (ServerName.POSTGRES, ServerName.ZOOKEEPER):
        return [name.value] if cluster.stop_one(name, None, now=now, within=within) else []
    ports = [number for kind, number, _ in cluster.running() if kind.value == name.value]
    return [
        f"{name}-{number}"
        for number in ports
        if port in (None, number) and cluster.stop_one(name, number, now=now, within=within)
    ]


def restart(
    cluster: Cluster,
    name: ServerName,
    *,
    port: int | None,
    options: Options,
    now: bool,
    within: timedelta,
    notify: Callable[[str], None] = lambda _: None,
) -> list[Started]:
    """Stop and start again, at the same ports; options that are not given stay as they were."""
    before = [
        (kind, number, cluster.options_of(kind, number))
        for kind, number in cluster.known()
        if name.value in (ServerName.STANDALONE.value, kind.value) and port in (None, number)
    ]
    if name is ServerName.STANDALONE:
        cluster.stop_everything(now=now, within=within, restarts=True)
    else:
        stop(cluster, name, port=port, now=now, within=within)
    if not before:
        return start(cluster, name, port=port, options=options, notify=notify)
    started: list[Started] = []
    if name is ServerName.STANDALONE:
        started += cluster.start_standalone(masters=0, workers=0, notify=notify)
    # Workers first: a master that finds none of them would begin to fail tasks over.
    for kind, number, kept in sorted(before, key=lambda each: each[0] is Kind.MASTER):
        merged = Options(
            groups=options.groups or kept.groups,
            reserved=kept.reserved if options.reserved is None else options.reserved,
            slots=options.slots or kept.slots,
        )
        started.append(cluster.start_daemon(kind, number, merged))
    return started


def statuses(cluster: Cluster, name: ServerName | None, *, port: int | None) -> list[DaemonStatus]:
    """The daemons of this home, of this name and at this port alone if these are given."""
    return [
        each
        for each in cluster.statuses()
        if name in (None, ServerName.STANDALONE, each.name) and port in (None, each.port)
    ]
