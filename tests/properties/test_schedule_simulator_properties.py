"""Invariants of every simulation, and a reference that simulates every minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from common.firing import plan_fires
from common.model.schedules import Fire, FireOutcome, MisfirePolicy, Schedule
from common.model.states import ExecutionType, Priority
from common.schedule_simulator import Outage, Peak, RunCost, Simulation, Stage, simulate

UNTIMED = settings(deadline=None, max_examples=50)
# The night in which Berlin's clock changes is in it.
BEGIN = datetime(2026, 3, 28, 22, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MINUTES = 6 * 60
CRONTABS = (
    "0 0 * * * ?",
    "0 0/20 * * * ?",
    "0 30 2 * * ?",
    "0 0/7 1-3 * * ?",
    "0 5,6,7 0/2 * * ?",
)
DEFINITIONS = 3


@st.composite
def schedules(draw: st.DrawFn, number: int) -> Schedule:
    """One of a few definitions, so that several share one."""
    definition_id = draw(st.integers(1, DEFINITIONS))
    is_overdue = draw(st.booleans())
    return Schedule(
        id=number,
        process_definition_id=definition_id,
        definition_name=f"definition{definition_id}",
        definition_is_online=draw(st.integers(0, 9)) > 0,
        crontab=draw(st.sampled_from(CRONTABS)),
        timezone_id=draw(st.sampled_from(("UTC", "Europe/Berlin", None))),
        missing_time=draw(st.sampled_from(("shift", "skip"))),
        repeated_time=draw(st.sampled_from(("first", "second", "both"))),
        start_time=BEGIN - timedelta(days=1),
        end_time=BEGIN + draw(st.integers(1, 20)) * timedelta(hours=1),
        misfire_policy=draw(st.sampled_from(MisfirePolicy)),
        misfire_limit=draw(st.integers(1, 4)),
        deadline=draw(st.sampled_from((None, timedelta(minutes=40)))),
        execution_type=draw(st.sampled_from((None, *ExecutionType))),
        priority=draw(st.sampled_from(Priority)),
        counted_from=BEGIN - (timedelta(hours=4) if is_overdue else timedelta(microseconds=1)),
    )


def run_costs() -> st.SearchStrategy[RunCost]:
    return st.builds(
        lambda minutes, slots, of_pool: RunCost(
            duration=minutes * MINUTE, peak=Peak(slots=slots, pools={"db": of_pool}), runs=1
        ),
        st.integers(0, 100),
        st.integers(0, 4),
        st.integers(0, 3),
    )


@st.composite
def stages(draw: st.DrawFn, *, pools: bool = True) -> Stage:
    number = draw(st.integers(1, 5))
    outages = draw(st.lists(st.tuples(st.integers(-60, MINUTES), st.integers(1, 240)), max_size=2))
    return Stage(
        schedules=tuple(draw(schedules(each)) for each in range(1, number + 1)),
        run_costs={
            each: run_cost if pools else replace(run_cost, peak=replace(run_cost.peak, pools={}))
            for each in range(1, DEFINITIONS + 1)
            for run_cost in (draw(run_costs()),)
        },
        execution_types={1: draw(st.sampled_from(ExecutionType))},
        begin=BEGIN,
        end=BEGIN + MINUTES * MINUTE,
        zone=ZoneInfo("Europe/Berlin"),
        slots=draw(st.one_of(st.none(), st.integers(1, 6))),
        pools={"db": draw(st.integers(1, 4))} if pools else {},
        outages=tuple(
            Outage(begin=BEGIN + first * MINUTE, end=BEGIN + (first + span) * MINUTE)
            for first, span in outages
        ),
    )


@UNTIMED
@given(stages())
def test_every_fire_is_accounted_for_once(stage: Stage) -> None:
    for report in simulate(stage).schedules:
        assert report.fires == sum(report.outcomes.values()) + report.undecided
        assert report.runs == (
            report.ended + report.going_on + report.stopped + report.discarded + report.waiting
        )
        assert report.waited <= report.runs - report.discarded
        assert report.median_wait <= report.longest_wait <= stage.end - stage.begin


@UNTIMED
@given(stages())
def test_never_are_more_slots_in_use_than_there_are(stage: Stage) -> None:
    cluster = simulate(stage).cluster
    if stage.slots is not None:
        assert cluster.peak <= stage.slots
        assert cluster.busiest_slots <= stage.slots
    assert cluster.busiest_slots <= cluster.peak <= cluster.peak_wanted
    for pool in cluster.pools:
        assert pool.peak <= stage.pools["db"]


@UNTIMED
@given(stages())
def test_the_same_stage_gives_the_same_simulation(stage: Stage) -> None:
    assert simulate(stage) == simulate(stage)


@UNTIMED
@given(stages())
def test_with_room_for_all_nobody_waits_but_for_a_turn(stage: Stage) -> None:
    roomy = replace(
        stage,
        slots=None,
        pools={},
        schedules=tuple(
            replace(each, execution_type=ExecutionType.PARALLEL) for each in stage.schedules
        ),
    )
    result = simulate(roomy)
    assert all(report.waited == report.waiting == 0 for report in result.schedules)
    assert result.cluster.most_backlog == 0


@UNTIMED
@given(stages())
def test_runs_of_serial_schedules_never_overlap(stage: Stage) -> None:
    serial = replace(
        stage,
        schedules=tuple(
            replace(each, execution_type=ExecutionType.SERIAL_WAIT)
            if each.execution_type in (None, ExecutionType.PARALLEL)
            else each
            for each in stage.schedules
        ),
    )
    for report in simulate(serial).schedules:
        assert (report.overlaps, report.most_at_once <= 1) == (0, True)


@UNTIMED
@given(stages(pools=False))
def test_it_is_what_one_sees_who_looks_at_every_minute(stage: Stage) -> None:
    assert _summary(simulate(stage)) == _simulated_every_minute(stage)


# The reference: it visits all runs in every minute, and knows no other time.


@dataclass(slots=True, kw_only=True)
class _Run:
    schedule: Schedule
    order: tuple[int, datetime, int]
    put: int
    takes: int
    slots: int
    serial: bool = False
    begun: int | None = None
    ends: int | None = None
    outcome: str = "live"

    @property
    def goes_on(self) -> bool:
        return self.outcome == "live" and self.begun is not None


def _summary(result: Simulation) -> list[tuple[object, ...]]:
    return [
        (
            report.schedule.id,
            {outcome: number for outcome, number in report.outcomes.items() if number},
            report.undecided,
            [report.ended, report.going_on, report.stopped, report.discarded, report.waiting],
            report.overlaps,
            report.longest_wait // MINUTE,
        )
        for report in result.schedules
    ]


def _simulated_every_minute(stage: Stage) -> list[tuple[object, ...]]:
    standing = {each.id: each for each in stage.schedules}
    fires: dict[int, list[Fire]] = {each.id: [] for each in stage.schedules}
    runs: list[_Run] = []
    overlaps: Counter[int] = Counter()
    for minute in range(MINUTES):
        if _is_out(stage, minute):
            continue
        _settle(stage, runs, minute, overlaps)
        put: list[_Run] = []
        for schedule in stage.schedules:
            due = _due(stage, standing, schedule, BEGIN + minute * MINUTE)
            fires[schedule.id] += due
            put += [
                _run(stage, schedule, fire, minute)
                for fire in due
                if fire.outcome is FireOutcome.FIRED
            ]
        for new in sorted(put, key=lambda run: run.order):
            _put(stage, runs, new, minute)
            _settle(stage, runs, minute, overlaps)
    last = stage.end - MINUTE
    return [
        (
            schedule.id,
            dict(Counter(fire.outcome for fire in fires[schedule.id])),
            len(_due(stage, standing, schedule, last)),
            _numbers([run for run in runs if run.schedule is schedule]),
            overlaps[schedule.id],
            max((_wait(run) for run in runs if run.schedule is schedule), default=0),
        )
        for schedule in stage.schedules
    ]


def _is_out(stage: Stage, minute: int) -> bool:
    now = BEGIN + minute * MINUTE
    return any(outage.begin <= now < outage.end for outage in stage.outages)


def _due(
    stage: Stage, standing: dict[int, Schedule], schedule: Schedule, now: datetime
) -> tuple[Fire, ...]:
    plan = plan_fires(standing[schedule.id], now=now, zone=stage.zone)
    standing[schedule.id] = replace(schedule, counted_from=None, next_fire_time=plan.next_fire_time)
    return plan.fires


def _run(stage: Stage, schedule: Schedule, fire: Fire, minute: int) -> _Run:
    run_cost = stage.run_costs[schedule.process_definition_id]
    return _Run(
        schedule=schedule,
        order=(schedule.priority, fire.fire_time, schedule.id),
        put=minute,
        takes=run_cost.duration // MINUTE,
        slots=min(run_cost.peak.slots, stage.slots or run_cost.peak.slots),
    )


def _put(stage: Stage, runs: list[_Run], new: _Run, minute: int) -> None:
    others = [run for run in runs if run.outcome == "live" and _are_of_one_definition(run, new)]
    kind = stage.execution_type_of(new.schedule)
    if others and kind is ExecutionType.SERIAL_DISCARD:
        new.outcome = "discarded"
    elif others and kind is ExecutionType.SERIAL_PRIORITY:
        for run in others:
            run.outcome, run.ends = "stopped", minute
    elif others and kind is ExecutionType.SERIAL_WAIT:
        new.serial = True
    runs.append(new)


def _settle(stage: Stage, runs: Sequence[_Run], minute: int, overlaps: Counter[int]) -> None:
    """End every run that is over, then begin those that can, until nothing changes."""
    for run in runs:
        if run.goes_on and run.ends is not None and run.ends <= minute:
            run.outcome = "ended"
    live = [run for run in runs if run.outcome == "live"]
    for run in live:
        if run.serial and all(other.serial for other in live if _are_of_one_definition(other, run)):
            run.serial = False
    is_barred = False
    for run in sorted(live, key=lambda each: each.order):
        if run.serial or run.begun is not None:
            continue
        if run.slots and stage.slots is not None:
            used = sum(other.slots for other in runs if other.goes_on)
            # A run that does not fit keeps all behind it from beginning.
            is_barred = is_barred or used + run.slots > stage.slots
            if is_barred:
                continue
        run.begun = minute
        run.ends = minute + run.takes
        while _is_out(stage, run.ends):
            run.ends += 1
        overlaps[run.schedule.id] += any(
            other is not run and other.goes_on and _are_of_one_definition(other, run)
            for other in runs
        )
    if any(run.goes_on and run.ends == minute for run in runs):
        _settle(stage, runs, minute, overlaps)


def _are_of_one_definition(one: _Run, other: _Run) -> bool:
    return one.schedule.process_definition_id == other.schedule.process_definition_id


def _numbers(runs: Sequence[_Run]) -> list[int]:
    return [
        sum(run.outcome == "ended" or (run.goes_on and (run.ends or 0) < MINUTES) for run in runs),
        sum(run.goes_on and (run.ends or 0) >= MINUTES for run in runs),
        sum(run.outcome == "stopped" for run in runs),
        sum(run.outcome == "discarded" for run in runs),
        sum(run.outcome == "live" and run.begun is None for run in runs),
    ]


def _wait(run: _Run) -> int:
    if run.outcome == "discarded":
        return 0
    if run.begun is not None:
        return run.begun - run.put
    return (MINUTES if run.ends is None else run.ends) - run.put
