"""`orcaflow server`: the daemons of this computer, and those of the cluster."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta, tzinfo
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from operations.server_names import ServerName
from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operations.daemon_status import DaemonStatus, Started
    from operations.daemons import Cluster

app = typer.Typer(
    help="Start, stop and list daemons.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

MEMBER_COLUMNS = (
    *("kind", "address", "pid", "cpu", "memory", "load", "since", "health"),
    *("groups", "reserved", "slots", "version"),
)
STATUS_COLUMNS = ("name", "host", "port", "pid", "incarnation", "state", "since")
_NameArgument = Annotated[
    ServerName, typer.Argument(help="standalone-server is all of them together.")
]
_PortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Else as configured; 0 takes a free one."),
]
_GroupsOption = Annotated[
    str | None, typer.Option("--groups", metavar="A,B", help="Worker groups that it serves.")
]
_ReservedOption = Annotated[
    bool | None,
    typer.Option("--reserved/--no-reserved", help="Take only tasks of its groups."),
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
    reserved: _ReservedOption = None,
    slots: _SlotsOption = None,
    free_ports: _FreePortsOption = False,
    masters: Annotated[int, typer.Option(min=0, help="For standalone-server.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="For standalone-server.")] = 1,
    without: Annotated[
        Literal["api-server"] | None,
        typer.Option("--without", help="For standalone-server: leave this one out."),
    ] = None,
    within: _WithinOption = 60,
    form: FormatOption = Format.TABLE,
) -> None:
    """Start a daemon; it goes on by itself, and this returns when it is ready to work.

    Ports of --free-ports stay those of this home while they are free. Without ORCAFLOW_CONF_DIR the
    folder is used that this home was last started with.

    One that runs already is left alone, with exit code 0. standalone-server is PostgreSQL and
    ZooKeeper (unless others are configured), the schema, a worker, a master and an api-server.
    Everything is kept below ORCAFLOW_HOME. Fields: name, host, port, pid, already.
    """
    _check_options(name, port=port, groups=groups, reserved=reserved, slots=slots, without=without)
    from operations import servers
    from operations.daemon_options import Options

    started = servers.start(
        _cluster(within, is_start=True),
        name,
        port=port,
        options=Options(groups=groups, reserved=reserved, slots=slots),
        free_ports=free_ports or (name is ServerName.STANDALONE and port == 0),
        masters=masters,
        workers=workers,
        apis=0 if without else 1,
        notify=say,
    )
    _report_started(started, form)


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
    from operations import servers

    stopped = servers.stop(
        _cluster(within), name, port=port, now=now, within=timedelta(seconds=within)
    )
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
    reserved: _ReservedOption = None,
    slots: _SlotsOption = None,
    now: _NowOption = False,
    within: _WithinOption = 60,
    form: FormatOption = Format.TABLE,
) -> None:
    """Stop and start again, at the same ports and with the same options unless others are given.

    Without --port, all masters or workers of this home. Fields: as of `start`.
    """
    _check_options(name, port=port, groups=groups, reserved=reserved, slots=slots)
    from operations import servers
    from operations.daemon_options import Options

    started = servers.restart(
        _cluster(within, is_start=True),
        name,
        port=port,
        options=Options(groups=groups, reserved=reserved, slots=slots),
        now=now,
        within=timedelta(seconds=within),
        notify=say,
    )
    _report_started(started, form)


@app.command(epilog="Example: orcaflow server status -o json")
def status(
    name: Annotated[ServerName | None, typer.Argument(help="Only this one; else all.")] = None,
    *,
    port: _PortOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the daemons of this home; exit code 0 if all of them are ready, 3 if there are none.

    Fields: name, host, port, pid, incarnation, state (ready, not ready, not answering, dead),
    since, reason.
    """
    from common.config import cluster_zone
    from operations import servers

    cluster = _cluster(60)
    found = servers.statuses(cluster, name, port=port)
    _print_statuses(found, form, zone=cluster_zone(cluster.config))
    if not found:
        raise typer.Exit(3)
    if any(each.state != "ready" for each in found):
        raise typer.Exit(1)


@app.command(name="list", epilog="Example: orcaflow server list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the living masters and workers of the cluster, as ZooKeeper knows them.

    Api-servers are not in ZooKeeper; `status` lists the daemons of this home.

    Fields: kind, address, incarnation, pid, cpu, memory (shares from 0 to 1), load, since, beaten,
    health, reason, database_away (seconds for which a master has not reached PostgreSQL), and for
    workers groups, reserved, slots and version, as each worker reported them at its start. They are
    null without a report, or if PostgreSQL does not respond.
    """
    from operations.documents.servers import member_row
    from operations.members import members_with_health
    from operations.session import opened
    from operations.settings import api_ports

    with opened() as session:
        rows = [member_row(found) for found in members_with_health(session)]
    print_rows(
        rows,
        form=form,
        columns=MEMBER_COLUMNS,
        zone=session.zone,
        none="There are no masters and no workers; `orcaflow server start standalone-server`.",
    )
    if form is Format.TABLE:
        for row in rows:
            if row["reason"]:
                say(escaped(f"{row['address']}: {row['reason']}"))
        for port in api_ports() if session.elsewhere is None else ():
            say(
                f"the api-server of this home runs at port {port}; ZooKeeper does not know"
                " api-servers (orcaflow server status)"
            )


def _cluster(within: float, *, is_start: bool = False) -> Cluster:
    """Return the daemons of this home; a start reports the settings that the home has kept."""
    from common.config import load
    from operations.daemons import Cluster
    from operations.kept_settings import notes_on_start

    config = load()
    for note in notes_on_start(config) if is_start else ():
        say(escaped(note))
    return Cluster(config, within=timedelta(seconds=within))


def _check_options(
    name: ServerName,
    *,
    port: int | None,
    groups: str | None,
    reserved: bool | None,
    slots: int | None,
    without: str | None = None,
) -> None:
    if (groups is not None or reserved is not None or slots is not None) and name not in (
        ServerName.WORKER,
        ServerName.STANDALONE,
    ):
        raise typer.BadParameter(
            f"--groups, --reserved and --slots are for workers, not for {name}"
        )
    if without is not None and name is not ServerName.STANDALONE:
        raise typer.BadParameter(f"--without is for standalone-server, not for {name}")
    if name is ServerName.STANDALONE and port:
        raise typer.BadParameter(
            "standalone-server is several daemons: set master.port and worker.port, or give "
            "--free-ports"
        )


def _report_started(started: Sequence[Started], form: Format) -> None:
    if form is Format.JSON:
        print_json([asdict(each) for each in started])
        return
    for each in started:
        how = "already running" if each.already else "ready"
        write(f"{each.name} {each.host}:{each.port} is {how} (pid {each.pid})")


def _print_statuses(found: Sequence[DaemonStatus], form: Format, *, zone: tzinfo) -> None:
    print_rows(
        [asdict(each) for each in found],
        form=form,
        columns=STATUS_COLUMNS,
        zone=zone,
        none="No daemon of this home is running.",
    )
    if form is Format.TABLE:
        for each in found:
            if each.reason:
                say(escaped(f"{each.name}-{each.port}: {each.reason}"))
