"""`orcaflow server`: the daemons of this computer, and those of the cluster."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operations.daemons import Cluster, DaemonStatus, Started

app = typer.Typer(help="Start, stop and list daemons.", no_args_is_help=True, rich_markup_mode=None)

STANDALONE = "standalone-server"


class Name(StrEnum):
    """What can be started and stopped."""

    STANDALONE = "standalone-server"
    MASTER = "master-server"
    WORKER = "worker-server"
    ZOOKEEPER = "zookeeper"
    POSTGRES = "postgres"


_NameArgument = Annotated[Name, typer.Argument(help="standalone-server is all of them together.")]
_PortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Else as configured; 0 takes a free one."),
]
_GroupsOption = Annotated[
    str | None, typer.Option("--groups", metavar="A,B", help="Worker groups that it serves.")
]
_SlotsOption = Annotated[
    int | None, typer.Option("--slots", min=1, help="Tasks at the same time on the worker.")
]
_FreePortsOption = Annotated[
    bool, typer.Option("--free-ports", help="Take free ports, so that several clusters fit.")
]
_NowOption = Annotated[bool, typer.Option("--now", help="Kill instead of asking to stop.")]
_WithinOption = Annotated[
    float, typer.Option("--within", min=1, metavar="SECONDS", help="Wait no longer.")
]


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow server start standalone-server\n"
        "  orcaflow server start standalone-server --masters 2 --workers 3\n"
        "  orcaflow server start worker-server --port 1235 --groups spark,etl --slots 8\n"
    )
)
def start(
    name: _NameArgument,
    *,
    port: _PortOption = None,
    groups: _GroupsOption = None,
    slots: _SlotsOption = None,
    free_ports: _FreePortsOption = False,
    masters: Annotated[int, typer.Option(min=0, help="For standalone-server.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="For standalone-server.")] = 1,
    within: _WithinOption = 60,
    form: FormatOption = Format.TABLE,
) -> None:
    """Start a daemon; it goes on by itself, and this returns when it is ready to work.

    One that runs already is left alone, with exit code 0. standalone-server is PostgreSQL and
    ZooKeeper (unless others are configured), the schema, a worker and a master. Everything is kept
    below ORCAFLOW_HOME. Fields: name, host, port, pid, already.
    """
    _check_options(name, port=port, groups=groups, slots=slots)
    cluster = _cluster(within)
    started = _start(
        cluster,
        name,
        port=port,
        groups=groups,
        slots=slots,
        free_ports=free_ports or (name is Name.STANDALONE and port == 0),
        masters=masters,
        workers=workers,
    )
    _tell_started(started, form)


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow server stop standalone-server\n"
        "  orcaflow server stop worker-server --port 1235 --now\n"
    )
)
def stop(
    name: _NameArgument,
    *,
    port: _PortOption = None,
    now: _NowOption = False,
    within: _WithinOption = 60,
    form: FormatOption = Format.TABLE,
) -> None:
    """Stop a daemon and wait until it has ended; standalone-server is every daemon of this home.

    Without --port, all masters or workers of this home. What runs goes on with the next start.
    Fields: stopped (a list).
    """
    cluster = _cluster(within)
    stopped = _stop(cluster, name, port=port, now=now, within=timedelta(seconds=within))
    if form is Format.JSON:
        print_json({"stopped": stopped})
    elif stopped:
        write(f"stopped: {', '.join(stopped)}")
    else:
        write(f"{name} was not running")


@app.command(epilog="Example: orcaflow server restart worker-server --port 1235")
def restart(
    name: _NameArgument,
    *,
    port: _PortOption = None,
    groups: _GroupsOption = None,
    slots: _SlotsOption = None,
    now: _NowOption = False,
    within: _WithinOption = 60,
    form: FormatOption = Format.TABLE,
) -> None:
    """Stop and start again, at the same ports and with the same options unless others are given.

    Without --port, all masters or workers of this home. Fields: as of `start`.
    """
    _check_options(name, port=port, groups=groups, slots=slots)
    from operations.daemons import Kind, Options

    cluster = _cluster(within)
    before = [
        (kind, number, cluster.options_of(kind, number))
        for kind, number in cluster.known()
        if name.value in (STANDALONE, kind.value) and port in (None, number)
    ]
    _stop(cluster, name, port=port, now=now, within=timedelta(seconds=within))
    if not before:
        started = _start(cluster, name, port=port, groups=groups, slots=slots)
    else:
        started = []
        if name is Name.STANDALONE:
            started += cluster.start_standalone(masters=0, workers=0)
        # Workers first: a master that finds none of them would begin to fail tasks over.
        for kind, number, kept in sorted(before, key=lambda each: each[0] is Kind.MASTER):
            options = Options(groups=groups or kept.groups, slots=slots or kept.slots)
            started.append(cluster.start_daemon(kind, number, options))
    _tell_started(started, form)


@app.command(epilog="Example: orcaflow server status -o json")
def status(
    name: Annotated[Name | None, typer.Argument(help="Only this one; else all.")] = None,
    *,
    port: _PortOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the daemons of this home; exit code 0 if all of them are ready, 3 if there are none.

    Fields: name, host, port, pid, incarnation, state (ready, not ready, not answering, dead),
    since, reason.
    """
    cluster = _cluster(60)
    found = [
        each
        for each in cluster.statuses()
        if name in (None, Name.STANDALONE, each.name) and port in (None, each.port)
    ]
    _print_statuses(found, form)
    if not found:
        raise typer.Exit(3)
    if any(each.state != "ready" for each in found):
        raise typer.Exit(1)


@app.command(name="list", epilog="Example: orcaflow server list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the living masters and workers of the cluster, as ZooKeeper knows them.

    Fields: kind, address, incarnation, pid, cpu, memory (shares from 0 to 1), load, since, beaten,
    health, reason.
    """
    from concurrent.futures import ThreadPoolExecutor

    from common.config import load
    from operations.health import health
    from operations.members import members
    from operations.session import zone_of

    config = load()
    zone = zone_of(config)
    found = members(config, zone=zone)

    def asked(address: str) -> tuple[str, str | None]:
        host, _, port = address.rpartition(":")
        return health(host.strip("[]"), int(port))

    with ThreadPoolExecutor(max_workers=16) as pool:
        answers = list(pool.map(asked, [member.address for member in found]))
    rows = [
        {
            "kind": member.kind.name.lower(),
            "address": member.address,
            "incarnation": member.incarnation,
            "pid": member.beat and member.beat.pid,
            "cpu": member.beat and member.beat.cpu,
            "memory": member.beat and member.beat.memory,
            "load": member.beat and member.beat.load,
            "since": member.beat and member.beat.created,
            "beaten": member.beat and member.beat.beaten,
            "health": state,
            "reason": reason,
        }
        for member, (state, reason) in zip(found, answers, strict=True)
    ]
    print_rows(
        rows,
        form=form,
        columns=("kind", "address", "pid", "cpu", "memory", "load", "since", "health"),
        zone=zone,
        none="There are no masters and no workers; `orcaflow server start standalone-server`.",
    )


def _cluster(within: float) -> Cluster:
    from common.config import load
    from operations.daemons import Cluster

    return Cluster(load(), within=timedelta(seconds=within))


def _check_options(name: Name, *, port: int | None, groups: str | None, slots: int | None) -> None:
    if (groups is not None or slots is not None) and name not in (Name.WORKER, Name.STANDALONE):
        raise typer.BadParameter(f"--groups and --slots are for workers, not for {name}")
    if name is Name.STANDALONE and port:
        raise typer.BadParameter(
            "standalone-server is several daemons: set master.port and worker.port, or give "
            "--free-ports"
        )


def _start(
    cluster: Cluster,
    name: Name,
    *,
    port: int | None = None,
    groups: str | None = None,
    slots: int | None = None,
    free_ports: bool = False,
    masters: int = 1,
    workers: int = 1,
) -> list[Started]:
    from operations.daemons import Kind, Options, free_port

    options = Options(groups=groups, slots=slots)
    match name:
        case Name.STANDALONE:
            return cluster.start_standalone(
                masters=masters,
                workers=workers,
                free_ports=free_ports,
                options=options,
                tell=say,
            )
        case Name.POSTGRES:
            if cluster.config.database.url:
                say("note: database.url names another server, which is the one that is used")
            return [cluster.start_postgres(0 if free_ports else port)]
        case Name.ZOOKEEPER:
            if cluster.config.zookeeper.hosts:
                say("note: zookeeper.hosts names another server, which is the one that is used")
            return [cluster.start_zookeeper(0 if free_ports else port)]
        case Name.MASTER | Name.WORKER:
            kind = Kind(name)
            settings = cluster.config.master if kind is Kind.MASTER else cluster.config.worker
            if free_ports or port == 0:
                port = free_port()
            return [cluster.start_daemon(kind, settings.port if port is None else port, options)]


def _stop(
    cluster: Cluster, name: Name, *, port: int | None, now: bool, within: timedelta
) -> list[str]:
    if name is Name.STANDALONE:
        return cluster.stop_everything(now=now, within=within)
    if name in (Name.POSTGRES, Name.ZOOKEEPER):
        return [name.value] if cluster.stop_one(name, None, now=now, within=within) else []
    ports = [number for kind, number, _ in cluster.running() if kind.value == name.value]
    return [
        f"{name}-{number}"
        for number in ports
        if port in (None, number) and cluster.stop_one(name, number, now=now, within=within)
    ]


def _tell_started(started: Sequence[Started], form: Format) -> None:
    if form is Format.JSON:
        print_json([asdict(each) for each in started])
        return
    for each in started:
        how = "already running" if each.already else "ready"
        write(f"{each.name} {each.host}:{each.port} is {how} (pid {each.pid})")


def _print_statuses(found: Sequence[DaemonStatus], form: Format) -> None:
    print_rows(
        [asdict(each) for each in found],
        form=form,
        columns=("name", "host", "port", "pid", "incarnation", "state", "since"),
        none="No daemon of this home is running.",
    )
    if form is Format.TABLE:
        for each in found:
            if each.reason:
                say(escaped(f"{each.name}-{each.port}: {each.reason}"))
