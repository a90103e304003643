"""The fires of a simulation, and the instant of each: by the planner of the real loop. Pure.

Adds the words *stage* (all that a simulation is given) and *outage* (a time without any master).
While masters are there, a fire is carried out at its own time, so it is in time by definition: all
fires of such a stretch are asked for at once, which is what makes a month take milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from common.errors import SchedulerError
from common.firing import MISFIRE_THRESHOLD, ScheduleFaultError, plan_fires, timetable_of
from common.model.schedules import Fire, FireOutcome, FirePlan, MisfirePolicy, Schedule
from common.model.states import ExecutionType
from common.schedule_simulator.run_cost import RunCost

MAX_FIRES: Final = 1_000_000
_AT_ONCE: Final = 10_000
MICROSECOND: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TooManyFiresError(SchedulerError):
    """The stage has more fires than are allowed; the text names the busiest schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """No master is there from `begin` on; one is there again at `end`."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The input of a simulation, from `begin` up to `end`, not included.

    `zone` is that of the cluster. `run_costs` and `execution_types` are by id of the definition.
    `faults` are the reasons why the schedules with these ids never fire, whatever their rows say.
    `slots` None is unlimited, and so is a pool that `pools` does not name.
    """

    schedules: tuple[Schedule, ...]
    run_costs: Mapping[int, RunCost]
    begin: datetime
    end: datetime
    zone: ZoneInfo
    execution_types: Mapping[int, ExecutionType] = field(default_factory=dict)
    faults: Mapping[int, str] = field(default_factory=dict)
    slots: int | None = None
    pools: Mapping[str, int] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    threshold: timedelta = MISFIRE_THRESHOLD
    max_fires: int = MAX_FIRES

    def execution_type_of(self, schedule: Schedule) -> ExecutionType:
        """The schedule's own goes before that of its definition."""
        if schedule.execution_type is not None:
            return schedule.execution_type
        return self.execution_types.get(schedule.process_definition_id, ExecutionType.PARALLEL)


Put: TypeAlias = tuple[int, int, int, int]
"""A run that is put: its instant, its priority, its fire time, the place of its schedule."""


@dataclass(slots=True, kw_only=True)
class Play:
    """The fires of one schedule and their outcomes.

    `late` counts those that are fired, but later than the threshold; `undecided` fires lie in an
    outage that goes on at the end of the stage.
    """

    schedule: Schedule
    puts: list[Put] = field(default_factory=list)
    outcomes: Counter[FireOutcome] = field(default_factory=Counter)
    late: int = 0
    undecided: int = 0
    fault: str | None = None

    @property
    def number(self) -> int:
        """The number of fires."""
        return self.outcomes.total() + self.undecided


def plays(stage: Stage) -> list[Play]:
    """The fires of all schedules. Raises `TooManyFiresError`, and does so early."""
    outages = outages_of(stage)
    made: list[Play] = []
    left = stage.max_fires
    for place, schedule in enumerate(stage.schedules):
        play = Play(schedule=schedule, fault=stage.faults.get(schedule.id))
        made.append(play)
        if play.fault is not None:
            continue
        for at, fires in _batches(stage, play, outages, left):
            _note(play, place, at, fires, stage.threshold)
            if play.number > left:
                _refuse(stage, made)
        if play.number > left:
            _refuse(stage, made)
        left -= play.number
    return made


def _note(
    play: Play, place: int, at: datetime | None, fires: Sequence[Fire], threshold: timedelta
) -> None:
    """Keep fires as numbers alone: there may be millions of them."""
    play.outcomes.update(fire.outcome for fire in fires)
    priority = int(play.schedule.priority)
    fired = [fire.fire_time for fire in fires if fire.outcome is FireOutcome.FIRED]
    instants = [instant_of(fire_time) for fire_time in fired]
    if at is None:
        play.puts += [(instant, priority, instant, place) for instant in instants]
        return
    now = instant_of(at)
    play.puts += [(now, priority, instant, place) for instant in instants]
    play.late += sum(at - fire_time > threshold for fire_time in fired)


def instant_of(moment: datetime) -> int:
    """An instant as whole microseconds since 1970: quick, small and exact."""
    return (moment - EPOCH) // MICROSECOND


def outages_of(stage: Stage) -> list[Outage]:
    """The outages that touch the stage, in order, those that touch each other made one."""
    merged: list[Outage] = []
    for outage in sorted(stage.outages, key=lambda each: (each.begin, each.end)):
        if outage.end <= max(outage.begin, stage.begin) or outage.begin >= stage.end:
            continue
        if merged and outage.begin <= merged[-1].end:
            last = merged.pop()
            outage = Outage(begin=last.begin, end=max(last.end, outage.end))
        merged.append(outage)
    return merged


def _refuse(stage: Stage, made: Sequence[Play]) -> None:
    busiest = max(made, key=lambda play: play.number)
    schedule = busiest.schedule
    more = " at least" if busiest is made[-1] else ""
    raise TooManyFiresError(
        f"more than {stage.max_fires:,} fires from {stage.begin:%Y-%m-%d %H:%M} to"
        f" {stage.end:%Y-%m-%d %H:%M} UTC, {busiest.number:,} of them{more} of schedule"
        f" {schedule.id} ({schedule.definition_name!r}, {schedule.crontab!r}); simulate fewer days"
        " (--days), one definition (--definition), or allow more (--max-fires)"
    )


_Batch: TypeAlias = tuple[datetime | None, tuple[Fire, ...]]


def _batches(stage: Stage, play: Play, outages: Sequence[Outage], left: int) -> Iterator[_Batch]:
    """Fires with the instant at which they are carried out; None: each at its own time."""
    schedule: Schedule | None = play.schedule
    since = stage.begin
    if not outages or outages[0].begin > stage.begin:
        # Fires that are overdue already, and those due just now.
        schedule = yield from _late(stage, play, schedule, stage.begin)
    for outage in outages:
        if outage.begin > since:
            schedule = yield from _in_time(stage, play, schedule, outage.begin - MICROSECOND)
        if outage.end >= stage.end:
            play.undecided = _number_open(stage, schedule, left)
            return
        schedule = yield from _late(stage, play, schedule, outage.end)
        since = outage.end
    yield from _in_time(stage, play, schedule, stage.end - MICROSECOND)


def _late(
    stage: Stage, play: Play, schedule: Schedule | None, now: datetime
) -> Generator[_Batch, None, Schedule | None]:
    """The outcomes of all fires that are due when a master looks again."""
    while schedule is not None:
        plan = plan_fires(
            schedule, now=now, zone=stage.zone, threshold=stage.threshold, limit=_AT_ONCE
        )
        play.fault = plan.fault
        if plan.fires:
            yield now, plan.fires
        schedule = _after(schedule, plan)
        if plan.next_fire_time is not None and plan.next_fire_time > now:
            break
    return schedule


def _in_time(
    stage: Stage, play: Play, schedule: Schedule | None, now: datetime
) -> Generator[_Batch, None, Schedule | None]:
    """The outcomes of all fires up to `now` if a master looks at each at its own time."""
    while schedule is not None:
        # No fire is late at its own time: neither its deadline nor its misfire policy matters.
        plan = plan_fires(
            replace(schedule, deadline=None, misfire_policy=MisfirePolicy.SKIP),
            now=now,
            zone=stage.zone,
            threshold=stage.end - stage.begin + timedelta(days=1),
            limit=_AT_ONCE,
        )
        play.fault = plan.fault
        if plan.fires:
            yield None, plan.fires
        schedule = _after(schedule, plan)
        if plan.next_fire_time is not None and plan.next_fire_time > now:
            break
    return schedule


def _after(schedule: Schedule, plan: FirePlan) -> Schedule | None:
    """The schedule once a plan has been written; None if it fires no more."""
    if plan.fault is not None or plan.next_fire_time is None:
        return None
    return replace(schedule, counted_from=None, next_fire_time=plan.next_fire_time)


def _number_open(stage: Stage, schedule: Schedule | None, left: int) -> int:
    """The number of fires without an outcome before the end, counted up to `left` and one."""
    if schedule is None:
        return 0
    first = schedule.counted_from or schedule.next_fire_time
    if first is None:
        return 0
    if schedule.counted_from is not None:
        first += MICROSECOND
    try:
        timetable = timetable_of(schedule, zone=stage.zone)
    except ScheduleFaultError:
        return 0
    return sum(1 for _ in islice(timetable.between(first, stage.end - MICROSECOND), left + 1))
