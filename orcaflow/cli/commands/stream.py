"""`orcaflow stream`: supervisors that keep topics of Kafka flowing into datasets."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operations.texts import counted
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
    from common.model.streams.partitions import Partition

app = typer.Typer(
    help="Supervisors of streams: they keep topics of Kafka flowing into datasets.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Id = Annotated[str, typer.Argument(help="Id of the supervisor: the name of its dataset.")]


@app.command(epilog="Example: orcaflow stream submit flights.json --project default")
def submit(
    spec: Annotated[
        str, typer.Argument(help="A file with the specification, Druid's JSON; - reads it.")
    ],
    *,
    worker_group: Annotated[
        str | None, typer.Option(help="The worker group that runs its tasks.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="The workers' Spark profile whose servers its tasks share; classic, as for a new"
            " supervisor, gives each a driver of its own."
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a supervisor, or give it another specification; the same again changes nothing.

    Fields: id, version, outcome (created, changed, restarted, unchanged), ignored (keys).
    """
    from operations.documents.streams import submitted_row
    from operations.session import opened
    from operations.stream_definitions import TaskPlace
    from operations.streams import submit_stream

    with opened() as session:
        where = TaskPlace(worker_group=worker_group, profile=profile)
        done = submit_stream(session, _text(spec), project=session.project_id, place=where)
    if form is Format.JSON:
        print_json(submitted_row(done))
        return
    write(f"supervisor {done.id}: {done.outcome}, version {done.version}")
    if done.ignored:
        say(f"{counted(len(done.ignored), 'key')} without effect here (docs/streams.md):")
    for place in done.ignored:
        say(f"  {place}")


@app.command(name="list", epilog="Example: orcaflow stream list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List supervisors, terminated ones too.

    Fields: id, version, project_id, project, process_definition_id, state, detailed_state, healthy,
    suspended, active, master, stream, partitions, lag, updated.
    """
    from operations.documents.streams import stream_row
    from operations.session import opened
    from operations.streams import list_streams

    with opened() as session:
        found = list_streams(session)
    print_rows(
        [stream_row(view) for view in found],
        form=form,
        columns=(
            "id",
            "project",
            "state",
            "healthy",
            "stream",
            "partitions",
            "lag",
            "master",
            "updated",
        ),
        none="There are no supervisors; submit one: orcaflow stream submit FILE",
    )


@app.command(epilog="Example: orcaflow stream status flights")
def status(supervisor: _Id, form: FormatOption = Format.TABLE) -> None:
    """Show a supervisor, its errors and its tasks.

    Fields: those of `list`, errors, payload (Druid's), tasks (task, group, status, state, starts,
    current, lag, errors, host, process_instance_id, task_instance_id, started, reported, ending).
    """
    from operations.documents.streams import stream_row, stream_task_row
    from operations.session import opened
    from operations.streams import stream_given

    with opened() as session:
        found = stream_given(session, supervisor)
        zone = session.zone if form is Format.TABLE else None
    row = stream_row(found.view)
    tasks = [stream_task_row(task) for task in found.tasks]
    errors = list(found.view.recent_errors)
    if form is Format.JSON:
        print_json({**row, "errors": errors, "payload": dict(found.view.status), "tasks": tasks})
        return
    print_fields(row, zone=zone)
    for error in errors:
        write(f"error  {error.get('timestamp')}  {error.get('message')}")
    if tasks:
        write("")
        columns = ("group", "task", "status", "state", "current", "host", "task_instance_id")
        write_table(tasks, columns, zone=zone)


@app.command(epilog="Example: orcaflow stream lag flights")
def lag(supervisor: _Id, form: FormatOption = Format.TABLE) -> None:
    """Show the records of each partition that no task has read at the last run.

    Fields: partition, latest, lag.
    """
    from operations.documents.streams import lag_rows
    from operations.session import opened
    from operations.streams import stream_given

    with opened() as session:
        found = stream_given(session, supervisor).view
    print_rows(
        lag_rows(found),
        form=form,
        columns=("partition", "latest", "lag"),
        none="Nothing is known of the stream yet; see `orcaflow stream status`",
    )


@app.command(epilog="Example: orcaflow stream history flights -o json")
def history(supervisor: _Id, form: FormatOption = Format.TABLE) -> None:
    """List the versions of a specification, the newest first; secrets are masked.

    Fields: version, suspended, terminated, created, spec.
    """
    from operations.documents.streams import version_row
    from operations.session import opened
    from operations.streams import stream_history

    with opened() as session:
        found = stream_history(session, supervisor)
        zone = session.zone if form is Format.TABLE else None
    print_rows(
        [version_row(version) for version in found],
        form=form,
        columns=("version", "suspended", "terminated", "created"),
        zone=zone,
    )


@app.command(epilog="Example: orcaflow stream suspend flights")
def suspend(supervisor: _Id) -> None:
    """Have the tasks publish, and start none. Exit code 4 if it is suspended."""
    from operations.session import opened
    from operations.streams import suspend_stream

    with opened() as session:
        version = suspend_stream(session, supervisor, suspended=True)
    write(f"supervisor {supervisor} is suspended: version {version}")


@app.command(epilog="Example: orcaflow stream resume flights")
def resume(supervisor: _Id) -> None:
    """Read on where a suspended supervisor has stopped. Exit code 4 if it is not suspended."""
    from operations.session import opened
    from operations.streams import suspend_stream

    with opened() as session:
        version = suspend_stream(session, supervisor, suspended=False)
    write(f"supervisor {supervisor} goes on: version {version}")


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow stream reset flights --offset 0=1500 --offset 1=0\n"
        "  orcaflow stream reset flights --partition 3\n"
        "  orcaflow stream reset clicks --partition clicks-eu:0 --partition 'clicks-us:*'\n"
        "  orcaflow stream reset flights --all\n"
    )
)
def reset(
    supervisor: _Id,
    *,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION=OFFSET", help="Read this partition from there on."),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            help="Forget the offset of this partition: 3; with topicPattern, topic:3 or topic:*."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Forget the offsets of all.")] = False,
) -> None:
    """Have partitions read from other offsets: records may be lost, or published twice.

    Without an offset it begins where a new supervisor would (useEarliestOffset).
    """
    from operations.session import opened
    from operations.streams import reset_stream, reset_stream_to

    if sum((bool(offset), bool(partition), all_)) != 1:
        raise typer.BadParameter("name --offset, --partition or --all, one of them")
    with opened() as session:
        if offset:
            made = reset_stream_to(session, supervisor, offsets=_offsets(offset))
        else:
            partitions, topics = _partitions(partition or ())
            made = reset_stream(
                session, supervisor, partitions=partitions if partition else None, topics=topics
            )
    if made:
        write(f"supervisor {supervisor} will be reset: request {made}")
    else:
        write(f"the offsets of {supervisor} are forgotten")


@app.command(epilog="Example: orcaflow stream handoff flights 0 1")
def handoff(
    supervisor: _Id,
    groups: Annotated[list[int], typer.Argument(help="Numbers of the task groups.", min=0)],
) -> None:
    """Have task groups publish what they have read now, and the next ones read on."""
    from operations.session import opened
    from operations.streams import hand_over_stream

    with opened() as session:
        made = hand_over_stream(session, supervisor, groups=groups)
    write(f"{counted(len(groups), 'task group')} will be handed over: request {made}")


@app.command(epilog="Example: orcaflow stream terminate flights")
def terminate(supervisor: _Id) -> None:
    """End a supervisor once its tasks have published; its dataset and offsets stay."""
    from operations.session import opened
    from operations.streams import terminate_stream

    with opened() as session:
        terminate_stream(session, supervisor)
    write(f"supervisor {supervisor} ends once its tasks have published")


def _text(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is no UTF-8") from error


def _offsets(given: list[str]) -> dict[Partition, int]:
    from common.model.streams.partitions import read_partition

    offsets: dict[Partition, int] = {}
    for each in given:
        name, _, offset = each.partition("=")
        try:
            partition = read_partition(name)
        except ValueError:
            partition = None
        if partition is None or not (offset.isascii() and offset.isdigit()):
            raise typer.BadParameter(
                f"--offset takes PARTITION=OFFSET, as 0=1500 or clicks:0=1500, not {each!r}"
            )
        if partition in offsets:
            raise typer.BadParameter(f"--offset names the partition {partition} twice")
        offsets[partition] = int(offset)
    return offsets


def _partitions(given: Iterable[str]) -> tuple[list[Partition], list[str]]:
    from common.model.streams.partitions import read_chosen

    try:
        return read_chosen(given)
    except ValueError as error:
        raise typer.BadParameter(
            f"--partition: {error}; write 3, or topic:3 or topic:* with a topicPattern"
        ) from None
