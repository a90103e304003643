"""`orcaflow schedule`: cron lines that begin runs by themselves, and what became of their fires."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from operations import simulating
from operations.texts import counted
from orcaflow.cli.commands.run import OnFailure, Urgency
from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_fields,
    print_json,
    print_rows,
    say,
    table,
    write,
)
from orcaflow.cli.schedule_options import (
    CRON_HELP,
    FROM_HELP,
    TO_HELP,
    DeadlineOption,
    FailureOption,
    GroupOption,
    Misfire,
    MisfireLimitOption,
    MisfireOption,
    Missing,
    MissingOption,
    ParamOption,
    PriorityOption,
    Repeated,
    RepeatedOption,
    Rivals,
    RivalsOption,
    ZoneOption,
    check_columns,
    columns_of,
    cron_of,
    end_of,
    group_of,
    schedule_of_line,
    settings_of,
    start_of,
    zone_given,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import TypeAlias

    from common.cron import Timetable
    from common.model.states import ReleaseState
    from common.store.connect import Connection
    from common.store.people.schedule_views import ScheduleView
    from operations.previewing import ComingFire
    from operations.session import Session

    Outcomes: TypeAlias = dict[str, int]

app = typer.Typer(
    help="Begin runs by the clock: Quartz cron lines in time zones, and a ledger of every fire.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Outcome(StrEnum):
    """What became of a fire."""

    FIRED = "fired"
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"


_Id = Annotated[int, typer.Argument(metavar="ID", help="Id of a schedule.", min=1)]
_Ids = Annotated[list[int] | None, typer.Argument(metavar="ID", help="Ids of schedules.")]
_Target = Annotated[
    str, typer.Argument(metavar="ID|NAME", help="A schedule, or a definition with its schedules.")
]


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow schedule create flights --cron '0 0 3 * * ? *' --zone America/New_York\n"
        "  orcaflow schedule create flights --cron '0 0/15 8-18 ? * MON-FRI' --online\n"
        "  orcaflow schedule create report --cron '0 0 6 L * ?' --from 2026-01-01 \\\n"
        "      --to 2026-12-31 --misfire fire_all --misfire-limit 3 --deadline 12h\n"
        "  orcaflow schedule create report --cron '0 30 2 * * ?' --missing skip \\\n"
        "      --execution-type serial-wait --param region=eu --online\n"
        "Look at it first: orcaflow schedule preview --cron '0 30 2 * * ?'\n"
    )
)
def create(
    name: Annotated[str, typer.Argument(help="Name of the definition that it runs.")],
    *,
    cron: Annotated[str, typer.Option("--cron", metavar="LINE", help=CRON_HELP)],
    zone: ZoneOption = None,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help=FROM_HELP)] = "now",
    to: Annotated[str, typer.Option("--to", metavar="TIME", help=TO_HELP)] = "never",
    misfire: MisfireOption = Misfire.FIRE_ONCE,
    misfire_limit: MisfireLimitOption = 10,
    deadline: DeadlineOption = None,
    missing: MissingOption = Missing.SHIFT,
    repeated: RepeatedOption = Repeated.FIRST,
    execution_type: RivalsOption = Rivals.DEFINITION,
    failure_strategy: FailureOption = OnFailure.CONTINUE,
    worker_group: GroupOption = None,
    priority: PriorityOption = Urgency.MEDIUM,
    param: ParamOption = None,
    online: Annotated[bool, typer.Option("--online", help="Bring it ONLINE at once.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a schedule of a definition; it is OFFLINE, and fires once it is brought ONLINE.

    Without an option: misfire fire_once (limit 10), missing shift, repeated first, the cluster's
    zone, which is stored by its name. A definition may have several schedules: each fires by
    itself. --online needs the definition and all its sub processes ONLINE; if anything is wrong,
    nothing is written. Fields: those of `list`.
    """
    from common.clock import SystemClock
    from common.model.states import ReleaseState
    from common.store.people.schedule_requests import create_schedule
    from common.store.people.schedule_views import schedules
    from operations.lookup import definition_named
    from operations.scheduling import check_released, cluster_zone, stored_name
    from operations.session import opened

    cron = cron_of(cron)
    now = SystemClock().now()
    values = settings_of(
        misfire=misfire,
        misfire_limit=misfire_limit,
        deadline=deadline,
        missing=missing,
        repeated=repeated,
        execution_type=execution_type,
        failure_strategy=failure_strategy,
        priority=priority,
        param=param,
    )
    with opened() as session:
        own = zone_given(zone) or cluster_zone(session.config)
        start, end = start_of(from_, own, now), end_of(to, own)
        values |= {
            "crontab": cron,
            "timezone_id": stored_name(own),
            "start_time": start,
            "end_time": end,
        }
        with session.engine.begin() as db:
            definition = definition_named(db, name)
            values |= group_of(db, worker_group)
            check_columns(session, values, own)
            if online:
                check_released(db, [definition.id])
                values["release_state"] = int(ReleaseState.ONLINE)
            made = create_schedule(db, process_definition_id=definition.id, values=values, at=now)
            all_of_it = schedules(db, definition_id=definition.id)
        view = next(each for each in all_of_it if each.id == made)
        _told_change(session, [view], "made", form)
        others = [str(each.id) for each in all_of_it if each.id != made]
        if others:
            say(
                f"{definition.name!r} has {counted(len(all_of_it), 'schedule')} now (also"
                f" {', '.join(others)}); each fires by itself"
            )
        if online:
            _warn_without_master(session)
        else:
            say(f"it does not fire before `orcaflow schedule online {made}`")


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

    Fields: id, definition, process_definition_id, release_state, crontab, description, timezone_id,
    missing_time, repeated_time, start_time, end_time (null: no end), next_fire_time (null: none, or
    OFFLINE), fault (why it can't fire), misfire_policy, misfire_limit, deadline (seconds),
    execution_type (null: the definition's), failure_strategy, priority, worker_group, warning_type,
    params, create_time, update_time.
    """
    from common.store.people.schedule_views import schedules
    from operations.documents.schedules import SCHEDULE_COLUMNS, schedule_cells, schedule_row
    from operations.lookup import definition_named
    from operations.scheduling import cluster_zone
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        definition = None if name is None else definition_named(db, name)
        found = schedules(db, definition_id=None if definition is None else definition.id)
    zone = cluster_zone(session.config)
    made = schedule_row if form is Format.JSON else schedule_cells
    print_rows(
        [made(view, zone=zone) for view in found],
        form=form,
        columns=SCHEDULE_COLUMNS,
        zone=session.zone,
        none="There are no schedules; make one: orcaflow schedule create NAME --cron"
        " '0 0 3 * * ? *'",
    )


@app.command(epilog="Example: orcaflow schedule show 3")
def show(schedule_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Show a schedule with its next five fires and how many fires came to what.

    Fields: those of `list`, next_fires (as the fires of `preview`; none while it is OFFLINE), fires
    (a number for each outcome).
    """
    from itertools import islice

    from common.clock import SystemClock
    from common.firing import ScheduleFaultError, timetable_of
    from common.model.states import ReleaseState
    from common.store.people.schedule_views import fire_counts
    from operations.documents.schedules import (
        coming_cells,
        coming_row,
        schedule_cells,
        schedule_row,
    )
    from operations.previewing import coming
    from operations.scheduling import as_schedule, cluster_zone
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        (view,) = _with_ids(db, [schedule_id])
        counts = fire_counts(db, schedule_id)
    zone = cluster_zone(session.config)
    row = schedule_row(view, zone=zone)
    fires: list[ComingFire] = []
    if view.release_state == ReleaseState.ONLINE and row["fault"] is None:
        try:
            timetable = timetable_of(as_schedule(view), zone=zone)
            fires = list(islice(coming(timetable, SystemClock().now()), 5))
        except ScheduleFaultError as error:
            row["fault"] = str(error)
    rows = [coming_row(each, view.id) for each in fires]
    if form is Format.JSON:
        print_json({**row, "next_fires": rows, "fires": counts})
        return
    cells = schedule_cells(view, zone=zone) | {"next_fire": None, "fault": row["fault"]}
    counted_fires = ", ".join(f"{number} {word}" for word, number in counts.items())
    print_fields(cells | {"fires": counted_fires}, zone=session.zone)
    if rows:
        write("")
        write(table(coming_cells(rows), ("local", "utc", "clock")))


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


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow schedule offline 3\n"
        "  orcaflow schedule edit 3 --cron '0 0 4 * * ? *' --deadline none\n"
        "  orcaflow schedule edit 3 --to never --worker-group default --no-params\n"
        "  orcaflow schedule online 3\n"
    )
)
def edit(
    schedule_id: _Id,
    *,
    cron: Annotated[str | None, typer.Option("--cron", metavar="LINE", help=CRON_HELP)] = None,
    zone: ZoneOption = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help=FROM_HELP)] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help=TO_HELP)] = None,
    misfire: MisfireOption = None,
    misfire_limit: MisfireLimitOption = None,
    deadline: DeadlineOption = None,
    missing: MissingOption = None,
    repeated: RepeatedOption = None,
    execution_type: RivalsOption = None,
    failure_strategy: FailureOption = None,
    worker_group: GroupOption = None,
    priority: PriorityOption = None,
    param: ParamOption = None,
    no_params: Annotated[
        bool, typer.Option("--no-params", help="Take all start-up parameters away.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a schedule that is OFFLINE; what is not named stays as it is.

    --param replaces all parameters. Another --zone leaves the instants of the window as they are.
    Fields: those of `list`.
    """
    from common.clock import SystemClock
    from common.errors import NotAllowedError
    from common.model.states import ReleaseState
    from common.store.people.schedule_requests import edit_schedule, lock_schedules
    from operations.scheduling import cluster_zone, stored_name, zone_of_schedule
    from operations.session import opened

    if param and no_params:
        raise typer.BadParameter("--param and --no-params exclude each other")
    now = SystemClock().now()
    values = settings_of(
        misfire=misfire,
        misfire_limit=misfire_limit,
        deadline=deadline,
        missing=missing,
        repeated=repeated,
        execution_type=execution_type,
        failure_strategy=failure_strategy,
        priority=priority,
        param=param,
    )
    if no_params:
        values["start_params"] = None
    if cron is not None:
        values["crontab"] = cron_of(cron)
    other = zone_given(zone)
    with opened() as session, session.engine.begin() as db:
        lock_schedules(db, [schedule_id])
        (view,) = _with_ids(db, [schedule_id])
        own = other or zone_of_schedule(view, cluster_zone(session.config))
        if other is not None:
            values["timezone_id"] = stored_name(other)
        if from_ is not None:
            values["start_time"] = start_of(from_, own, now)
        if to is not None:
            values["end_time"] = end_of(to, own)
        values |= group_of(db, worker_group)
        if not values:
            raise typer.BadParameter("say what is to be changed; see --help")
        if view.release_state != ReleaseState.OFFLINE:
            raise NotAllowedError(
                f"schedule {schedule_id} is ONLINE and can't be changed; take it off first:"
                f" orcaflow schedule offline {schedule_id}"
            )
        check_columns(session, columns_of(view) | values, own)
        edit_schedule(db, schedule_id, values=values, at=now)
        found = _with_ids(db, [schedule_id])
    _told_change(session, found, "changed", form)


@app.command(epilog="Example: orcaflow schedule delete 3")
def delete(
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Ids of schedules.", min=1)],
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete schedules that are OFFLINE: all of these, or none. Their fires stay in the ledger.

    Fields: id, definition, deleted.
    """
    from common.errors import NotAllowedError
    from common.model.states import ReleaseState
    from common.store.people.schedule_requests import delete_schedules, lock_schedules
    from operations.session import opened

    with opened() as session, session.engine.begin() as db:
        lock_schedules(db, ids)
        found = _with_ids(db, ids)
        for view in found:
            if view.release_state != ReleaseState.OFFLINE:
                raise NotAllowedError(
                    f"schedule {view.id} is ONLINE and can't be deleted; take it off first:"
                    f" orcaflow schedule offline {view.id}"
                )
        delete_schedules(db, ids)
    if form is Format.JSON:
        print_json(
            [{"id": view.id, "definition": view.definition_name, "deleted": True} for view in found]
        )
        return
    for view in found:
        write(f"schedule {view.id} is deleted")


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow schedule preview flights\n"
        "  orcaflow schedule preview 3 --count 20 --after 2026-10-30\n"
        "  orcaflow schedule preview --cron '0 30 2 * * ?' --zone America/New_York \\\n"
        "      --after 2026-03-06 --count 5 -o json\n"
        "  orcaflow schedule preview --cron '0 0 6 ? * 6L' --missing skip --repeated both\n"
    )
)
def preview(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="ID|NAME", help="A schedule, or a definition with all its schedules."
        ),
    ] = None,
    *,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="LINE", help="Instead: any cron line.")
    ] = None,
    zone: ZoneOption = None,
    missing: MissingOption = None,
    repeated: RepeatedOption = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many fires.")] = 10,
    after: Annotated[
        str,
        typer.Option("--after", metavar="TIME", help="Fires after this, in the schedule's zone."),
    ] = "now",
    form: FormatOption = Format.TABLE,
) -> None:
    """List the next fires, exactly as they will fire, with what the clock of the zone does to them.

    Fields: schedules (id, definition, release_state, crontab, description, timezone_id,
    missing_time, repeated_time, start_time, end_time, hindrance: why none of it happens), fires
    (schedule_id, fire_time, local, meant: the wall time of the cron line, clock: null, shifted,
    first or second, clock_effect),
    clock_changes (schedule_id, at, local, before and after: seconds ahead of UTC, wall_times: no
    more than five, number, effect), overdue (fires of ONLINE schedules that are due and that no
    master has carried out yet: schedule_id, since, number, outcomes).
    """
    import heapq
    from itertools import islice, repeat

    from common.clock import SystemClock
    from operations.documents.schedules import change_row, coming_cells, coming_row
    from operations.previewing import clock_changes, coming
    from operations.scheduling import moment_option

    if (target is None) == (cron is None):
        raise typer.BadParameter("give the ID of a schedule, the NAME of a definition, or --cron")
    if cron is None and (zone or missing or repeated):
        raise typer.BadParameter("--zone, --missing and --repeated go with --cron")
    now = SystemClock().now()
    if cron is not None:
        heads, timetables = _of_line(cron, zone, missing, repeated)
        overdue: list[dict[str, object]] = []
    else:
        heads, timetables, overdue = _of_target(target or "", now)
    since = {
        number: now if after == "now" else moment_option(after, each.zone, option="--after")
        for number, each in timetables.items()
    }
    merged = heapq.merge(
        *(zip(repeat(number), coming(each, since[number])) for number, each in timetables.items()),
        key=lambda pair: (pair[1].fire_time, pair[0]),
    )
    listed = list(islice(merged, count))
    last = listed[-1][1].fire_time if len(listed) == count else None
    changes = [
        change_row(change, each, number or None)
        for number, each in timetables.items()
        for change in clock_changes(each, since[number], last)
    ]
    fires = [coming_row(fire, number or None) for number, fire in listed]
    if form is Format.JSON:
        print_json(
            {
                "schedules": heads,
                "fires": fires,
                "clock_changes": changes,
                "overdue": overdue if after == "now" else [],
            }
        )
        return
    for head in heads:
        _write_head(head)
    for row in overdue if after == "now" else ():
        _write_overdue(row, timetables)
    if fires:
        write("")
        columns = ("local", "utc", "clock")
        many = len(timetables) > 1
        write(table(coming_cells(fires), ("schedule_id", *columns) if many else columns))
    if timetables and len(fires) < count:
        say("there are no more fires" if fires else "there are no fires")
    for row in changes:
        which = f"schedule {row['schedule_id']}: " if len(timetables) > 1 else ""
        write(f"{which}{row['effect']}")


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
    from common.store.people.schedule_views import fires as fires_of
    from common.store.people.schedule_views import schedules
    from operations.documents.schedules import fire_row
    from operations.lookup import definition_named
    from operations.scheduling import cluster_zone, local_text, zone_of_schedule
    from operations.session import opened

    words = None if not outcome else [each.value for each in outcome]
    with opened() as session, session.engine.connect() as db:
        number = int(target[:18]) if target.isascii() and target.isdigit() else None
        # The fires of a schedule that has been deleted are still there.
        if number is not None and fires_of(db, schedule_id=number, limit=1):
            found = fires_of(db, schedule_id=number, outcomes=words, limit=limit)
        elif number is not None:
            _with_ids(db, [number])
            found = []
        else:
            definition = definition_named(db, target)
            found = fires_of(db, definition_id=definition.id, outcomes=words, limit=limit)
        known = schedules(db, ids={each.schedule_id for each in found})
    rows = [fire_row(each) for each in found]
    if form is not Format.JSON:
        cluster = cluster_zone(session.config)
        zones = {each.id: zone_of_schedule(each, cluster) for each in known}
        for row, each in zip(rows, found, strict=True):
            row["fire_time"] = local_text(each.fire_time, zones.get(each.schedule_id, cluster))
    print_rows(
        rows,
        form=form,
        columns=(
            *("schedule_id", "definition", "fire_time", "outcome", "process_instance_id"),
            *("instance_state", "reason"),
        ),
        zone=session.zone,
        none="There are no such fires.",
    )


app.command(name="simulate", epilog=simulating.EXAMPLES)(simulating.simulate)


def _release(
    ids: list[int] | None,
    all_: bool,
    definition: str | None,
    wanted: ReleaseState,
    form: Format,
) -> None:
    from common.clock import SystemClock
    from common.errors import NotAllowedError
    from common.firing import ScheduleFaultError
    from common.model.states import ReleaseState
    from common.store.people.schedule_requests import lock_schedules, release_schedules
    from operations.scheduling import as_schedule, check_released, check_schedule, cluster_zone
    from operations.session import opened

    if (bool(ids)) + all_ + (definition is not None) != 1:
        raise typer.BadParameter("give IDs of schedules, or --definition NAME, or --all")
    now = SystemClock().now()
    with opened() as session:
        zone = cluster_zone(session.config)
        with session.engine.begin() as db:
            found = _chosen(db, ids, definition)
            if wanted is ReleaseState.ONLINE:
                check_released(db, [view.process_definition_id for view in found])
            chosen = [view.id for view in found]
            lock_schedules(db, chosen)
            found = _with_ids(db, chosen)
            for view in found if wanted is ReleaseState.ONLINE else ():
                try:
                    check_schedule(
                        as_schedule(view),
                        zone=zone,
                        limit_bytes=session.config.command.param_limit_bytes,
                    )
                except ScheduleFaultError as error:
                    raise NotAllowedError(
                        f"schedule {view.id} can't fire: {error} (orcaflow schedule edit {view.id})"
                    ) from error
            changed = release_schedules(db, chosen, wanted=wanted, at=now)
        if form is Format.JSON:
            print_json(
                [
                    {
                        "id": view.id,
                        "definition": view.definition_name,
                        "release_state": wanted.name,
                        "changed": view.id in changed,
                    }
                    for view in found
                ]
            )
        for view in found:
            if form is not Format.JSON:
                how = "now" if view.id in changed else "already"
                write(f"schedule {view.id} ({escaped(_owner(view))}) is {how} {wanted.name}")
            if wanted is ReleaseState.ONLINE and view.end_time <= now:
                say(f"schedule {view.id} does not fire any more: its window has ended")
        if not found:
            say("There are no schedules.")
        elif wanted is ReleaseState.ONLINE:
            _warn_without_master(session)


def _chosen(db: Connection, ids: list[int] | None, definition: str | None) -> list[ScheduleView]:
    from common.store.people.schedule_views import schedules
    from operations.scheduling import schedules_of

    if ids:
        return _with_ids(db, ids)
    if definition is None:
        return schedules(db)
    return schedules_of(db, definition, by_name=True)


def _with_ids(db: Connection, ids: Sequence[int]) -> list[ScheduleView]:
    """All of these schedules, each once, or an error that names the first that is not there."""
    from common.store.people.schedule_views import schedules
    from operations.scheduling import no_schedule

    found = schedules(db, ids=ids)
    known = {view.id for view in found}
    for number in ids:
        if number not in known:
            raise no_schedule(number)
    return found


def _told_change(session: Session, found: list[ScheduleView], what: str, form: Format) -> None:
    """Say what a schedule is now."""
    from itertools import islice

    from common.clock import SystemClock
    from common.firing import timetable_of
    from operations.documents.schedules import schedule_row
    from operations.previewing import coming
    from operations.scheduling import as_schedule, cluster_zone, local_text

    (view,) = found
    zone = cluster_zone(session.config)
    row = schedule_row(view, zone=zone)
    timetable = timetable_of(as_schedule(view), zone=zone)
    first = next(islice(coming(timetable, SystemClock().now()), 1), None)
    if form is Format.JSON:
        print_json(row)
    else:
        write(
            f"schedule {view.id} of {escaped(_owner(view))} is {what}, {row['release_state']}:"
            f" {row['description']} ({timetable.zone.key})"
        )
        if first is not None:
            write(f"its next fire: {local_text(first.fire_time, timetable.zone)}")
    if first is None:
        say("it never fires from now on: its window, or its cron line, has ended")


def _owner(view: ScheduleView) -> str:
    return view.definition_name or f"definition {view.process_definition_id}, which is gone"


def _warn_without_master(session: Session) -> None:
    """A missing master does not forbid anything; a person has to know of it all the same."""
    from operations.explaining import living

    members = living(session.config)
    if members is None:
        say("ZooKeeper does not answer, so whether a master is there to fire it is not known")
    elif not members[0]:
        say(
            "no master is alive: nothing fires before one is started"
            " (bin/orcaflow-daemon.sh start master-server), and what is late then is a misfire"
        )


def _of_line(
    cron: str, zone: str | None, missing: Missing | None, repeated: Repeated | None
) -> tuple[list[dict[str, object]], dict[int, Timetable]]:
    """What a cron line is, as if schedule 0 had it."""
    from common.config import load
    from common.firing import timetable_of
    from operations.documents.schedules import head_of_line
    from operations.scheduling import cluster_zone

    own = zone_given(zone) or cluster_zone(load())
    line = schedule_of_line(cron_of(cron), own, missing, repeated)
    timetable = timetable_of(line, zone=own)
    return [head_of_line(line, timetable)], {0: timetable}


def _of_target(
    target: str, now: datetime
) -> tuple[list[dict[str, object]], dict[int, Timetable], list[dict[str, object]]]:
    """The heads of schedules, the timetables of those that can be read, what is overdue of them."""
    from common.firing import ScheduleFaultError, timetable_of
    from operations.documents.schedules import head_of, overdue_row
    from operations.scheduling import as_schedule, cluster_zone, schedules_of
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        views = schedules_of(db, target)
    zone = cluster_zone(session.config)
    timetables: dict[int, Timetable] = {}
    for view in views:
        try:
            timetables[view.id] = timetable_of(as_schedule(view), zone=zone)
        except ScheduleFaultError as error:
            say(f"schedule {view.id} can't fire: {error}")
    overdue = [overdue_row(view, zone, now) for view in views if view.id in timetables]
    return (
        [head_of(view, zone) for view in views],
        timetables,
        [row for row in overdue if row is not None],
    )


def _write_head(head: dict[str, object]) -> None:
    what = head["description"] or "it can't be read"
    line = f"{escaped(str(head['crontab']))} in {head['timezone_id']}: {what}"
    if head["id"] is None:
        write(line)
        return
    owner = escaped(str(head["definition"] or "a definition that is gone"))
    write(f"schedule {head['id']} of {owner} ({head['release_state']}): {line}")
    if head["hindrance"] is not None and head["description"] is not None:
        say(f"none of this happens as it stands: {head['hindrance']}")


def _write_overdue(row: dict[str, object], timetables: dict[int, Timetable]) -> None:
    from operations.scheduling import local_text

    number, since, outcomes = (row[name] for name in ("number", "since", "outcomes"))
    schedule_id = row["schedule_id"]
    assert isinstance(number, int)
    assert isinstance(schedule_id, int)
    words = ", ".join(f"{count} {outcome}" for outcome, count in cast("Outcomes", outcomes).items())
    begin = local_text(cast("datetime", since), timetables[schedule_id].zone)
    write(
        f"schedule {schedule_id} has {counted(number, 'fire')} that no master has carried out, from"
        f" {begin} on; one that looked now would make of them: {words}"
    )
