"""Simulations of small sets of schedules, with timelines computed by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.firing import plan_fires
from common.model.schedules import FireOutcome, MisfirePolicy, Schedule
from common.model.states import ExecutionType, Priority
from common.schedule_simulator import (
    ClockChange,
    ClockChangeKind,
    Outage,
    Peak,
    ProblemKind,
    RunCost,
    ScheduleReport,
    Simulation,
    Stage,
    TooManyFiresError,
    peak_of,
    run_cost_of,
    simulate,
)
from tests.builders import a_definition_json, read_graph

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
HOURLY = "0 0 * * * ?"
DAILY = "0 30 2 * * ?"
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = "America/New_York"


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def a_schedule(crontab: str = HOURLY, *, number: int = 1, **changes: Any) -> Schedule:
    """An ONLINE schedule of the definition with the same number; its next fire is not computed."""
    return replace(
        Schedule(
            id=number,
            process_definition_id=number,
            definition_name=f"definition{number}",
            definition_is_online=True,
            crontab=crontab,
            timezone_id="UTC",
            missing_time="shift",
            repeated_time="first",
            start_time=datetime(2020, 1, 1, tzinfo=UTC),
            end_time=datetime(9999, 1, 1, tzinfo=UTC),
            counted_from=BEGIN - timedelta(microseconds=1),
        ),
        **changes,
    )


def a_stage(*schedules: Schedule, takes: float = 10, slots: int = 1, **changes: Any) -> Stage:
    """A day from `BEGIN` on in which every run takes this many minutes and slots."""
    run_cost = RunCost(duration=minutes(takes), peak=Peak(slots=slots), runs=1)
    chosen = schedules or (a_schedule(),)
    return replace(
        Stage(
            schedules=chosen,
            run_costs={each.process_definition_id: run_cost for each in chosen},
            begin=BEGIN,
            end=BEGIN + timedelta(days=1),
            zone=ZoneInfo("UTC"),
        ),
        **changes,
    )


def only(result: Simulation) -> ScheduleReport:
    (report,) = result.schedules
    return report


def kinds(result: Simulation) -> list[ProblemKind]:
    return [problem.kind for problem in result.problems]


def test_an_hourly_schedule_of_short_runs_is_no_problem() -> None:
    result = simulate(a_stage())
    report = only(result)
    assert (report.fires, report.runs, report.ended, report.going_on) == (24, 24, 24, 0)
    assert (report.overlaps, report.waited, report.most_at_once) == (0, 0, 1)
    assert result.problems == ()
    assert result.cluster.peak == 1
    assert result.cluster.busiest_hour == BEGIN
    assert result.cluster.busiest_slots == pytest.approx(1 / 6)


def test_the_end_of_the_stage_is_not_in_it() -> None:
    assert only(simulate(a_stage(end=BEGIN + hours(1)))).fires == 1
    assert only(simulate(a_stage(end=BEGIN + hours(1) + minutes(5)))).going_on == 1


def test_long_parallel_runs_overlap() -> None:
    # Of 150 minutes each, begun every 60: at 2:00 the first two still go on.
    result = simulate(a_stage(takes=150))
    report = only(result)
    assert (report.overlaps, report.most_at_once) == (23, 3)
    assert (report.ended, report.going_on) == (22, 2)
    assert kinds(result) == [ProblemKind.OVERLAP]


def test_a_run_that_ends_as_the_next_begins_does_not_overlap_it() -> None:
    report = only(simulate(a_stage(a_schedule(execution_type=ExecutionType.SERIAL_WAIT), takes=60)))
    assert (report.overlaps, report.waited, report.most_at_once) == (0, 0, 1)


def test_serial_runs_that_take_longer_than_their_interval_never_catch_up() -> None:
    result = simulate(a_stage(a_schedule(execution_type=ExecutionType.SERIAL_WAIT), takes=90))
    report = only(result)
    # The n-th begins 90·n minutes after the first: 16 begin in 24 hours, and all but the first wait.
    assert (report.ended + report.going_on, report.waiting, report.overlaps) == (16, 8, 0)
    assert report.waited == 23
    # The 16th fire, at 15:00, begins at 22:30; the 17th still waits at the end, for 8 hours.
    assert report.longest_wait == hours(8)
    assert report.backlog_grows
    assert result.cluster.backlog == 8
    assert kinds(result)[:2] == [ProblemKind.NEVER_CATCHES_UP] * 2
    assert "never catches up" in result.problems[0].text


def test_a_crowd_that_passes_is_not_one_that_grows() -> None:
    # Every 5 minutes from 0:00 to 0:55, 12 runs of 30 minutes: six hours of work in one slot.
    schedule = a_schedule("0 0/5 0 * * ?", execution_type=ExecutionType.SERIAL_WAIT)
    result = simulate(a_stage(schedule, takes=30))
    assert (only(result).ended, result.cluster.backlog, result.cluster.most_backlog) == (12, 0, 10)
    assert not result.cluster.backlog_grows
    assert not only(result).backlog_grows
    # The last fire, at 0:55, begins after eleven others: at 5:30.
    assert only(result).longest_wait == minutes(275)
    # Sorted, the waits are 0, 25, … 275 minutes; of the two in the middle, the lower.
    assert only(result).median_wait == minutes(125)


def test_serial_runs_are_discarded_while_another_is_live() -> None:
    result = simulate(a_stage(a_schedule(execution_type=ExecutionType.SERIAL_DISCARD), takes=90))
    report = only(result)
    # At 0:00, 2:00, 4:00 …, since that of an hour before still goes on at the others.
    assert (report.ended, report.discarded, report.fires) == (12, 12, 24)
    assert kinds(result) == [ProblemKind.DISCARDED]


def test_a_run_with_priority_stops_the_former() -> None:
    result = simulate(a_stage(a_schedule(execution_type=ExecutionType.SERIAL_PRIORITY), takes=90))
    report = only(result)
    assert (report.stopped, report.ended, report.going_on) == (23, 0, 1)
    assert (report.overlaps, report.waited, result.cluster.peak) == (0, 0, 1)
    assert kinds(result) == [ProblemKind.STOPPED]


def test_a_run_stopped_while_it_waits_makes_room_in_its_line() -> None:
    # One slot, which the first has for five hours. The second waits in vain, is replaced hour after
    # hour, and the third waits behind it.
    stage = a_stage(
        a_schedule("0 0 0 * * ?", number=1),
        a_schedule(number=2, execution_type=ExecutionType.SERIAL_PRIORITY, priority=Priority.HIGH),
        a_schedule("0 30 0 * * ?", number=3),
        slots=1,
        takes=10,
    )
    run_costs = dict(stage.run_costs) | {1: RunCost(duration=hours(5) + minutes(1), runs=1)}
    result = simulate(replace(stage, slots=1, run_costs=run_costs))
    first, second, third = result.schedules
    # Of equal fire times, the one of higher priority begins: it takes the slot until 0:10.
    assert (first.longest_wait, second.stopped) == (minutes(10), 4)
    # Those of 1:00 to 5:00 wait for 5:11; each is stopped by the next but the last.
    assert second.longest_wait == hours(1)
    # It is behind the one of 5:00 in line: that takes the slot from 5:11 to 5:21.
    assert third.longest_wait == hours(4) + minutes(51)
    assert second.fires == second.ended + second.stopped


def test_who_stood_behind_a_run_that_is_stopped_begins_if_it_fits() -> None:
    stage = a_stage(
        a_schedule("0 0 0 * * ?", number=1),
        a_schedule("0 0 1,2 * * ?", number=2, execution_type=ExecutionType.SERIAL_PRIORITY),
        a_schedule("0 30 1 * * ?", number=3),
    )
    run_costs = {
        1: RunCost(duration=hours(5), runs=1),
        2: RunCost(duration=minutes(10), peak=Peak(slots=2), runs=1),
        3: RunCost(duration=minutes(10), runs=1),
    }
    result = simulate(replace(stage, slots=2, run_costs=run_costs))
    # The one of 1:00 lacks a slot and bars the third, until that of 2:00 takes its place behind.
    assert result.schedules[1].stopped == 1
    assert result.schedules[2].longest_wait == minutes(30)


def test_the_schedule_s_own_execution_type_goes_before_the_definition_s() -> None:
    serial = {1: ExecutionType.SERIAL_DISCARD}
    assert only(simulate(a_stage(takes=90, execution_types=serial))).discarded == 12
    own = a_schedule(execution_type=ExecutionType.PARALLEL)
    assert only(simulate(a_stage(own, takes=90, execution_types=serial))).discarded == 0


def test_two_schedules_of_one_definition_compete() -> None:
    first = a_schedule(number=1)
    second = replace(a_schedule("0 30 * * * ?", number=2), process_definition_id=1)
    serial = {1: ExecutionType.SERIAL_WAIT}
    result = simulate(a_stage(first, second, takes=40, execution_types=serial))
    assert result.cluster.peak == 1
    assert [report.overlaps for report in result.schedules] == [0, 0]
    assert result.cluster.backlog_grows
    parallel = simulate(a_stage(first, second, takes=40))
    # Each but the first begins while the one half an hour before goes on.
    assert [report.overlaps for report in parallel.schedules] == [23, 24]


def test_a_serial_run_waits_for_every_parallel_one_of_its_definition() -> None:
    parallel = a_schedule("0 0,30 0 * * ?", number=1)
    serial = a_schedule("0 40 0 * * ?", number=2, execution_type=ExecutionType.SERIAL_WAIT)
    result = simulate(a_stage(parallel, replace(serial, process_definition_id=1), takes=60))
    # One ends at 1:00, the other at 1:30: only then nobody else is live.
    assert [report.longest_wait for report in result.schedules] == [minutes(0), minutes(50)]


def test_runs_that_do_not_fit_wait_by_priority_and_then_by_fire_time() -> None:
    at_zero = "0 0 0 * * ?"
    stage = a_stage(
        a_schedule(at_zero, number=1, priority=Priority.LOW),
        a_schedule("0 5 0 * * ?", number=2, priority=Priority.MEDIUM),
        a_schedule("0 4 0 * * ?", number=3, priority=Priority.MEDIUM),
        a_schedule("0 6 0 * * ?", number=4, priority=Priority.HIGHEST),
        takes=10,
    )
    result = simulate(replace(stage, slots=1))
    # 1 from 0:00, then 4 from 0:10, 3 from 0:20, 2 from 0:30.
    assert [report.longest_wait for report in result.schedules] == [
        minutes(0),
        minutes(25),
        minutes(16),
        minutes(4),
    ]
    assert result.cluster.peak_wanted == 4
    assert result.cluster.most_backlog == 3


def test_a_big_run_is_not_passed_by_small_ones_behind_it() -> None:
    stage = a_stage(
        a_schedule("0 0 0 * * ?", number=1),
        a_schedule("0 1 0 * * ?", number=2),
        a_schedule("0 2 0 * * ?", number=3),
    )
    run_costs = {
        number: RunCost(duration=minutes(10), peak=Peak(slots=size), runs=1)
        for number, size in ((1, 1), (2, 3), (3, 1))
    }
    result = simulate(replace(stage, slots=3, run_costs=run_costs))
    # The second needs all three slots, from 0:10 on; the third, which would fit, goes after it.
    assert [report.longest_wait for report in result.schedules] == [
        minutes(0),
        minutes(9),
        minutes(18),
    ]


def test_a_run_that_waits_for_a_pool_is_in_nobody_s_way_on_the_workers() -> None:
    stage = a_stage(*(a_schedule(f"0 {number} 0 * * ?", number=number) for number in (1, 2, 3)))
    in_pool = RunCost(duration=minutes(10), peak=Peak(slots=1, pools={"db": 2}), runs=1)
    run_costs = {1: in_pool, 2: in_pool, 3: RunCost(duration=minutes(10), runs=1)}
    result = simulate(replace(stage, slots=2, run_costs=run_costs, pools={"db": 3}))
    assert [report.longest_wait for report in result.schedules] == [
        minutes(0),
        minutes(9),
        minutes(0),
    ]
    (pool,) = result.cluster.pools
    assert (pool.name, pool.size, pool.peak) == ("db", 3, 2)


def test_a_run_bigger_than_the_cluster_gets_all_of_it_and_is_a_problem() -> None:
    result = simulate(replace(a_stage(slots=5), slots=3))
    assert (result.cluster.peak, only(result).ended) == (3, 24)
    assert kinds(result) == [ProblemKind.TOO_BIG]


@pytest.mark.parametrize(
    ("policy", "fired", "left_out"),
    [
        (MisfirePolicy.SKIP, 1, {FireOutcome.SKIPPED: 3}),
        (MisfirePolicy.FIRE_ONCE, 2, {FireOutcome.COALESCED: 2}),
        (MisfirePolicy.FIRE_ALL, 3, {FireOutcome.MISSED: 1}),
    ],
)
def test_after_an_outage_the_misfire_policy_decides(
    policy: MisfirePolicy, fired: int, left_out: dict[FireOutcome, int]
) -> None:
    # From 2:59 to 6:00: those of 3:00, 4:00 and 5:00 are misfires, that of 6:00 is in time.
    schedule = a_schedule(misfire_policy=policy, misfire_limit=2)
    outage = Outage(begin=BEGIN + minutes(179), end=BEGIN + hours(6))
    result = simulate(a_stage(schedule, outages=(outage,)))
    report = only(result)
    assert report.fires == 24
    assert report.outcomes[FireOutcome.FIRED] == 20 + fired
    assert {outcome: n for outcome, n in report.outcomes.items() if n and outcome != "fired"} == (
        left_out
    )
    assert report.late == fired - 1
    assert kinds(result)[0] is ProblemKind.LEFT_OUT


def test_after_an_outage_the_deadline_decides_too() -> None:
    schedule = a_schedule(
        misfire_policy=MisfirePolicy.FIRE_ALL, deadline=hours(1), execution_type=None
    )
    outage = Outage(begin=BEGIN + minutes(150), end=BEGIN + minutes(330))
    report = only(simulate(a_stage(schedule, outages=(outage,))))
    # At 5:30 that of 5:00 is half an hour late; those of 3:00 and 4:00 are later than an hour.
    assert report.outcomes[FireOutcome.MISSED] == 2
    assert report.late == 1


def test_a_run_that_would_end_in_an_outage_ends_after_it() -> None:
    outage = Outage(begin=BEGIN + minutes(5), end=BEGIN + minutes(50))
    quick = simulate(a_stage(takes=10, outages=(outage,), end=BEGIN + hours(1)))
    assert quick.cluster.busiest_slots == pytest.approx(50 / 60)
    long = simulate(a_stage(takes=55, outages=(outage,), end=BEGIN + hours(1)))
    assert long.cluster.busiest_slots == pytest.approx(55 / 60)


def test_outages_that_touch_are_one() -> None:
    parts = [(150, 200), (190, 250), (250, 330), (160, 170)]
    outages = tuple(
        Outage(begin=BEGIN + minutes(begin), end=BEGIN + minutes(end)) for begin, end in parts
    )
    whole = (Outage(begin=BEGIN + minutes(150), end=BEGIN + minutes(330)),)
    assert simulate(a_stage(outages=outages)) == simulate(a_stage(outages=whole))


def test_fires_of_an_outage_without_end_are_undecided() -> None:
    outage = Outage(begin=BEGIN + minutes(1410), end=BEGIN + timedelta(days=3))
    stage = a_stage(a_schedule("0 0/15 * * * ?"), outages=(outage,))
    report = only(simulate(stage))
    # 23:30 itself and 23:45: nothing runs from the first instant of an outage on.
    assert (report.fires, report.undecided, report.runs) == (96, 2, 94)
    assert kinds(simulate(stage)) == [ProblemKind.UNDECIDED]
    all_day = Outage(begin=BEGIN - hours(1), end=BEGIN + timedelta(days=1))
    assert only(simulate(a_stage(outages=(all_day,)))).undecided == 24


def test_overdue_fires_are_planned_at_the_beginning() -> None:
    schedule = a_schedule(
        counted_from=None,
        next_fire_time=BEGIN - hours(3),
        misfire_policy=MisfirePolicy.FIRE_ONCE,
    )
    report = only(simulate(a_stage(schedule, end=BEGIN + hours(1))))
    # Three hours overdue, of which one happens; and that of the very beginning, which is in time.
    assert report.outcomes[FireOutcome.COALESCED] == 2
    assert (report.runs, report.late) == (2, 1)


@pytest.mark.parametrize("crontab", [HOURLY, DAILY, "0 0/7 1-3 * * ?"])
@pytest.mark.parametrize("repeated", ["first", "second", "both"])
def test_it_fires_as_a_master_that_looks_at_every_fire(crontab: str, repeated: str) -> None:
    begin = datetime(2026, 3, 25, tzinfo=UTC)
    schedule = a_schedule(
        crontab,
        timezone_id="Europe/Berlin",
        repeated_time=repeated,
        misfire_policy=MisfirePolicy.FIRE_ALL,
        deadline=minutes(1),
        counted_from=begin - timedelta(microseconds=1),
    )
    looked_at: list[datetime] = []
    now = begin - minutes(1)
    standing: Schedule = schedule
    while now < begin + timedelta(days=8):
        plan = plan_fires(standing, now=now, zone=BERLIN)
        assert all(fire.outcome is FireOutcome.FIRED for fire in plan.fires)
        looked_at += [fire.fire_time for fire in plan.fires]
        assert plan.next_fire_time is not None
        now = plan.next_fire_time
        standing = replace(schedule, counted_from=None, next_fire_time=now)
    stage = a_stage(schedule, begin=begin, end=begin + timedelta(days=8))
    assert only(simulate(stage)).runs == len(looked_at)


def test_dates_on_which_the_clock_changes_are_reported() -> None:
    def changes_of(crontab: str, begin: datetime, **changes: Any) -> tuple[ClockChange, ...]:
        counted = begin - timedelta(microseconds=1)
        schedule = a_schedule(crontab, timezone_id=NEW_YORK, counted_from=counted, **changes)
        stage = a_stage(schedule, begin=begin, end=begin + timedelta(days=30))
        return only(simulate(stage)).clock_changes

    spring, autumn = datetime(2026, 2, 20, tzinfo=UTC), datetime(2026, 10, 20, tzinfo=UTC)
    march, november = date(2026, 3, 8), date(2026, 11, 1)
    shifted = ClockChange(kind=ClockChangeKind.SHIFTED, day=march, fires=1)
    assert changes_of(DAILY, spring) == (shifted,)
    assert changes_of(DAILY, spring, missing_time="skip") == (
        ClockChange(kind=ClockChangeKind.SKIPPED, day=march, fires=1),
    )
    # Those of the missing hour move to the times of the next one: nothing is odd.
    assert changes_of("0 0/15 * * * ?", spring) == ()
    at_half_past_one = "0 30 1 * * ?"
    assert changes_of(at_half_past_one, autumn) == (
        ClockChange(kind=ClockChangeKind.ONCE, day=november, fires=1),
    )
    assert changes_of(at_half_past_one, autumn, repeated_time="both") == (
        ClockChange(kind=ClockChangeKind.DOUBLED, day=november, fires=1),
    )
    assert changes_of("0 0/15 * * * ?", autumn) == (
        ClockChange(kind=ClockChangeKind.ONCE, day=november, fires=4),
    )
    assert changes_of(DAILY, autumn) == ()
    assert changes_of(DAILY, spring, end_time=datetime(2026, 3, 1, tzinfo=UTC)) == ()


def test_a_definition_that_is_offline_runs_nothing_and_is_reported() -> None:
    result = simulate(a_stage(a_schedule(definition_is_online=False)))
    assert only(result).outcomes[FireOutcome.SKIPPED] == 24
    assert only(result).runs == 0
    assert kinds(result) == [ProblemKind.LEFT_OUT]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"crontab": "0 0 25 * * ?"}, "crontab"),
        ({"timezone_id": "Europe/Atlantis"}, "Atlantis"),
        ({"start_params": "[1"}, "start_params"),
    ],
)
def test_a_schedule_that_cannot_be_understood_is_reported_and_harms_no_other(
    changes: dict[str, Any], words: str
) -> None:
    result = simulate(a_stage(a_schedule(number=1, **changes), a_schedule(number=2)))
    bad, good = result.schedules
    assert (bad.fires, good.fires) == (0, 24)
    assert bad.fault is not None
    assert words in bad.fault
    assert kinds(result) == [ProblemKind.FAULT]


def test_a_fault_that_is_known_already_keeps_a_schedule_from_firing() -> None:
    result = simulate(a_stage(faults={1: "it was too long"}))
    assert (only(result).fires, only(result).fault) == (0, "it was too long")


def test_a_schedule_that_fires_too_often_is_refused_by_name() -> None:
    every_second = a_schedule("* * * * * ?", number=7)
    stage = a_stage(a_schedule(), every_second, max_fires=5000, end=BEGIN + timedelta(days=30))
    with pytest.raises(TooManyFiresError, match=r"5,000 fires .* schedule 7 .*--max-fires"):
        simulate(stage)
    long_gone = Outage(begin=BEGIN - hours(1), end=BEGIN + timedelta(days=60))
    with pytest.raises(TooManyFiresError, match="schedule 7"):
        simulate(replace(stage, outages=(long_gone,)))


def test_as_many_fires_as_allowed_are_allowed() -> None:
    assert only(simulate(a_stage(max_fires=24))).fires == 24
    with pytest.raises(TooManyFiresError):
        simulate(a_stage(max_fires=23))


def test_the_cost_of_a_run_is_the_median_or_the_longest_of_the_past() -> None:
    durations = tuple(minutes(number) for number in (1, 9, 2, 3))
    peaks = (Peak(slots=1, pools={"db": 3}), Peak(slots=4), Peak(slots=2))
    assumed = RunCost(duration=minutes(60), peak=Peak(slots=8))
    assert run_cost_of(durations, peaks, pessimistic=False, assumed=assumed) == RunCost(
        duration=minutes(3), peak=Peak(slots=2, pools={"db": 0}), runs=4
    )
    assert run_cost_of(durations, peaks, pessimistic=True, assumed=assumed) == RunCost(
        duration=minutes(9), peak=Peak(slots=4, pools={"db": 3}), runs=4
    )
    unknown = run_cost_of((), (), pessimistic=True, assumed=assumed)
    assert unknown == assumed
    assert unknown.is_assumed


def test_the_peak_of_a_definition_that_never_ran_is_its_widest_level() -> None:
    pool = {"taskGroups": [{"name": "db", "slots": 2}]}
    text = a_definition_json("a >> b c d >> e", b=pool, c=pool, d={"runFlag": "FORBIDDEN"})
    assert peak_of(read_graph(text)) == Peak(slots=2, pools={"db": 4})
