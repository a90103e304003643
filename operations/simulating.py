"""Simulations of stored schedules: reads the stage from the tables and plays it.

Nothing is written. The model, and what it leaves out, is described in `common.schedule_simulator`.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from common import schedule_simulator
from common.config import cluster_zone
from common.errors import InvalidDefinitionError, NotFoundError
from common.model.definitions import read_process_json
from common.model.rights import Action, Principal
from common.model.schedules import Schedule
from common.model.states import Priority, ReleaseState
from common.schedule_simulator import (
    MAX_FIRES,
    Outage,
    Peak,
    RunCost,
    Simulation,
    Stage,
    peak_of,
    run_cost_of,
)
from common.store.people.durations import (
    DefinitionShape,
    recent_durations,
    recent_peaks,
    shapes,
)
from common.store.people.pools import pools
from common.store.people.rights import Thing
from common.store.people.schedule_views import ScheduleView, schedules
from common.task_types import known_task_types
from operations.errors import ForbiddenError, UsageError
from operations.lookup import definition_named
from operations.rights import seen
from operations.session import Session, operation
from operations.stored_schedules import as_schedule
from operations.times import read_moment, read_seconds
from operations.worker_slots import Capacity, living_slots

if TYPE_CHECKING:
    from common.store.connect import Connection

_FIRST_FIRE: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """The schedules to simulate and the assumptions to make. Texts are read in the cluster's zone.

    `first` None begins now, with what is overdue; `slots` None takes those of the living workers.
    `pessimistic` has runs take the longest of their last durations, and not the median.
    """

    days: float = 30
    first: str | None = None
    definition_name: str | None = None
    definition_id: int | None = None
    """Instead of the name, which is for the owner of the database alone."""
    offline_too: bool = False
    pessimistic: bool = False
    assumed: timedelta = timedelta(seconds=60)
    slots: int | None = None
    outages: tuple[str, ...] = ()
    max_fires: int = MAX_FIRES


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSchedules:
    """The outcome of a simulation, with the cluster's zone and the slots that it had."""

    simulation: Simulation
    zone: ZoneInfo
    capacity: Capacity


@operation
def simulate(session: Session, request: SimulationRequest, *, now: datetime) -> SimulatedSchedules:
    """Play the stored schedules on a virtual clock.

    Raises a `UsageError` of a field of the request, `NotFoundError` without any schedule, and
    `TooManyFiresError`.
    """
    zone = cluster_zone(session.config)
    begin = _begin(request, zone, now)
    outages = tuple(_outage(text, zone) for text in request.outages)
    capacity = Capacity(request.slots, "--slots") if request.slots else living_slots(session.config)
    with session.engine.connect() as db:
        stage = _stage(
            db,
            _views(db, session.principal, request),
            request,
            zone=zone,
            begin=begin,
            end=_end(begin, request.days),
        )
    stage = replace(
        stage,
        slots=capacity.slots,
        outages=outages,
        threshold=timedelta(seconds=session.config.master.misfire_threshold_seconds),
        max_fires=request.max_fires,
    )
    # Nothing made here is garbage before the end, so that looking for some would only cost time.
    gc.disable()
    try:
        simulation = schedule_simulator.simulate(stage)
    finally:
        gc.enable()
    return SimulatedSchedules(simulation=simulation, zone=zone, capacity=capacity)


def read_assumed(text: str) -> timedelta:
    """The duration of runs without history; raises a `UsageError` of the field `assume`."""
    return timedelta(seconds=read_seconds(text, field="assume"))


def _begin(request: SimulationRequest, zone: ZoneInfo, now: datetime) -> datetime:
    if request.first is None:
        return now.replace(microsecond=0)
    begin = read_moment(request.first, zone, field="first")
    if begin < _FIRST_FIRE:
        raise UsageError("first", "no cron line fires before 1970")
    return begin


def _end(begin: datetime, days: float) -> datetime:
    try:
        return begin + timedelta(days=days)
    except OverflowError:
        raise UsageError("days", f"{days:g} days from then are beyond the year 9999") from None


def _outage(text: str, zone: ZoneInfo) -> Outage:
    first, slash, span = text.rpartition("/")
    if not slash:
        raise UsageError("outages", f"{text!r:.80} is no outage, as '2026-03-29 01:00/3h' is")
    begin = read_moment(first, zone, field="outages")
    return Outage(begin=begin, end=begin + timedelta(seconds=read_seconds(span, field="outages")))


def _views(db: Connection, principal: Principal, request: SimulationRequest) -> list[ScheduleView]:
    chosen, whose = request.definition_id, ""
    if request.definition_name is not None:
        if not principal.owns_database:
            raise ForbiddenError("only the command line looks for names, at the database itself")
        chosen = definition_named(db, principal, request.definition_name).id
        whose = f" of {request.definition_name!r:.200}"
    elif chosen is not None:
        seen(db, principal, Action.VIEW, Thing.DEFINITION, chosen)
        whose = f" of definition {chosen}"
    found = schedules(
        db,
        definition_id=chosen,
        online_only=not request.offline_too,
        principal=principal,
    )
    if found:
        return found
    if request.offline_too:
        raise NotFoundError(f"there is no schedule{whose}; make one: orcaflow schedule create")
    raise NotFoundError(f"no schedule{whose} is ONLINE; --all takes those that are OFFLINE too")


def _stage(
    db: Connection,
    views: Sequence[ScheduleView],
    request: SimulationRequest,
    *,
    zone: ZoneInfo,
    begin: datetime,
    end: datetime,
) -> Stage:
    ids = sorted({view.process_definition_id for view in views})
    known = shapes(db, ids)
    all_pools = pools(db)
    return Stage(
        schedules=tuple(_played(view, begin, as_stored=request.first is None) for view in views),
        run_costs=_run_costs(
            db,
            ids,
            known,
            pool_names={str(pool.id): pool.name for pool in all_pools},
            pessimistic=request.pessimistic,
            assumed=request.assumed,
        ),
        execution_types={each: shape.execution_type for each, shape in known.items()},
        faults={view.id: view.fault for view in views if view.fault is not None},
        pools={pool.name: pool.size for pool in all_pools},
        zone=zone,
        begin=begin,
        end=end,
    )


def _played(view: ScheduleView, begin: datetime, *, as_stored: bool) -> Schedule:
    """The schedule as if it were set ONLINE just in time for the first fire.

    `as_stored` leaves one that is ONLINE as it is, overdue fires included.
    """
    schedule = replace(as_schedule(view), priority=Priority(view.priority))
    is_online = view.release_state == ReleaseState.ONLINE
    if as_stored and is_online:
        return schedule
    return replace(
        schedule,
        counted_from=begin - timedelta(microseconds=1),
        next_fire_time=None,
        # To set a schedule ONLINE, its definition has to be so.
        definition_is_online=schedule.definition_is_online or not is_online,
    )


def _run_costs(
    db: Connection,
    ids: Sequence[int],
    known: Mapping[int, DefinitionShape],
    *,
    pool_names: Mapping[str, str],
    pessimistic: bool,
    assumed: timedelta,
) -> dict[int, RunCost]:
    durations, peaks = recent_durations(db, ids), recent_peaks(db, ids)
    run_costs: dict[int, RunCost] = {}
    for each in ids:
        guess = RunCost(duration=assumed)
        if not peaks[each]:
            guess = replace(guess, peak=_guessed_peak(known.get(each), pool_names))
        run_costs[each] = run_cost_of(
            durations[each], peaks[each], pessimistic=pessimistic, assumed=guess
        )
    return run_costs


def _guessed_peak(shape: DefinitionShape | None, pool_names: Mapping[str, str]) -> Peak:
    """The peak by the definition itself; that of a single task if it can't be read."""
    try:
        text = (shape and shape.process_definition_json) or ""
        found = peak_of(read_process_json(text, task_types=known_task_types()))
    except InvalidDefinitionError:
        return Peak()
    pool_slots: Counter[str] = Counter()
    for name, number in found.pools.items():
        pool_slots[pool_names.get(name, name)] += number
    return replace(found, pools=pool_slots)
