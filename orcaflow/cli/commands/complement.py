"""`orcaflow complement`: many past dates of one definition, run as one object (a backfill).

The first word of the group is a subcommand, or else the name of the definition to complement.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from common.model.complements import Downstream, OnFailure, Reprocess, RunOrder
from operations.texts import counted
from orcaflow.cli.commands.run import OnFailure as OnTaskFailure
from orcaflow.cli.commands.run import Urgency
from orcaflow.cli.output import (
    Format,
    FormatOption,
    Row,
    escaped,
    print_fields,
    print_json,
    print_rows,
    say,
    table,
    write,
)

if TYPE_CHECKING:
    from common.model.complements import ComplementState, NewComplement, RunSettings
    from common.store.connect import Connection
    from common.store.people.complement_views import ComplementView
    from common.store.people.definitions import DefinitionRow
    from operations.session import Session

PARALLELISM_LIMIT = 1000
"""As `common.complementing` has it, which takes too long to import for `--help`."""

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
    rich_markup_mode=None,
)

_Id = Annotated[int, typer.Argument(metavar="ID", help="Id of a complement.", min=1)]


def _parallelism(given: int) -> int:
    if not 1 <= given <= PARALLELISM_LIMIT:
        raise typer.BadParameter(
            f"from 1 to {PARALLELISM_LIMIT} dates may run at the same time, not {given}"
        )
    return given


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow complement flights --from 2013-01-01 --to 2013-01-31 --plan\n"
        "  orcaflow complement flights --from 2013-01-01 --to 2013-01-31 --parallel 2 --wait\n"
        "  orcaflow complement flights --dates 2013-01-05,2013-02-05 --reprocess failed\n"
        "  orcaflow complement run list --from '2013-01-01 06:00:00' --to 2013-01-31\n"
    )
)
def run(
    name: Annotated[str, typer.Argument(help="Name of a definition that is ONLINE.")],
    *,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="The first date of the range.")
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="DATE", help="Its last; a date alone is all of that day."),
    ] = None,
    date: Annotated[
        list[str] | None,
        typer.Option("--date", metavar="DATE", help="Instead of a range: a date; repeat."),
    ] = None,
    dates: Annotated[
        str | None,
        typer.Option("--dates", metavar="DATE,DATE", help="Instead of a range: a list of dates."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            "--zone",
            metavar="ZONE",
            help="Whose clock dates are read on; else the schedule's, else the cluster's.",
        ),
    ] = None,
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel",
            metavar="N",
            callback=_parallelism,
            help="How many dates run at the same time, 1 to 1000.",
        ),
    ] = 1,
    order: Annotated[
        RunOrder, typer.Option(help="Whether the earliest or the latest date comes first.")
    ] = RunOrder.ASCENDING,
    on_failure: Annotated[
        OnFailure,
        typer.Option(help="Once a date has failed: one fewer at the same time, or go on."),
    ] = OnFailure.STOP,
    reprocess: Annotated[
        Reprocess,
        typer.Option(help="Of dates with a run: none, those whose newest one failed, or all."),
    ] = Reprocess.ALL,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A start-up parameter; repeat."),
    ] = None,
    start_node: Annotated[
        list[str] | None,
        typer.Option(
            "--start-node",
            "--start-nodes",
            metavar="A,B",
            help="Tasks to start from, and what is after them; without it all.",
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="The start nodes alone.")] = False,
    pre: Annotated[
        bool, typer.Option("--pre", help="The start nodes and all before them.")
    ] = False,
    downstream: Annotated[
        bool,
        typer.Option(
            "--downstream", help="Then also definitions whose DEPENDENT tasks wait for this one."
        ),
    ] = False,
    downstream_all: Annotated[
        bool, typer.Option("--downstream-all", help="And those that wait for these, and so on.")
    ] = False,
    priority: Annotated[
        Urgency, typer.Option(help="Who goes first; of equal ones a live run does.")
    ] = Urgency.MEDIUM,
    worker_group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="For tasks that name no group themselves.")
    ] = None,
    failure_strategy: Annotated[
        OnTaskFailure,
        typer.Option(help="Within a run, once a task has failed: end the others, or continue."),
    ] = OnTaskFailure.CONTINUE,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="More than 10,000 dates are really meant.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Write nothing; show what would run, and until when.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Watch it to its end; exit code 0 on success.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Watch no longer, as 90s, 10m or 2h."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run past dates of a definition: a range, both ends included, or a list.

    The dates of a range are the fire times of the definition's online schedules; without any, each
    day at the time of day of --from. A date alone is its midnight, in --to the end of that day. All
    or nothing is made. Ctrl-C ends the watching and not the complement. Exit code 2 for dates that
    can't be read, 4 if the definition is OFFLINE, with --wait 1 if it did not succeed. Fields:
    complements (as in `list`); with --plan complements (with dates, to_run, to_skip,
    typical_duration, estimated_duration, estimated_end).
    """
    from operations.complementing import ComplementOptions, look_ahead, planned_complements
    from operations.lookup import definition_named
    from operations.scheduling import cluster_zone
    from operations.session import opened
    from orcaflow.cli.commands.run import patience_of
    from orcaflow.cli.screens.complement_plan import print_plan

    if plan and wait:
        raise typer.BadParameter("--plan begins nothing that could be waited for; leave out one")
    patience = patience_of(timeout, wait=wait)
    texts = [*(date or ()), *(() if dates is None else dates.split(","))]
    with opened() as session:
        with session.engine.begin() as db:
            definition = definition_named(db, name)
            _check_online(definition)
            settings = _settings(
                db,
                definition,
                params=param or (),
                start_nodes=start_node or (),
                only=only,
                pre=pre,
                priority=priority,
                worker_group=worker_group,
                failure_strategy=failure_strategy,
            )
            options = ComplementOptions(
                first=first,
                last=last,
                dates=tuple(texts),
                zone=zone,
                parallelism=parallel,
                order=order,
                on_failure=on_failure,
                reprocess=reprocess,
                downstream=_downstream(downstream, downstream_all),
                confirmed=yes,
                settings=settings,
            )
            found = planned_complements(db, definition, options, zone=cluster_zone(session.config))
            _check_size(session, found)
            if plan:
                plans = look_ahead(db, found)
            else:
                ids = _made(db, found)
        if plan:
            print_plan(plans, form=form, zone=session.zone)
        elif wait:
            _watch(session, ids, patience, form)
        else:
            _tell_made(session, ids, form)


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

    Fields: id, definition, process_definition_id, state, state_code, reason, dates (how many),
    done (how many have ended), pending, submitted, running, success, failure, skipped, cancelled
    (how many are so), parallelism, order, on_failure, reprocess, timezone, after_id (the complement
    that it waits for), command_id, task_depend_type, failure_strategy, priority, worker_group_id,
    start_nodes, start_params, create_time, end_time, duration (seconds).
    """
    from common.clock import SystemClock
    from common.model.complements import ComplementState
    from common.store.people.complement_views import complements
    from operations.documents.complements import COMPLEMENT_COLUMNS, complement_row
    from operations.lookup import definition_named
    from operations.session import opened
    from orcaflow.cli.commands.instance import read_state

    codes = None if not state else [int(read_state(ComplementState, each)) for each in state]
    with opened() as session, session.engine.connect() as db:
        if name is not None:
            name = definition_named(db, name).name
        found = complements(db, definition_name=name, states=codes, limit=limit)
    now = SystemClock().now()
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
    from common.clock import SystemClock
    from common.store.people.complement_views import complements_after, dates_of_complement
    from operations.documents.complements import DATE_COLUMNS, complement_row, date_row
    from operations.session import opened

    wanted = None if not state else [_date_state(each) for each in state]
    with opened() as session, session.engine.connect() as db:
        view = _with_id(db, complement_id)
        found = dates_of_complement(
            db, complement_id, states=wanted, limit=None if form is Format.JSON else limit
        )
        followers = [each.id for each in complements_after(db, complement_id)]
    now = SystemClock().now()
    row = complement_row(view, now=now)
    dates = [date_row(each, timezone_id=view.timezone_id, now=now) for each in found]
    if form is Format.JSON:
        print_json({**row, "date_list": dates, "followers": followers})
        return
    print_fields({**_without_zeros(row), "followers": followers or None}, zone=session.zone)
    if dates:
        write("")
        write(table(dates, DATE_COLUMNS, zone=session.zone))
    left_out = view.count(*(wanted or ())) - len(dates)
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
    from common.model.complements import ComplementState
    from common.store.people.complement_requests import pause_complement
    from operations.session import opened
    from orcaflow.cli.commands.run import patience_of

    patience = patience_of(timeout, wait=wait)
    harmless = (ComplementState.READY_PAUSE, ComplementState.PAUSE)
    with opened() as session:
        with session.engine.begin() as db:
            if not pause_complement(db, complement_id, at=_now()):
                _refuse(db, complement_id, "paused", unless=harmless)
        view = _over(session, complement_id, patience) if wait else _view(session, complement_id)
    _tell(view, form, f"complement {view.id} begins no further date; {_live(view)}")
    if wait and view.state != ComplementState.PAUSE:
        raise typer.Exit(1)


@app.command(epilog="Example: orcaflow complement resume 3")
def resume(complement_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Go on with a complement that was paused.

    Exit code 4 if it is in another state. Fields: those of `list`.
    """
    from common.model.complements import ComplementState
    from common.store.people.complement_requests import resume_complement
    from operations.session import opened

    with opened() as session:
        with session.engine.begin() as db:
            if not resume_complement(db, complement_id, at=_now()):
                _refuse(db, complement_id, "resumed", unless=(ComplementState.RUNNING,))
        view = _view(session, complement_id)
    _tell(view, form, f"complement {view.id} goes on: {_how_to_watch([view.id])}")


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
    from common.model.complements import ComplementState
    from common.store.people.complement_requests import cancel_complement
    from operations.session import opened
    from orcaflow.cli.commands.run import read_span

    patience = read_span(timeout)
    harmless = (ComplementState.READY_STOP, ComplementState.STOP)
    with opened() as session:
        with session.engine.begin() as db:
            if not cancel_complement(db, complement_id, at=_now()):
                _refuse(db, complement_id, "cancelled", unless=harmless)
        view = _over(session, complement_id, patience) if wait else _view(session, complement_id)
    _tell(view, form, _cancelled(view))
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
    from common.errors import NotAllowedError
    from common.store.people.complement_requests import retry_complement
    from operations.documents.complements import complement_row
    from operations.session import opened

    with opened() as session:
        with session.engine.begin() as db:
            retried = retry_complement(db, complement_id, at=_now())
            if retried is None:
                _refuse(db, complement_id, "retried")
                raise AssertionError("a state that allows it was refused")
            if not retried.dates:
                raise NotAllowedError(
                    f"complement {complement_id} has no failed date to run again"
                    f" (orcaflow complement show {complement_id})"
                )
        view = _view(session, complement_id)
    if form is Format.JSON:
        row = complement_row(view, now=_now())
        print_json({**row, "retried": retried.dates, "followers": list(retried.followers)})
        return
    write(
        f"complement {view.id} runs {counted(retried.dates, 'date')} again:"
        f" {_how_to_watch([view.id, *retried.followers])}"
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
    from orcaflow.cli.commands.run import patience_of

    patience = patience_of(timeout, wait=True)
    with opened() as session:
        _watch(session, list(dict.fromkeys(complement_ids)), patience, form)


def _settings(
    db: Connection,
    definition: DefinitionRow,
    *,
    params: Sequence[str],
    start_nodes: Sequence[str],
    only: bool,
    pre: bool,
    priority: Urgency,
    worker_group: str | None,
    failure_strategy: OnTaskFailure,
) -> RunSettings:
    import json

    from common.model.complements import RunSettings
    from common.model.states import FailureStrategy, Priority, TaskDependType
    from operations.lookup import nodes_named, worker_group_named
    from operations.scheduling import params_of

    if only and pre:
        raise typer.BadParameter("--only and --pre exclude each other")
    if (only or pre) and not start_nodes:
        raise typer.BadParameter(f"{'--only' if only else '--pre'} needs --start-node")
    names: list[str] = []
    if start_nodes:
        names = nodes_named(
            definition.process_definition_json or "",
            ",".join(start_nodes),
            owner=repr(definition.name),
            field="start_node",
        )
    mode = TaskDependType.TASK_POST
    if only or pre:
        mode = TaskDependType.TASK_ONLY if only else TaskDependType.TASK_PRE
    given = params_of(params)
    return RunSettings(
        task_depend_type=mode,
        failure_strategy=FailureStrategy[failure_strategy.name],
        priority=Priority[priority.name],
        worker_group_id=-1 if worker_group is None else worker_group_named(db, worker_group),
        start_node_names=tuple(dict.fromkeys(names)),
        start_params=json.dumps(given, ensure_ascii=False) if given else None,
    )


def _check_online(definition: DefinitionRow) -> None:
    from common.errors import NotAllowedError
    from common.model.states import ReleaseState

    if not definition.usable or definition.release_state is not ReleaseState.ONLINE:
        raise NotAllowedError(
            f"{definition.name!r} is OFFLINE; release it first: "
            f"orcaflow definition online {definition.name!r}"
        )


def _check_size(session: Session, complements: Sequence[NewComplement]) -> None:
    """Each date becomes a command: one that no master would read is refused now."""
    from common.errors import NotAllowedError
    from common.store.complements import date_command_param

    limit = session.config.command.param_limit_bytes
    for each in complements:
        settings = each.settings
        text = date_command_param(
            each.timezone_id, ",".join(settings.start_node_names), settings.start_params
        )
        if len(text.encode("utf-8", "replace")) > limit:
            raise NotAllowedError(
                f"the parameters are larger than {limit} bytes (command.param_limit_bytes)"
            )


def _downstream(direct: bool, all_levels: bool) -> Downstream:
    if all_levels:
        return Downstream.ALL
    return Downstream.DIRECT if direct else Downstream.NONE


def _made(db: Connection, complements: Sequence[NewComplement]) -> list[int]:
    from common.store.complements import create_complements

    return list(create_complements(db, complements, command_id=0, now=_now()))


def _tell_made(session: Session, ids: Sequence[int], form: Format) -> None:
    from operations.documents.complements import complement_row
    from orcaflow.cli.screens.complement_watch import counts

    with session.engine.connect() as db:
        views = _views(db, ids)
    if form is Format.JSON:
        now = _now()
        print_json({"complements": [complement_row(view, now=now) for view in views]})
        return
    for view in views:
        name = escaped(view.definition_name or "?")
        begins = f" after complement {view.after_id}" if view.after_id else ""
        write(
            f"complement {view.id} of {name} begins{begins}: {counts(view)},"
            f" {view.parallelism} at a time"
        )
    write(_how_to_watch(ids))


def _watch(session: Session, ids: Sequence[int], patience: timedelta | None, form: Format) -> None:
    """Until all have ended; the exit code is 1 if one did not succeed."""
    from operations.documents.complements import complement_row
    from orcaflow.cli.screens.complement_watch import watch

    try:
        sights = watch(session, ids, timeout=patience, to_stdout=form is not Format.JSON)
    except KeyboardInterrupt:
        which = " ".join(map(str, ids))
        first = ids[0]
        goes = "complement {} goes on" if len(ids) == 1 else "complements {} go on"
        say(
            f"\nNot watching any more; {goes.format(which)}."
            f" Watch: `orcaflow complement wait {which}`;"
            f" pause: `orcaflow complement pause {first}`;"
            f" cancel: `orcaflow complement cancel {first}`."
        )
        raise typer.Exit(130) from None
    if form is Format.JSON:
        now = _now()
        print_json({"complements": [complement_row(sight.view, now=now) for sight in sights]})
    if not all(sight.succeeded for sight in sights):
        raise typer.Exit(1)


def _over(session: Session, complement_id: int, patience: timedelta | None) -> ComplementView:
    """The complement once it has ended. Raises `WatchTimeoutError`."""
    from orcaflow.cli.screens.complement_watch import watch

    return watch(session, [complement_id], timeout=patience, to_stdout=False, quietly=True)[0].view


def _views(db: Connection, ids: Sequence[int]) -> list[ComplementView]:
    from common.store.people.complement_views import complements_with_ids

    return complements_with_ids(db, ids)


def _view(session: Session, complement_id: int) -> ComplementView:
    with session.engine.connect() as db:
        return _with_id(db, complement_id)


def _with_id(db: Connection, complement_id: int) -> ComplementView:
    from common.errors import NotFoundError

    found = _views(db, [complement_id])
    if not found:
        raise NotFoundError(
            f"there is no complement {complement_id}; see `orcaflow complement list`"
        )
    return found[0]


def _refuse(
    db: Connection, complement_id: int, asked: str, *, unless: Collection[ComplementState] = ()
) -> None:
    """Say why its state forbids what was asked, unless that has come about already."""
    from common.errors import NotAllowedError
    from common.model.complements import ComplementState
    from operations.documents.instances import name_of

    view = _with_id(db, complement_id)
    if view.state in unless:
        return
    name = repr(view.definition_name)
    cures = {
        ComplementState.SUBMITTED: f"it waits for complement {view.after_id}",
        ComplementState.RUNNING: "it goes on",
        ComplementState.READY_PAUSE: f"resume it first: orcaflow complement resume {view.id}",
        ComplementState.PAUSE: f"resume it first: orcaflow complement resume {view.id}",
        ComplementState.READY_STOP: "it is being cancelled",
        ComplementState.STOP: f"begin another: orcaflow complement {name} … --reprocess failed",
        ComplementState.FAILURE: f"run what failed again: orcaflow complement retry {view.id}",
        ComplementState.SUCCESS: f"begin another: orcaflow complement {name} …",
    }
    cure = next((text for state, text in cures.items() if state == view.state), "")
    raise NotAllowedError(
        f"complement {view.id} can't be {asked}: it is {name_of(ComplementState, view.state)};"
        f" {cure}"
    )


def _tell(view: ComplementView, form: Format, text: str) -> None:
    from operations.documents.complements import complement_row

    if form is Format.JSON:
        print_json(complement_row(view, now=_now()))
    else:
        write(text)


def _live(view: ComplementView) -> str:
    """How many dates have begun and not ended."""
    from common.store.people.complement_views import LIVE_DATES

    number = view.count(*LIVE_DATES)
    if not number:
        return f"go on: orcaflow complement resume {view.id}"
    return f"{counted(number, 'date')} of it {'goes' if number == 1 else 'go'} on to the end"


def _cancelled(view: ComplementView) -> str:
    from common.model.complements import ComplementState
    from operations.documents.instances import name_of
    from orcaflow.cli.screens.complement_watch import counts

    if view.state == ComplementState.READY_STOP:
        return f"asked for complement {view.id} to be cancelled: {_how_to_watch([view.id])}"
    if view.state == ComplementState.STOP:
        return f"complement {view.id} is cancelled: {counts(view)}"
    state = name_of(ComplementState, view.state)
    return f"complement {view.id} had come to its end before: {state}: {counts(view)}"


def _how_to_watch(ids: Sequence[int]) -> str:
    return f"orcaflow complement wait {' '.join(map(str, ids))}"


def _date_state(text: str) -> str:
    from common.model.complements import DateState

    try:
        return DateState(text.lower())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no state of a date; known are {', '.join(DateState)}",
            param_hint="--state",
        ) from None


def _without_zeros(row: Row) -> dict[str, object]:
    """What is worth a line for a person: no counts of nothing, no empty lists."""
    return {name: value for name, value in row.items() if value not in (0, [], {})}


def _now() -> datetime:
    from common.clock import SystemClock

    return SystemClock().now()
