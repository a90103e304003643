"""The fires of a schedule that are due, and the outcome of each."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from common.firing import ScheduleFaultError, command_param, plan_fires, timetable_of
from common.model.schedules import Fire, FireOutcome, FirePlan, MisfirePolicy, Schedule
from common.model.states import ExecutionType

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURLY = "0 0 * * * ?"
ZONE = ZoneInfo("UTC")

FIRED, SKIPPED, COALESCED, MISSED = (
    FireOutcome.FIRED,
    FireOutcome.SKIPPED,
    FireOutcome.COALESCED,
    FireOutcome.MISSED,
)


def a_schedule(crontab: str = HOURLY, **columns: object) -> Schedule:
    return replace(
        Schedule(
            id=1,
            process_definition_id=3,
            definition_name="flights",
            definition_is_online=True,
            crontab=crontab,
            timezone_id=None,
            missing_time="shift",
            repeated_time="first",
            start_time=datetime(2020, 1, 1, tzinfo=UTC),
            end_time=datetime(2030, 1, 1, tzinfo=UTC),
            next_fire_time=NOON,
        ),
        **columns,  # type: ignore[arg-type]  # The names are checked when the test runs.
    )


def planned(schedule: Schedule, now: datetime, limit: int = 1000) -> FirePlan:
    return plan_fires(schedule, now=now, zone=ZONE, limit=limit)


def outcomes(schedule: Schedule, now: datetime) -> list[tuple[int, FireOutcome]]:
    """The hours of the fires, with their outcomes."""
    fires: tuple[Fire, ...] = planned(schedule, now).fires
    return [(fire.fire_time.hour, fire.outcome) for fire in fires]


def test_a_fire_due_this_second_happens_and_the_next_one_is_known() -> None:
    found = planned(a_schedule(), NOON)
    assert [(fire.fire_time, fire.outcome) for fire in found.fires] == [(NOON, FIRED)]
    assert found.next_fire_time == NOON + HOUR


def test_nothing_is_due_before_its_time() -> None:
    found = planned(a_schedule(), NOON - timedelta(microseconds=1))
    assert found.fires == ()
    assert found.next_fire_time == NOON


def test_fires_due_when_the_schedule_came_online_do_not_count() -> None:
    online = a_schedule(counted_from=NOON, next_fire_time=None)
    assert planned(online, NOON).fires == ()
    assert planned(online, NOON).next_fire_time == NOON + HOUR


def test_a_schedule_without_another_fire_is_over() -> None:
    found = planned(a_schedule(end_time=NOON + timedelta(minutes=59)), NOON)
    assert len(found.fires) == 1
    assert found.next_fire_time is None
    over = a_schedule(next_fire_time=None)
    assert planned(over, NOON) == FirePlan(command_param=command_param(over))


def test_t97_no_fire_lies_outside_a_window_that_has_become_narrower() -> None:
    assert planned(a_schedule(end_time=NOON - HOUR), NOON).fires == ()
    later = planned(a_schedule(start_time=NOON + 3 * HOUR), NOON + 2 * HOUR)
    assert (later.fires, later.next_fire_time) == ((), NOON + 3 * HOUR)
    # Nor is one announced that will not fire.
    assert planned(a_schedule(end_time=NOON - HOUR), NOON - HOUR).next_fire_time is None


def test_both_ends_of_the_window_fire() -> None:
    schedule = a_schedule(
        start_time=NOON, end_time=NOON + HOUR, counted_from=NOON - HOUR, next_fire_time=None
    )
    found = planned(schedule, NOON + HOUR)
    assert [fire.fire_time for fire in found.fires] == [NOON, NOON + HOUR]


@pytest.mark.parametrize(
    ("policy", "limit", "wanted"),
    [
        (MisfirePolicy.SKIP, 10, [SKIPPED, SKIPPED, SKIPPED, FIRED]),
        (MisfirePolicy.FIRE_ONCE, 10, [COALESCED, COALESCED, FIRED, FIRED]),
        (MisfirePolicy.FIRE_ALL, 10, [FIRED, FIRED, FIRED, FIRED]),
        (MisfirePolicy.FIRE_ALL, 2, [MISSED, FIRED, FIRED, FIRED]),
    ],
)
def test_t91_after_an_outage_each_misfire_is_noted_as_the_policy_says(
    policy: MisfirePolicy, limit: int, wanted: list[FireOutcome]
) -> None:
    schedule = a_schedule(misfire_policy=policy, misfire_limit=limit)
    # Due at 12, 13, 14, which are misfires by 15:00:30, and at 15.
    found = outcomes(schedule, NOON + 3 * HOUR + timedelta(seconds=30))
    assert found == list(zip([12, 13, 14, 15], wanted, strict=True))


def test_a_fire_that_is_a_minute_late_is_no_misfire() -> None:
    schedule = a_schedule(misfire_policy=MisfirePolicy.SKIP)
    minute = timedelta(seconds=60)
    assert outcomes(schedule, NOON + minute) == [(12, FIRED)]
    assert outcomes(schedule, NOON + minute + timedelta(microseconds=1)) == [(12, SKIPPED)]


def test_a_fire_later_than_the_deadline_is_missed_whatever_the_policy_says() -> None:
    schedule = a_schedule(misfire_policy=MisfirePolicy.FIRE_ALL, deadline=timedelta(minutes=90))
    found = outcomes(schedule, NOON + 2 * HOUR)
    assert found == [(12, MISSED), (13, FIRED), (14, FIRED)]


def test_a_fire_as_late_as_the_deadline_allows_happens() -> None:
    schedule = a_schedule(misfire_policy=MisfirePolicy.FIRE_ALL, deadline=2 * HOUR)
    found = outcomes(schedule, NOON + 2 * HOUR)
    assert found == [(12, FIRED), (13, FIRED), (14, FIRED)]


def test_a_deadline_below_the_threshold_counts_too() -> None:
    schedule = a_schedule(deadline=timedelta(seconds=5))
    assert outcomes(schedule, NOON + timedelta(seconds=6)) == [(12, MISSED)]


def test_fires_of_an_offline_definition_are_skipped_with_the_reason() -> None:
    found = planned(a_schedule(definition_is_online=False), NOON)
    assert [fire.outcome for fire in found.fires] == [SKIPPED]
    assert found.fires[0].reason == "process definition 'flights' was OFFLINE"
    gone = planned(a_schedule(definition_is_online=False, definition_name=None), NOON)
    assert gone.fires[0].reason == "its process definition is gone"


def test_more_fires_than_can_be_written_at_once_go_on_where_they_stopped() -> None:
    schedule = a_schedule(misfire_policy=MisfirePolicy.FIRE_ALL, misfire_limit=4)
    now = NOON + 9 * HOUR
    seen: list[tuple[datetime, FireOutcome]] = []
    while schedule.next_fire_time is not None and schedule.next_fire_time <= now:
        found = planned(schedule, now, limit=3)
        assert 1 <= len(found.fires) <= 3
        seen += [(fire.fire_time, fire.outcome) for fire in found.fires]
        schedule = replace(schedule, next_fire_time=found.next_fire_time)
    assert [moment for moment, _ in seen] == [NOON + n * HOUR for n in range(10)]
    assert [outcome for _, outcome in seen] == [MISSED] * 5 + [FIRED] * 5


def test_fires_are_those_of_the_schedule_s_own_zone() -> None:
    schedule = a_schedule(
        "0 30 0 * * ?",
        timezone_id="Asia/Tokyo",
        counted_from=datetime(2026, 3, 1, tzinfo=UTC),
        next_fire_time=None,
    )
    assert planned(schedule, NOON).fires[0].fire_time == datetime(2026, 3, 1, 15, 30, tzinfo=UTC)


def test_the_policies_of_the_row_decide_about_a_missing_hour() -> None:
    spring = a_schedule(
        "0 30 2 8 3 ?",
        timezone_id="America/New_York",
        counted_from=datetime(2026, 3, 7, tzinfo=UTC),
        next_fire_time=None,
    )
    assert planned(spring, NOON).next_fire_time == datetime(2026, 3, 8, 7, 30, tzinfo=UTC)
    skipped = planned(replace(spring, missing_time="skip"), NOON).next_fire_time
    assert skipped == datetime(2027, 3, 8, 7, 30, tzinfo=UTC)


@pytest.mark.parametrize(("policy", "hours"), [("first", [5]), ("second", [6]), ("both", [5, 6])])
def test_the_policies_of_the_row_decide_about_a_repeated_hour(
    policy: str, hours: list[int]
) -> None:
    autumn = a_schedule(
        "0 30 1 1 11 ?",
        timezone_id="America/New_York",
        repeated_time=policy,
        counted_from=datetime(2026, 10, 31, tzinfo=UTC),
        next_fire_time=None,
    )
    found = planned(autumn, datetime(2026, 11, 1, 12, tzinfo=UTC)).fires
    assert [fire.fire_time.hour for fire in found] == hours


@pytest.mark.parametrize(
    ("columns", "column"),
    [
        ({"crontab": "0 0 25 * * ?"}, "crontab"),
        ({"crontab": "0 0 0 31 2 ?"}, "crontab"),
        ({"timezone_id": "Mars/Olympus"}, "timezone_id"),
        ({"timezone_id": "../../etc/passwd"}, "timezone_id"),
        ({"missing_time": "hop"}, "hop"),
        ({"start_params": "{"}, "start_params"),
        ({"start_params": "[1]"}, "start_params"),
        ({"start_params": '{"a": {"b": 1}}'}, "start_params: the value of 'a'"),
        ({"timezone_id": "localtime"}, "timezone_id: 'localtime' is another zone"),
    ],
)
def test_a_row_that_can_t_be_understood_has_a_fault_that_names_the_column(
    columns: dict[str, object], column: str
) -> None:
    found = planned(a_schedule(**columns), NOON)
    assert found.fires == ()
    assert column in str(found.fault)
    assert found.next_fire_time is None


def test_a_timetable_that_can_t_be_made_says_why() -> None:
    with pytest.raises(ScheduleFaultError, match=r"crontab: .*seconds"):
        timetable_of(a_schedule("61 * * * * ?"), zone=ZONE)


def test_a_fired_command_carries_the_zone_the_parameters_the_environment_and_the_execution_type() -> (
    None
):
    schedule = a_schedule(
        timezone_id="Europe/Berlin",
        start_params='{"rate": 1.10, "city": "Köln"}',
        execution_type=ExecutionType.SERIAL_WAIT,
        environment_code=2**40,
    )
    assert json.loads(command_param(schedule)) == {
        "schedule_timezone": "Europe/Berlin",
        "executionType": "SERIAL_WAIT",
        "environmentCode": str(2**40),
        "StartParams": {"rate": "1.10", "city": "Köln"},
    }
    assert json.loads(command_param(a_schedule())) == {}
