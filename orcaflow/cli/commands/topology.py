"""`orcaflow topology`: graphs of spouts and bolts that run until they are killed."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import (
    Format,
    FormatOption,
    print_fields,
    print_json,
    print_rows,
    say,
    write,
    write_table,
)

if TYPE_CHECKING:
    from operations.topologies import OrderedTopology

app = typer.Typer(
    help="Topologies: graphs of spouts and bolts that run until they are killed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a topology.")]
_Wait = Annotated[
    int,
    typer.Option("--wait", "-w", help="Seconds with the spouts off before.", min=0, max=86_400),
]
_FIGURES = (
    *("component", "kind", "executors", "tasks", "emitted", "transferred", "executed", "acked"),
    *("failed", "latency_ms", "capacity", "skew", "hot_key"),
)


class Window(StrEnum):
    """Storm's windows of figures, by their names: seconds, or all of them."""

    TEN_MINUTES = "600"
    THREE_HOURS = "10800"
    DAY = "86400"
    ALL = ":all-time"


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow topology submit words.py:topology --files helpers.py\n"
        "  orcaflow topology submit words.yaml --files words.py --cores 4\n"
        "  orcaflow topology submit words.yaml --filter dev.properties --env USER --env TIER=dev\n"
    )
)
def submit(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="FILE.yaml, or FILE.py:NAME of the variable or function in it."
        ),
    ],
    *,
    files: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A module that it imports goes along; repeat."),
    ] = None,
    filter_: Annotated[
        Path | None,
        typer.Option("--filter", metavar="FILE", help="Properties file for ${name} in the YAML."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=VALUE]", help="Variable for ${ENV-NAME}; repeat."),
    ] = None,
    worker_group: Annotated[str | None, typer.Option(help="The worker group that runs it.")] = None,
    cores: Annotated[
        int | None, typer.Option(help="The threads of its runs; 2 if it is new.", min=1, max=64)
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="The Java heap of its runs, as 2G; 1G if it is new.")
    ] = None,
    inactive: Annotated[
        bool, typer.Option("--inactive", help="Its spouts emit nothing before it is activated.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Load and check a topology here, and have it run; the same again changes nothing.

    In YAML, --filter and --env give the values of placeholders, which are submitted with the file.

    Other code is a new version, which a running topology takes over. One that was killed begins
    anew. Fields: name, version, generation, outcome (created, changed, restarted, unchanged),
    command_id (of the command that begins a run).
    """
    from operations.documents.topologies import submitted_row
    from operations.session import opened
    from operations.topology_packing import packed, properties_in, variables_given
    from operations.topology_submission import submit_topology

    # The author's code may print, and the result may be a document.
    with redirect_stdout(sys.stderr):
        submission = packed(
            file,
            files or (),
            properties=None if filter_ is None else properties_in(filter_),
            environment=variables_given(env or (), os.environ),
        )
    with opened() as session:
        done = submit_topology(
            session,
            submission,
            project=session.project_id,
            worker_group=worker_group,
            cores=cores,
            memory=memory,
            active=not inactive,
        )
    if form is Format.JSON:
        print_json(submitted_row(done))
        return
    begun = "" if done.command_id is None else f"; command {done.command_id} begins its run"
    write(f"topology {done.name}: {done.outcome}, version {done.version}{begun}")
    for note in done.notes:
        say(note)


@app.command(name="list", epilog="Example: orcaflow topology list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List topologies, killed ones too.

    Fields: name, status (ACTIVE, INACTIVE, REBALANCING, KILLED), version, generation, project_id,
    project, cores, components, executors, tasks, uptime_seconds, batch, lag (records),
    process_instance_id, run_state, task_instance_id, host, verdict, reason, created, updated.
    """
    from operations.documents.topologies import line_row
    from operations.session import opened
    from operations.topologies import list_topologies

    with opened() as session:
        found = list_topologies(session)
        zone = session.zone if form is Format.TABLE else None
    print_rows(
        [line_row(line) for line in found],
        form=form,
        columns=(
            *("name", "project", "status", "version", "run_state", "executors", "tasks", "lag"),
            "reason",
        ),
        zone=zone,
        none="There are no topologies; submit one: orcaflow topology submit FILE",
    )


@app.command(epilog="Example: orcaflow topology status words --window 10800")
def status(
    name: _Name,
    *,
    window: Annotated[
        Window, typer.Option(help="The window of the figures, in seconds.")
    ] = Window.TEN_MINUTES,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a topology, its run, and the figures of its components.

    Fields: name, status, state (of the task), reason, verdict (valid, not started, timed out,
    disallowed), version, running_version, wanted and obeyed (numbers of orders), cores,
    uptime_seconds, batch, failures, lag (by spout), errors, process_instance_id, run_state,
    task_instance_id, attempt, attempt_state, host, reported, created, updated, window, components
    (component, kind, executors, tasks, emitted, transferred, executed, acked, failed, latency_ms,
    capacity, lag, skew, hot_key, by_task), beats (in ZooKeeper, by the worker's address: time,
    topology, version, state, executors, batch, lag; null where that can't be asked, as over HTTP).
    """
    from operations.documents.topologies import status_row
    from operations.session import opened
    from operations.topologies import topology_given, worker_beats

    with opened() as session:
        found = topology_given(session, name)
        row = {**status_row(found, window.value), "beats": worker_beats(session, found.name)}
        zone = session.zone if form is Format.TABLE else None
    if form is Format.JSON:
        print_json(row)
        return
    components, lag, beats = row.pop("components"), row.pop("lag"), row.pop("beats")
    assert isinstance(components, list)
    assert isinstance(lag, dict)
    if isinstance(beats, dict):
        row["beats"] = ", ".join(
            f"{address} {each.get('state')} {each.get('time')}" for address, each in beats.items()
        )
    row["lag"] = ", ".join(f"{spout} {records}" for spout, records in lag.items())
    print_fields(row, zone=zone)
    write("")
    write_table(components, _FIGURES, zone=zone)


@app.command(epilog="Example: orcaflow topology graph words")
def graph(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Draw the graph of a topology's newest version: parts, what they take and what they emit.

    Fields: name, hash, config (keys), parts (id, kind, className, executors, tasks, config,
    inputs with component, stream, grouping and fields, streams with name, fields and direct).
    """
    from operations.session import opened
    from operations.topologies import topology_given
    from orcaflow.cli.screens.topology_graph import graph_lines

    with opened() as session:
        found = topology_given(session, name).graph
    if form is Format.JSON:
        print_json(found.document())
        return
    for line in graph_lines(found):
        write(line)


@app.command(epilog="Example: orcaflow topology activate words")
def activate(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Have the spouts emit; a run begins if none is live. Exit code 4 if it is so already.

    Fields: name, number (of what is wanted now), command_id.
    """
    from operations.session import opened
    from operations.topologies import activate_topology

    with opened() as session:
        done = activate_topology(session, name)
    _report(done, form, "is active" + _begun(done))


@app.command(epilog="Example: orcaflow topology deactivate words")
def deactivate(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Have the spouts emit nothing. Exit code 4 if it is so already.

    Fields: name, number (of what is wanted now), command_id.
    """
    from operations.session import opened
    from operations.topologies import deactivate_topology

    with opened() as session:
        done = deactivate_topology(session, name)
    _report(done, form, "is inactive")


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow topology kill words -w 10\n"
        "  orcaflow topology kill words --now\n"
    )
)
def kill(
    name: _Name,
    *,
    wait: _Wait = 30,
    now: Annotated[bool, typer.Option("--now", help="Stop its run at once.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """End a topology for good, once its spouts were off for a while. Exit code 4 if it is killed.

    Fields: name, number (of what is wanted now), command_id (of the stop).
    """
    from operations.session import opened
    from operations.topologies import kill_topology

    with opened() as session:
        done = kill_topology(session, name, wait_seconds=wait, now=now)
    _report(done, form, "is killed" + (", and its run is stopped" if done.command_id else ""))


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow topology rebalance words -n 4 -e split=3\n"
        "  orcaflow topology rebalance words -w 0 --tasks count=8\n"
    )
)
def rebalance(
    name: _Name,
    *,
    wait: _Wait = 30,
    cores: Annotated[
        int | None, typer.Option("--cores", "-n", help="Threads of its run.", min=1, max=64)
    ] = None,
    executors: Annotated[
        list[str] | None,
        typer.Option("--executors", "-e", metavar="COMPONENT=N", help="Executors; repeat."),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--tasks", metavar="COMPONENT=N", help="Tasks; repeat."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Have it run with other numbers of cores, executors and tasks, once its spouts were off.

    Fields: name, number (of what is wanted now), command_id.
    """
    from operations.session import opened
    from operations.topologies import rebalance_topology

    numbers = _numbers("--executors", executors), _numbers("--tasks", tasks)
    with opened() as session:
        done = rebalance_topology(
            session,
            name,
            wait_seconds=wait,
            cores=cores,
            executors=numbers[0],
            tasks=numbers[1],
        )
    _report(done, form, f"will be rebalanced after {wait} s")


@app.command(
    epilog=(
        "\b\nExamples:\n  orcaflow topology logs words -f\n  orcaflow topology logs words -n 50\n"
    )
)
def logs(
    name: _Name,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the attempt has ended.")
    ] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", help="Only the last so many.", min=0)
    ] = None,
) -> None:
    """Print the log of the attempt that runs a topology, or of the last one."""
    from operations.session import opened
    from operations.topologies import attempt_of
    from orcaflow.cli.commands.task import log

    with opened() as session:
        attempt = attempt_of(session, name)
    log(attempt, follow=follow, lines=lines)


@app.command(epilog="Example: orcaflow topology errors words -o json")
def errors(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """List the last errors of components. Fields: time, component, task, error."""
    from operations.documents.topologies import error_rows
    from operations.session import opened
    from operations.topologies import topology_given

    with opened() as session:
        found = topology_given(session, name)
        zone = session.zone if form is Format.TABLE else None
    print_rows(
        error_rows(found),
        form=form,
        columns=("time", "component", "task", "error"),
        zone=zone,
        none=f"topology {name} has reported no errors",
    )


@app.command(epilog="Example: orcaflow topology history words")
def history(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """List the versions of a topology, the newest first.

    Fields: version, user_id, components, created, graph.
    """
    from operations.documents.topologies import version_row
    from operations.session import opened
    from operations.topologies import topology_history

    with opened() as session:
        found = topology_history(session, name)
        zone = session.zone if form is Format.TABLE else None
    print_rows(
        [version_row(version) for version in found],
        form=form,
        columns=("version", "user_id", "components", "created"),
        zone=zone,
    )


def _report(done: OrderedTopology, form: Format, words: str) -> None:
    from operations.documents.topologies import ordered_row

    if form is Format.JSON:
        print_json(ordered_row(done))
    else:
        write(f"topology {done.name} {words}")


def _begun(done: OrderedTopology) -> str:
    return "" if done.command_id is None else f"; command {done.command_id} begins its run"


def _numbers(option: str, given: list[str] | None) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for each in given or ():
        component, _, number = each.rpartition("=")
        if not component or not number.isdecimal() or len(number) > 9:
            raise typer.BadParameter(f"{option} takes COMPONENT=N, as split=3, not {each!r}")
        if component in numbers:
            raise typer.BadParameter(f"{option} names {component} twice")
        numbers[component] = int(number)
    return numbers
