"""`orcaflow complement`: many past dates of one definition, run as one object (a backfill).

The first word of the group is a subcommand, or else the name of the definition to complement.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from operations.texts import counted
from orcaflow.cli.commands import complement_run
from orcaflow.cli.output import (
    Format,
    FormatOption,
    Row,
    print_fields,
    print_json,
    print_rows,
    say,
    write,
    write_table,
)

if TYPE_CHECKING:
    from common.model.complement_states import DateState
    from common.store.people.complement_views import ComplementView

_CANCEL_TIMEOUT = "60s"


class _NameOrCommand(TyperGroup):
    """Takes `complement NAME …` as `complement run NAME …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the missing word before what is no subcommand."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            self._refuse_misspelt(ctx, args)
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, ctx: Any, args: Sequence[str]) -> None:
        """`pauze 3` is meant for a complement: a definition's name is followed by options."""
        near = difflib.get_close_matches(args[0], list(self.commands), n=1)
        if near and (len(args) == 1 or args[1].isdecimal()):
            ctx.fail(
                f"No such command {args[0]!r}; did you mean {near[0]!r}? (A definition of that"
                f" name is complemented by: {ctx.command_path} run {args[0]} …)"
            )


app = typer.Typer(
    cls=_NameOrCommand,
    help=(
        "Run many past dates of a definition (a backfill) as one object that can be looked at,"
        " paused, resumed, cancelled and retried.\n\n"
        "\b\n"
        "  orcaflow complement NAME --from 2013-01-01 --to 2013-01-31 --plan\n"
        "  orcaflow complement NAME --from 2013-01-01 --to 2013-01-31 --parallel 2 --wait\n\n"
        "The first word is a command or the name of a definition; `complement run NAME …` is the"
        " same, and the way for a definition that is called like a command. Its options:"
        " orcaflow complement run --help"
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Id = Annotated[int, typer.Argument(metavar="ID", help="Id of a complement.", min=1)]


# The order of this line and of the functions is that of the help.
app.command(epilog=complement_run.EXAMPLES)(complement_run.run)


@app.command(
    name="list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow complement list\n"
        "  orcaflow complement list flights --state running -o json\n"
    ),
)
def list_(
    name: Annotated[str | None, typer.Argument(help="Only of this definition.")] = None,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state, as running; repeat."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="No more than so many.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List complements, the newest first.

    Fields: id, definition, project, process_definition_id, state, state_code, reason, dates (their
    number), done (the number that have ended), pending, submitted, running, success, failure,
    skipped, cancelled (the number in each state), parallelism, order, on_failure, reprocess,
    timezone, after_id (the complement that it waits for), command_id, task_depend_type,
    failure_strategy, priority, worker_group_id, environment (null: none), start_nodes,
    start_params, create_time, end_time, duration (seconds).
    """
    from common.model.complement_states import ComplementState
    from operations import stored_complements
    from operations.documents.complements import COMPLEMENT_COLUMNS, complement_row
    from operations.lookup import state_named
    from operations.session import opened

    states = [ComplementState(state_named(ComplementState, each)) for each in state or ()]
    with opened() as session:
        found = stored_complements.find(
            session, definition_name=name, states=states or None, limit=limit
        )
    now = _now()
    print_rows(
        [complement_row(view, now=now) for view in found],
        form=form,
        columns=COMPLEMENT_COLUMNS,
        zone=session.zone,
        none="There are no such complements.",
    )


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow complement show 3\n"
        "  orcaflow complement show 3 --state failure -o json\n"
    )
)
def show(
    complement_id: _Id,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only dates in this state; repeat."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(min=1, help="In a table no more dates than so many: those that tell most."),
    ] = 50,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a complement with its dates and what became of each.

    Fields: those of `list`, date_list (position, date, schedule_time, state, process_instance_id,
    instance_state, start_time, end_time, duration, reason), followers (ids of those that wait for
    it).
    """
    from operations import stored_complements
    from operations.documents.complements import DATE_COLUMNS, details_document
    from operations.session import opened

    wanted = [_date_state(each) for each in state or ()]
    with opened() as session:
        details = stored_complements.details(
            session,
            complement_id,
            states=wanted or None,
            limit=None if form is Format.JSON else limit,
        )
    document = details_document(details, now=_now())
    if form is Format.JSON:
        print_json(document)
        return
    dates, followers = document.pop("date_list"), document.pop("followers")
    print_fields({**_without_zeros(document), "followers": followers or None}, zone=session.zone)
    if dates:
        write("")
        write_table(dates, DATE_COLUMNS, zone=session.zone)
    view = details.view
    left_out = view.count(*wanted) - len(dates)
    if left_out > 0:
        say(
            f"… and {left_out} more: these are those that failed, run or are next; --limit"
            f" {view.count()} shows all"
        )


@app.command(epilog="Example: orcaflow complement pause 3 --wait")
def pause(
    complement_id: _Id,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Until the dates that have begun have ended.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Wait no longer, as 90s, 10m or 2h."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Begin no further date of a complement; those that have begun come to their end.

    `resume` goes on. Asking again is harmless; one that has ended is refused with exit code 4.
    With --wait the exit code is 0 if it was paused, and 1 if it came to its own end. Fields: those
    of `list`.
    """
    from common.model.complement_states import ComplementState
    from operations import complement_control, stored_complements
    from operations.session import opened
    from orcaflow.cli.options import patience_of
    from orcaflow.cli.screens.complement_watch import ended

    patience = patience_of(timeout, wait=wait)
    with opened() as session:
        complement_control.pause(session, complement_id, now=_now())
        view = (
            ended(session, complement_id, patience)
            if wait
            else stored_complements.with_id(session, complement_id)
        )
    _print_changed(view, form, f"complement {view.id} begins no further date; {_live(view)}")
    if wait and view.state != ComplementState.PAUSE:
        raise typer.Exit(1)


@app.command(epilog="Example: orcaflow complement resume 3")
def resume(complement_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Go on with a complement that was paused.

    Exit code 4 if it is in another state. Fields: those of `list`.
    """
    from operations import complement_control, stored_complements
    from operations.session import opened
    from orcaflow.cli.screens.complement_display import how_to_watch

    with opened() as session:
        complement_control.resume(session, complement_id, now=_now())
        view = stored_complements.with_id(session, complement_id)
    _print_changed(view, form, f"complement {view.id} goes on: {how_to_watch([view.id])}")


@app.command(epilog="Example: orcaflow complement cancel 3")
def cancel(
    complement_id: _Id,
    *,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Until it is over, or only ask for it.")
    ] = True,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Wait no longer, as 90s, 10m or 2h.")
    ] = _CANCEL_TIMEOUT,
    form: FormatOption = Format.TABLE,
) -> None:
    """End a complement: no further date begins, and the runs that have begun are stopped.

    Waits until that is so, which is seconds unless a task won't end. What waits for it does not
    begin either. Asking again is harmless; one that has ended is refused with exit code 4. Exit
    code 1 if it came to its own end, 124 after --timeout. Fields: those of `list`.
    """
    from common.model.complement_states import ComplementState
    from operations import complement_control, stored_complements
    from operations.session import opened
    from orcaflow.cli.options import read_span
    from orcaflow.cli.screens.complement_watch import ended

    patience = read_span(timeout)
    with opened() as session:
        complement_control.cancel(session, complement_id, now=_now())
        view = (
            ended(session, complement_id, patience)
            if wait
            else stored_complements.with_id(session, complement_id)
        )
    _print_changed(view, form, _cancelled(view))
    if wait and view.state != ComplementState.STOP:
        raise typer.Exit(1)


@app.command(epilog="Example: orcaflow complement retry 3")
def retry(complement_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Run the failed dates of a complement again, each as a new process instance, and go on.

    Complements that wait for it, and failed only because it did, wait for it again. Exit code 4 if
    it has no failed date, or is neither running nor failed. (To go on within the failed runs use
    `orcaflow instance recover`; the complement notices.) Fields: those of `list`, retried (how many
    dates), followers (ids).
    """
    from operations import complement_control, stored_complements
    from operations.documents.complements import complement_row
    from operations.session import opened
    from orcaflow.cli.screens.complement_display import how_to_watch

    with opened() as session:
        retried = complement_control.retry(session, complement_id, now=_now())
        view = stored_complements.with_id(session, complement_id)
    if form is Format.JSON:
        row = complement_row(view, now=_now())
        print_json({**row, "retried": retried.dates, "followers": list(retried.followers)})
        return
    write(
        f"complement {view.id} runs {counted(retried.dates, 'date')} again:"
        f" {how_to_watch([view.id, *retried.followers])}"
    )
    if retried.followers:
        write(f"waiting for it again: {', '.join(map(str, retried.followers))}")


@app.command(epilog="Example: orcaflow complement wait 3 --timeout 2h")
def wait(
    complement_ids: Annotated[
        list[int], typer.Argument(metavar="ID…", help="Ids of complements.", min=1)
    ],
    *,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Watch no longer, as 90s, 10m or 2h."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Watch complements until they have ended; exit code 0 if all succeeded, else 1.

    Ctrl-C ends the watching and not the complements. Fields: complements (as in `list`).
    """
    from operations.session import opened
    from orcaflow.cli.options import patience_of
    from orcaflow.cli.screens.complement_watch import watch_to_exit_code

    patience = patience_of(timeout, wait=True)
    ids = list(dict.fromkeys(complement_ids))
    with opened() as session:
        raise typer.Exit(watch_to_exit_code(session, ids, patience, form))


def _print_changed(view: ComplementView, form: Format, text: str) -> None:
    from operations.documents.complements import complement_row

    if form is Format.JSON:
        print_json(complement_row(view, now=_now()))
    else:
        write(text)


def _live(view: ComplementView) -> str:
    """The number of dates that have begun and not ended, in words."""
    from common.store.people.complement_views import LIVE_DATES

    number = view.count(*LIVE_DATES)
    if not number:
        return f"go on: orcaflow complement resume {view.id}"
    return f"{counted(number, 'date')} of it {'goes' if number == 1 else 'go'} on to the end"


def _cancelled(view: ComplementView) -> str:
    from common.model.complement_states import ComplementState
    from operations.documents.instances import name_of
    from orcaflow.cli.screens.complement_display import counts, how_to_watch

    if view.state == ComplementState.READY_STOP:
        return f"asked for complement {view.id} to be cancelled: {how_to_watch([view.id])}"
    if view.state == ComplementState.STOP:
        return f"complement {view.id} is cancelled: {counts(view)}"
    state = name_of(ComplementState, view.state)
    return f"complement {view.id} had come to its end before: {state}: {counts(view)}"


def _date_state(text: str) -> DateState:
    from common.model.complement_states import DateState

    try:
        return DateState(text.lower())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no state of a date; known are {', '.join(DateState)}",
            param_hint="--state",
        ) from None


def _without_zeros(row: Row) -> dict[str, object]:
    """The fields that are worth a line for a person: no counts of nothing, no empty lists."""
    return {name: value for name, value in row.items() if value not in (0, [], {})}


def _now() -> datetime:
    from common.clock import SystemClock

    return SystemClock().now()
