"""`orcaflow schedule`: the group of its commands, and those that find, release and delete."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.commands import preview, schedule_settings, simulate
from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_fields,
    print_json,
    print_rows,
    say,
    write,
    write_table,
)
from orcaflow.cli.schedule_options import ScheduleId

if TYPE_CHECKING:
    from common.model.states import ReleaseState

app = typer.Typer(
    help="Begin runs by the clock: Quartz cron lines in time zones, and a ledger of every fire.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


class Outcome(StrEnum):
    """The outcome of a fire."""

    FIRED = "fired"
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"


_Ids = Annotated[list[int] | None, typer.Argument(metavar="ID", help="Ids of schedules.")]
_Target = Annotated[
    str, typer.Argument(metavar="ID|NAME", help="A schedule, or a definition with its schedules.")
]

# The order of these lines and functions is that of the help.
app.command(epilog=schedule_settings.CREATE_EXAMPLES)(schedule_settings.create)


@app.command(
    name="list",
    epilog=("\b\nExamples:\n  orcaflow schedule list\n  orcaflow schedule list flights -o json\n"),
)
def list_(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only those of this definition.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List schedules. The next fire is shown as the clock of the schedule's zone shows it.

    Fields: id, definition, project, process_definition_id, release_state, crontab, description,
    timezone_id, missing_time, repeated_time, start_time, end_time (null: no end), next_fire_time
    (null: none, or OFFLINE), fault (why it can't fire), misfire_policy, misfire_limit, deadline
    (seconds), execution_type (null: the definition's), failure_strategy, priority, worker_group,
    environment (null: none), warning_type, params, create_time, update_time.
    """
    from operations import scheduling
    from operations.documents.schedules import SCHEDULE_COLUMNS, schedule_cells, schedule_row
    from operations.session import opened

    with opened() as session:
        found = scheduling.find(session, definition_name=name)
    zone = session.zone
    row_of = schedule_row if form is Format.JSON else schedule_cells
    print_rows(
        [row_of(view, zone=zone) for view in found],
        form=form,
        columns=SCHEDULE_COLUMNS,
        zone=session.zone,
        none="There are no schedules; make one: orcaflow schedule create NAME --cron"
        " '0 0 3 * * ? *'",
    )


@app.command(epilog="Example: orcaflow schedule show 3")
def show(schedule_id: ScheduleId, form: FormatOption = Format.TABLE) -> None:
    """Show a schedule with its next five fires and how many fires came to what.

    Fields: those of `list`, next_fires (as the fires of `preview`; none while it is OFFLINE), fires
    (a number for each outcome).
    """
    from common.clock import SystemClock
    from operations import scheduling
    from operations.documents.schedules import coming_cells, details_document, schedule_cells
    from operations.session import opened

    with opened() as session:
        details = scheduling.details(session, schedule_id, now=SystemClock().now())
    zone = session.zone
    document = details_document(details, zone=zone)
    if form is Format.JSON:
        print_json(document)
        return
    cells = schedule_cells(details.view, zone=zone) | {"next_fire": None, "fault": details.fault}
    fires_by_outcome = ", ".join(f"{number} {word}" for word, number in details.fire_counts.items())
    print_fields(cells | {"fires": fires_by_outcome}, zone=session.zone)
    if document["next_fires"]:
        write("")
        write_table(coming_cells(document["next_fires"]), ("local", "utc", "clock"))


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow schedule online 3\n"
        "  orcaflow schedule online --definition flights\n"
        "  orcaflow schedule online --all\n"
    )
)
def online(
    ids: _Ids = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Every schedule that there is.")] = False,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="NAME", help="All of this definition.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Bring schedules ONLINE: all of them or, if one can't be, none.

    Their definitions have to be ONLINE, and all that these run as sub processes. A schedule counts
    from now on: fires from before do not happen. Fields: id, definition, release_state, changed.
    """
    from common.model.states import ReleaseState

    _release(ids, all_, definition, ReleaseState.ONLINE, form)


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow schedule offline 3 4\n"
        "  orcaflow schedule offline --definition flights\n"
    )
)
def offline(
    ids: _Ids = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Every schedule that there is.")] = False,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="NAME", help="All of this definition.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Let schedules fire no more; runs that have begun, or wait, go on.

    Fields: id, definition, release_state, changed.
    """
    from common.model.states import ReleaseState

    _release(ids, all_, definition, ReleaseState.OFFLINE, form)


app.command(epilog=schedule_settings.EDIT_EXAMPLES)(schedule_settings.edit)


@app.command(epilog="Example: orcaflow schedule delete 3")
def delete(
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Ids of schedules.", min=1)],
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete schedules that are OFFLINE: all of these, or none. Their fires stay in the ledger.

    Fields: id, definition, deleted.
    """
    from operations import scheduling
    from operations.documents.schedules import deleted_row
    from operations.session import opened

    with opened() as session:
        deleted = scheduling.delete(session, ids)
    if form is Format.JSON:
        print_json([deleted_row(view) for view in deleted])
        return
    for view in deleted:
        write(f"schedule {view.id} is deleted")


app.command(epilog=preview.EXAMPLES)(preview.preview)


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow schedule fires flights --limit 50\n"
        "  orcaflow schedule fires 3 --outcome missed --outcome coalesced\n"
    )
)
def fires(
    target: _Target,
    *,
    outcome: Annotated[
        list[Outcome] | None, typer.Option("--outcome", help="Only these; repeat.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="No more than so many.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List what became of each fire, the newest first: no fire is ever left out.

    Fields: schedule_id, definition, fire_time, outcome (fired, skipped, coalesced, missed),
    process_instance_id (null until a master has begun it), instance_state, command_id, reason,
    decided_at.
    """
    from common.model.schedules import FireOutcome
    from operations import scheduling
    from operations.documents.schedules import FIRE_COLUMNS, fire_row
    from operations.session import opened
    from operations.times import local_text

    outcomes = [FireOutcome(each.value) for each in outcome or ()]
    with opened() as session:
        ledger = scheduling.fires(session, target, outcomes=outcomes, limit=limit)
    rows = [fire_row(each) for each in ledger.fires]
    if form is not Format.JSON:
        for row, each in zip(rows, ledger.fires, strict=True):
            row["fire_time"] = local_text(each.fire_time, ledger.zones[each.schedule_id])
    print_rows(
        rows, form=form, columns=FIRE_COLUMNS, zone=session.zone, none="There are no such fires."
    )


app.command(epilog=simulate.EXAMPLES)(simulate.simulate)


def _release(
    ids: list[int] | None,
    all_: bool,
    definition: str | None,
    wanted: ReleaseState,
    form: Format,
) -> None:
    from common.clock import SystemClock
    from common.model.states import ReleaseState
    from operations import scheduling
    from operations.documents.schedules import released_rows
    from operations.session import opened
    from orcaflow.cli.screens.schedules import owner_of, warn_without_master

    if (bool(ids)) + all_ + (definition is not None) != 1:
        raise typer.BadParameter("give IDs of schedules, or --definition NAME, or --all")
    now = SystemClock().now()
    with opened() as session:
        released = scheduling.set_release_state(
            session, wanted, ids=ids, definition_name=definition, now=now
        )
        if form is Format.JSON:
            print_json(released_rows(released, wanted))
        for view in released.views:
            if form is not Format.JSON:
                how = "now" if view.id in released.changed else "already"
                write(f"schedule {view.id} ({escaped(owner_of(view))}) is {how} {wanted.name}")
            if wanted is ReleaseState.ONLINE and view.end_time <= now:
                say(f"schedule {view.id} does not fire any more: its window has ended")
        if not released.views:
            say("There are no schedules.")
        elif wanted is ReleaseState.ONLINE:
            warn_without_master(session)
