"""What somebody asks to be complemented, from words to dates, and what would come of it.

`orcaflow complement` and its `--plan` both ask here, so that what is shown beforehand is what is
made. Dates come from `common.complementing`, as they do when a master plans a row typed into
`t_ds_command`. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final
from zoneinfo import ZoneInfo

import typer

from common.complementing import plan_complements, zone_of_dates
from common.errors import BadCommandError, NotAllowedError, SchedulerError
from common.model.complements import (
    ComplementRequest,
    Downstream,
    NewComplement,
    OnFailure,
    Reprocess,
    RunOrder,
    RunSettings,
)
from common.model.definitions import ProcessGraph, read_process_json
from common.model.plans import DefinitionSnapshot
from common.model.schedules import Schedule
from common.model.states import LIVE_PROCESS_STATES, ProcessState
from common.store.complements import read_dependents
from common.store.connect import Connection
from common.store.people.complement_views import newest_runs
from common.store.people.definitions import DefinitionRow, definition_by_id
from common.store.people.durations import recent_durations
from common.store.schedules import read_schedules
from common.task_types import known_task_types
from common.zones import zone_named
from operations.documents.instances import name_of
from operations.scheduling import moment_in, zone_asked

_LIST: Final = "--date/--dates"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementOptions:
    """The options as they were given; what names a date is still text."""

    first: str | None
    last: str | None
    dates: tuple[str, ...]
    zone: str | None
    parallelism: int
    order: RunOrder
    on_failure: OnFailure
    reprocess: Reprocess
    downstream: Downstream
    confirmed: bool
    settings: RunSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePlan:
    """What becomes of one date: it runs, or is skipped because of the run that it has."""

    schedule_time: datetime
    process_instance_id: int | None = None
    instance_state: str | None = None
    skipped: str | None = None
    """Why it would not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long the dates of one complement take, if each takes as long as those before."""

    typical: timedelta
    """The median of the last successful runs."""
    runs: int
    """How many runs that is."""
    rounds: int
    total: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementPlan:
    """One complement that would be made. `estimate` None: no run of its definition is known."""

    definition_name: str
    new: NewComplement
    dates: tuple[DatePlan, ...]
    estimate: Estimate | None

    @property
    def to_run(self) -> int:
        return sum(each.skipped is None for each in self.dates)


def planned_complements(
    db: Connection, definition: DefinitionRow, options: ComplementOptions, *, zone: ZoneInfo
) -> tuple[NewComplement, ...]:
    """The complements to be made: the definition's own, then those downstream in turn.

    `zone` is the cluster's. A usage error names the option that is wrong, and `NotAllowedError`
    what stands against it.
    """
    _graph(definition.process_definition_json or "")
    downstream = options.downstream is not Downstream.NONE
    try:
        schedules = read_schedules(db, [definition.id]).get(definition.id, ())
        dependents = read_dependents(db) if downstream else ()
    except ValueError as error:
        raise SchedulerError(f"a row of t_ds_schedules can't be read: {error}") from error
    request = _request(definition.id, options, schedules, zone=zone)
    try:
        return plan_complements(
            request,
            _snapshot(definition),
            schedules=schedules,
            dependents=dependents,
            zone=zone,
            graph=_graph,
        )
    except BadCommandError as error:
        raise NotAllowedError(str(error)) from error


def look_ahead(db: Connection, complements: Sequence[NewComplement]) -> list[ComplementPlan]:
    """What exists already for each date, what becomes of it, and how long all may take."""
    definition_ids = [each.process_definition_id for each in complements]
    durations = recent_durations(db, definition_ids)
    plans = []
    for new in complements:
        dates = _date_plans(db, new)
        definition = definition_by_id(db, new.process_definition_id)
        plans.append(
            ComplementPlan(
                definition_name="?" if definition is None else definition.name,
                new=new,
                dates=dates,
                estimate=estimated(
                    sum(each.skipped is None for each in dates),
                    new.parallelism,
                    durations.get(new.process_definition_id, ()),
                ),
            )
        )
    return plans


def estimated(dates: int, parallelism: int, history: Sequence[timedelta]) -> Estimate | None:
    """How long so many dates take; None without any history."""
    typical = typical_duration(history)
    if typical is None:
        return None
    rounds = -(-dates // parallelism)
    return Estimate(typical=typical, runs=len(history), rounds=rounds, total=typical * rounds)


def end_of(plan: ComplementPlan, *, begins_at: datetime | None) -> datetime | None:
    """When it would be over if it began then; None if nobody can know."""
    if plan.estimate is None or begins_at is None:
        return None
    try:
        return begins_at + plan.estimate.total
    except OverflowError:
        return None


def typical_duration(history: Sequence[timedelta]) -> timedelta | None:
    """The median, which one run that hung for a day does not spoil; None of nothing."""
    if not history:
        return None
    return timedelta(seconds=median(span.total_seconds() for span in history))


def _request(
    definition_id: int, options: ComplementOptions, schedules: Sequence[Schedule], *, zone: ZoneInfo
) -> ComplementRequest:
    zone_name = _zone_name(options, schedules, zone)
    own_zone = zone_named(zone_name)
    first: datetime | None = None
    last: datetime | None = None
    if options.dates:
        if options.first is not None or options.last is not None:
            raise typer.BadParameter(
                "give either --from and --to, or a list of dates", param_hint=_LIST
            )
    elif options.first is None or options.last is None:
        raise typer.BadParameter(
            "give the range by --from and --to, or its dates by --date or --dates",
            param_hint="--to" if options.first else "--from",
        )
    else:
        first = read_moment(options.first, own_zone, option="--from")
        # Dates may lie at any time of a day, and a bare date means all of it.
        last = read_moment(options.last, own_zone, option="--to", ends_day=True)
        if last < first:
            raise typer.BadParameter(
                f"{options.last} is before --from {options.first}: nothing lies between them; put"
                " the earlier date first (--order descending runs the latest one first)",
                param_hint="--to",
            )
    return ComplementRequest(
        process_definition_id=definition_id,
        first=first,
        last=last,
        dates=read_dates(options.dates, own_zone),
        timezone_id=zone_name,
        parallelism=options.parallelism,
        order=options.order,
        on_failure=options.on_failure,
        reprocess=options.reprocess,
        downstream=options.downstream,
        confirmed=options.confirmed,
        settings=options.settings,
    )


def _zone_name(options: ComplementOptions, schedules: Sequence[Schedule], zone: ZoneInfo) -> str:
    """The zone asked for, else that of a schedule, else the cluster's: as for a typed row."""
    if options.zone is not None:
        return zone_asked(options.zone).key
    try:
        return zone_of_dates(schedules, zone=zone).key
    except BadCommandError as error:
        raise NotAllowedError(f"{error}; name a zone by --zone") from error


def read_moment(
    text: str, zone: ZoneInfo, *, option: str, ends_day: bool = False, what: str = ""
) -> datetime:
    """The instant of a date, or of a date with a time; a usage error names option and `what`."""
    try:
        return moment_in(text, zone, ends_day=ends_day)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{what}{error}", param_hint=option) from None


def read_dates(texts: Sequence[str], zone: ZoneInfo) -> tuple[datetime, ...]:
    """The dates of a list, each of which stands in it once."""
    places: dict[datetime, int] = {}
    for place, text in enumerate(texts, start=1):
        moment = read_moment(text, zone, option=_LIST, what=f"date {place}: ")
        if moment in places:
            raise typer.BadParameter(
                f"date {place} ({text.strip()[:40]}) is date {places[moment]} again; name each"
                " date once",
                param_hint=_LIST,
            )
        places[moment] = place
    return tuple(places)


def skip_reason(reprocess: Reprocess, process_instance_id: int, state: int) -> str | None:
    """Why a date with this newest run would be left alone; None if it would run again.

    `common.store.complements` decides the same, in the statement that writes the dates.
    """
    is_live = state in LIVE_PROCESS_STATES
    if reprocess is Reprocess.ALL:
        return None
    if reprocess is Reprocess.FAILED and not is_live and state != ProcessState.SUCCESS:
        return None
    verb = "is" if is_live else "ended as"
    return f"process instance {process_instance_id} {verb} {name_of(ProcessState, state)}"


def _date_plans(db: Connection, new: NewComplement) -> tuple[DatePlan, ...]:
    runs = newest_runs(db, new.process_definition_id, new.dates)
    return tuple(_date_plan(each, runs, new.reprocess) for each in new.dates)


def _date_plan(
    schedule_time: datetime, runs: Mapping[datetime, tuple[int, int]], reprocess: Reprocess
) -> DatePlan:
    # Moments of a repeated hour are equal to no moment of another zone.
    run = runs.get(schedule_time.astimezone(UTC))
    if run is None:
        return DatePlan(schedule_time=schedule_time)
    instance_id, state = run
    return DatePlan(
        schedule_time=schedule_time,
        process_instance_id=instance_id,
        instance_state=name_of(ProcessState, state),
        skipped=skip_reason(reprocess, instance_id, state),
    )


def _graph(process_definition_json: str) -> ProcessGraph:
    return read_process_json(process_definition_json, task_types=known_task_types())


def _snapshot(row: DefinitionRow) -> DefinitionSnapshot:
    return DefinitionSnapshot(
        id=row.id,
        name=row.name,
        version=row.version,
        release_state=row.release_state,
        usable=row.usable,
        process_definition_json=row.process_definition_json or "",
        global_params=row.global_params,
        timeout_minutes=row.timeout_minutes,
        tenant_id=row.tenant_id,
    )
