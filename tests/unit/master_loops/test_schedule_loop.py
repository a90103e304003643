"""The loop that fires schedules: misfires, zones and rests."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from common.model.schedules import FireOutcome, FirePlan, FirePlanner, MisfirePolicy, Schedule
from common.store.master.ports import Fired
from master.loops.schedule_loop import ScheduleConfig, ScheduleLoop
from tests.unit.master_loops.place import SECOND, Place


class Schedules:
    """Plans one schedule in every pass, and returns the test's answer."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plans: list[FirePlan] = []
        self.next_due: datetime | None = None

    def fire(self, *, planner: FirePlanner, now: datetime, limit: int) -> Fired:
        plan = planner(self.schedule)
        self.plans.append(plan)
        return Fired(commands=len(plan.fires), fires=len(plan.fires), next_due=self.next_due)


def a_schedule_loop(
    place: Place, *, crontab: str = "0 0 * * * ?", due: timedelta = timedelta()
) -> tuple[ScheduleLoop, Schedules]:
    """A loop in New York with a misfire threshold of ten seconds, and a schedule without a zone."""
    now = place.clock.now()
    store = Schedules(
        Schedule(
            id=1,
            process_definition_id=3,
            definition_name="flights",
            definition_is_online=True,
            crontab=crontab,
            timezone_id=None,
            missing_time="shift",
            repeated_time="first",
            start_time=now - timedelta(days=1),
            end_time=now + timedelta(days=2),
            misfire_policy=MisfirePolicy.SKIP,
            next_fire_time=now + due,
        )
    )
    loop = ScheduleLoop(
        store,
        identity=place.identity,
        clock=place.clock,
        zone=ZoneInfo("America/New_York"),
        config=ScheduleConfig(misfire_threshold=10 * SECOND),
    )
    return loop, store


@pytest.mark.parametrize(("late", "outcome"), [(10, FireOutcome.FIRED), (11, FireOutcome.SKIPPED)])
def test_what_is_a_misfire_is_said_by_the_configuration(
    place: Place, late: int, outcome: FireOutcome
) -> None:
    loop, store = a_schedule_loop(place, crontab="* * * * * ?")
    place.pass_by(late * SECOND)
    loop.run_once()
    assert store.plans[0].fires[0].outcome is outcome


def test_t46_a_schedule_without_a_zone_fires_by_the_clock_of_the_cluster(place: Place) -> None:
    loop, store = a_schedule_loop(place, crontab="0 0 3 * * ?", due=timedelta(days=-1))
    loop.run_once()
    fires = [
        fire.fire_time.astimezone(ZoneInfo("America/New_York")) for fire in store.plans[0].fires
    ]
    assert [fire.hour for fire in fires] == [3]


def test_after_fires_further_due_ones_are_checked_at_once_and_else_it_rests_until_then(
    place: Place,
) -> None:
    loop, store = a_schedule_loop(place, crontab="* * * * * ?")
    store.next_due = place.clock.now()
    assert loop.run_once() == timedelta()
    store.next_due = place.clock.now() + 2 * SECOND
    assert loop.run_once() == 2 * SECOND
    store.next_due = place.clock.now() + timedelta(days=1)
    assert loop.run_once() == ScheduleConfig().interval


def test_what_stays_due_that_another_master_works_on_is_not_asked_for_without_rest(
    place: Place,
) -> None:
    loop, store = a_schedule_loop(place, due=timedelta(hours=1))
    store.next_due = place.clock.now() - SECOND
    assert loop.run_once() == ScheduleConfig().breath


def test_t91_a_master_that_is_not_trusted_fires_nothing(place: Place) -> None:
    loop, store = a_schedule_loop(place)
    place.identity.become(None)
    loop.run_once()
    assert store.plans == []
