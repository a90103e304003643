"""Firing schedules: each fire once in the ledger, together with its command and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.plans import Drop, Reject
from common.model.schedules import (
    Fire,
    FireOutcome,
    FirePlan,
    FirePlanner,
    MisfirePolicy,
    Schedule,
)
from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType
from common.store import tables as t
from common.store.listen import Channel
from common.store.master.ports import Fired, FirstStep
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MINUTE,
    REFUSED,
    Tables,
    a_begin,
    a_definition,
    always,
    by_id,
    has,
    take,
    the_row,
)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
YEAR = timedelta(days=365)


def a_schedule(db: Tables, **columns: Any) -> int:
    """An ONLINE schedule whose next fire has yet to be computed."""
    values = {
        "crontab": "0 0 * * * ?",
        "release_state": 1,
        "start_time": NOON - DAY,
        "end_time": NOON + YEAR,
        "counted_from": NOON - HOUR,
        **columns,
    }
    if "process_definition_id" not in values:
        values["process_definition_id"] = a_definition(db)
    return db.insert(t.schedule, **values)


def due(db: Tables, at: datetime | None = NOON, **columns: Any) -> int:
    """An ONLINE schedule whose next fire is at a known time."""
    return a_schedule(db, counted_from=None, next_fire_time=at, **columns)


def fired(at: datetime = NOON) -> Fire:
    return Fire(fire_time=at, outcome=FireOutcome.FIRED)


def left_out(at: datetime, outcome: FireOutcome, reason: str = "so it is") -> Fire:
    return Fire(fire_time=at, outcome=outcome, reason=reason)


def plan(*fires: Fire, then: datetime | None = LATER, param: str = "{}") -> FirePlan:
    return FirePlan(fires=fires, next_fire_time=then, command_param=param)


def every(found: FirePlan) -> FirePlanner:
    return lambda _schedule: found


def fire(db: Tables, planner: FirePlanner, *, now: datetime = NOON, limit: int = 100) -> Fired:
    return db.schedules.fire(planner=planner, now=now, limit=limit)


def due_schedules(db: Tables, *, now: datetime = NOON, limit: int = 100) -> list[Schedule]:
    """The schedules that are due, in planning order; they stay due."""
    seen: list[Schedule] = []

    def planner(schedule: Schedule) -> FirePlan:
        seen.append(schedule)
        return plan(then=schedule.next_fire_time or schedule.counted_from)

    fire(db, planner, now=now, limit=limit)
    return seen


def the_schedule(db: Tables, schedule_id: int) -> dict[str, Any]:
    return the_row(db, t.schedule, schedule_id)


# Due schedules


def test_a_planner_is_given_all_that_decides_about_a_fire(db: Tables) -> None:
    definition_id = a_definition(db, name="flights")
    schedule_id = a_schedule(
        db,
        process_definition_id=definition_id,
        crontab="0 0 3 * * ? *",
        timezone_id="America/New_York",
        missing_time="skip",
        repeated_time="both",
        misfire_policy="fire_all",
        misfire_limit=7,
        deadline=90,
        execution_type=2,
        start_params='{"day": "1"}',
        failure_strategy=0,
        user_id=3,
        warning_type=2,
        warning_group_id=4,
        process_instance_priority=1,
        worker_group_id=5,
        environment_code=2**40,
    )
    assert due_schedules(db) == [
        Schedule(
            id=schedule_id,
            process_definition_id=definition_id,
            definition_name="flights",
            definition_is_online=True,
            crontab="0 0 3 * * ? *",
            timezone_id="America/New_York",
            missing_time="skip",
            repeated_time="both",
            start_time=NOON - DAY,
            end_time=NOON + YEAR,
            misfire_policy=MisfirePolicy.FIRE_ALL,
            misfire_limit=7,
            deadline=timedelta(seconds=90),
            execution_type=ExecutionType.SERIAL_DISCARD,
            start_params='{"day": "1"}',
            failure_strategy=FailureStrategy.END,
            user_id=3,
            warning_type=WarningType.FAILURE,
            warning_group_id=4,
            priority=Priority.HIGH,
            worker_group_id=5,
            environment_code=2**40,
            counted_from=NOON - HOUR,
            next_fire_time=None,
        )
    ]


def test_what_a_schedule_does_not_say_is_left_to_the_cluster_and_the_definition(db: Tables) -> None:
    due(db)
    (schedule,) = due_schedules(db)
    assert (schedule.timezone_id, schedule.execution_type, schedule.start_params) == (None,) * 3
    assert schedule.deadline is None
    assert schedule.misfire_policy is MisfirePolicy.FIRE_ONCE
    assert (schedule.missing_time, schedule.repeated_time) == ("shift", "first")
    assert (schedule.counted_from, schedule.next_fire_time) == (None, NOON)


@pytest.mark.parametrize(
    ("columns", "is_online"),
    [
        ({"release_state": 1, "flag": 1}, True),
        ({"release_state": 0, "flag": 1}, False),
        ({"release_state": 1, "flag": 0}, False),
    ],
)
def test_t97_the_release_state_of_the_definition_is_looked_at_when_firing(
    db: Tables, columns: dict[str, int], is_online: bool
) -> None:
    due(db, process_definition_id=a_definition(db, **columns))
    (schedule,) = due_schedules(db)
    assert schedule.definition_is_online is is_online


def test_a_schedule_of_a_definition_that_is_gone_is_looked_at_all_the_same(db: Tables) -> None:
    due(db, process_definition_id=2_000_000_000)
    (schedule,) = due_schedules(db)
    assert (schedule.definition_name, schedule.definition_is_online) == (None, False)


def test_only_online_schedules_that_are_due_and_have_no_fault_are_looked_at(db: Tables) -> None:
    to_be_counted, at_the_minute = a_schedule(db), due(db)
    due(db, at=NOON + timedelta(microseconds=1))
    due(db, release_state=0)
    due(db, fault="crontab: nonsense")
    a_schedule(db, release_state=0)
    a_schedule(db, fault="crontab: nonsense")
    due(db, at=None)
    assert sorted(schedule.id for schedule in due_schedules(db)) == [to_be_counted, at_the_minute]


def test_what_is_due_longest_comes_first_and_no_more_than_the_limit(db: Tables) -> None:
    newest = due(db, at=NOON)
    twins = [due(db, at=NOON - MINUTE) for _ in range(2)]
    counted = a_schedule(db, counted_from=NOON - 2 * MINUTE)
    oldest = due(db, at=NOON - HOUR)
    order = [oldest, counted, *twins, newest]
    assert [schedule.id for schedule in due_schedules(db)] == order
    assert [schedule.id for schedule in due_schedules(db, limit=2)] == order[:2]
    assert due_schedules(db, limit=0) == []


# The rows of a fire


def test_a_fire_that_happens_stands_in_the_ledger_with_its_command(db: Tables) -> None:
    schedule_id = due(
        db,
        user_id=3,
        failure_strategy=0,
        warning_type=2,
        warning_group_id=4,
        process_instance_priority=1,
        worker_group_id=5,
    )
    param = json.dumps({"schedule_timezone": "Asia/Tokyo"})
    answer = fire(db, every(plan(fired(), param=param)), now=NOON + MINUTE)
    assert (answer.commands, answer.fires) == (1, 1)
    definition_id = the_schedule(db, schedule_id)["process_definition_id"]
    (command,) = db.rows(t.command)
    assert has(
        command,
        command_type=CommandType.SCHEDULER,
        process_definition_id=definition_id,
        command_param=param,
        task_depend_type=2,
        failure_strategy=0,
        warning_type=2,
        warning_group_id=4,
        schedule_time=NOON,
        start_time=NOON + MINUTE,
        update_time=NOON + MINUTE,
        executor_id=3,
        process_instance_priority=1,
        worker_group_id=5,
        parent_task_instance_id=0,
        complement_date_id=0,
    )
    (row,) = db.rows(t.schedule_fire)
    assert has(
        row,
        schedule_id=schedule_id,
        fire_time=NOON,
        outcome="fired",
        process_definition_id=definition_id,
        command_id=command["id"],
        process_instance_id=0,
        reason=None,
        create_time=NOON + MINUTE,
    )


@pytest.mark.parametrize(
    "outcome", [FireOutcome.SKIPPED, FireOutcome.COALESCED, FireOutcome.MISSED]
)
def test_a_fire_that_does_not_happen_stands_in_the_ledger_and_puts_no_command(
    db: Tables, outcome: FireOutcome
) -> None:
    due(db)
    answer = fire(db, every(plan(left_out(NOON, outcome, "a misfire"))))
    assert (answer.commands, answer.fires) == (0, 1)
    assert db.rows(t.command) == []
    (row,) = db.rows(t.schedule_fire)
    assert has(row, outcome=outcome.value, reason="a misfire", command_id=0)


def test_many_fires_of_many_schedules_are_one_transaction_with_a_command_for_each(
    db: Tables,
) -> None:
    ids = [due(db, at=NOON - HOUR) for _ in range(20)]
    times = [NOON - HOUR + number * MINUTE for number in range(5)]
    fires = [left_out(times[0], FireOutcome.COALESCED), *map(fired, times[1:])]
    answer = fire(db, every(plan(*fires)))
    assert (answer.commands, answer.fires) == (80, 100)
    commands = {row["id"]: row for row in db.rows(t.command)}
    ledger = db.rows(t.schedule_fire)
    assert sorted((row["schedule_id"], row["fire_time"]) for row in ledger) == [
        (schedule_id, at) for schedule_id in ids for at in times
    ]
    happened = [row for row in ledger if row["outcome"] == "fired"]
    assert sorted(row["command_id"] for row in happened) == sorted(commands)
    for row in happened:
        command = commands[row["command_id"]]
        assert has(
            command,
            schedule_time=row["fire_time"],
            process_definition_id=row["process_definition_id"],
        )


def test_a_fire_that_the_ledger_has_already_is_left_as_it_is_and_puts_no_command(
    db: Tables,
) -> None:
    schedule_id = due(db)
    other = due(db)
    fire(db, every(plan(left_out(NOON, FireOutcome.SKIPPED, "it was OFFLINE"), then=NOON)))
    answer = fire(db, every(plan(fired(), fired(LATER), then=None)), now=LATER)
    assert (answer.commands, answer.fires) == (2, 2)
    ledger = {(row["schedule_id"], row["fire_time"]): row for row in db.rows(t.schedule_fire)}
    assert len(ledger) == 4
    for each in (schedule_id, other):
        assert has(ledger[each, NOON], outcome="skipped", reason="it was OFFLINE", command_id=0)
        assert ledger[each, LATER]["outcome"] == "fired"
    assert {row["schedule_time"] for row in db.rows(t.command)} == {LATER}


def test_the_same_fire_of_two_schedules_is_two_fires(db: Tables) -> None:
    due(db)
    due(db)
    assert fire(db, every(plan(fired()))).commands == 2


def test_the_ledger_itself_refuses_a_fire_for_the_second_time(db: Tables) -> None:
    row = {"schedule_id": 7, "fire_time": NOON, "outcome": "fired", "process_definition_id": 1}
    db.insert(t.schedule_fire, **row)
    with pytest.raises(REFUSED):
        db.insert(t.schedule_fire, **row)


# The schedule after its fires


def test_a_schedule_moves_on_to_its_next_fire(db: Tables) -> None:
    counted, known, last = a_schedule(db), due(db), due(db)
    plans = {counted: plan(then=LATER), known: plan(fired(), then=LATER), last: plan(then=None)}
    fire(db, lambda schedule: plans[schedule.id])
    assert has(the_schedule(db, counted), counted_from=None, next_fire_time=LATER, fault=None)
    assert has(the_schedule(db, known), counted_from=None, next_fire_time=LATER, fault=None)
    assert has(the_schedule(db, last), counted_from=None, next_fire_time=None, fault=None)
    assert [schedule.id for schedule in due_schedules(db, now=LATER)] == [counted, known]


def test_more_fires_than_one_time_takes_leave_the_schedule_due(db: Tables) -> None:
    schedule_id = due(db, at=NOON - HOUR)
    answer = fire(db, every(plan(fired(NOON - HOUR), then=NOON - MINUTE)))
    assert answer.next_due == NOON - MINUTE
    assert [schedule.id for schedule in due_schedules(db)] == [schedule_id]


def test_a_schedule_with_a_fault_fires_nothing_and_holds_up_nobody(db: Tables) -> None:
    spoilt, sound = due(db, at=NOON - MINUTE), due(db)
    plans = {spoilt: FirePlan(fault="crontab: nonsense"), sound: plan(fired())}
    answer = fire(db, lambda schedule: plans[schedule.id])
    assert (answer.commands, answer.next_due) == (1, LATER)
    assert the_schedule(db, spoilt)["fault"] == "crontab: nonsense"
    assert {row["schedule_id"] for row in db.rows(t.schedule_fire)} == {sound}
    assert [schedule.id for schedule in due_schedules(db, now=LATER)] == [sound]


def _raises(_schedule: Schedule) -> FirePlan:
    raise ValueError("the planner has a mistake")


@pytest.mark.parametrize(
    "planner", [_raises, every(plan(fired(), param='{"StartParams": {"a": "\ud800"}}'))]
)
def test_a_schedule_that_cannot_be_planned_or_kept_gets_a_fault_and_holds_up_nobody(
    db: Tables, planner: Callable[[Schedule], FirePlan]
) -> None:
    spoilt, sound = due(db, at=NOON - MINUTE), due(db)
    sound_plan = every(plan(fired()))
    answer = fire(db, lambda one: (planner if one.id == spoilt else sound_plan)(one))
    assert answer.commands == 1
    assert the_schedule(db, spoilt)["fault"]
    assert [row["schedule_id"] for row in db.rows(t.schedule_fire)] == [sound]


def test_a_reason_that_cannot_be_stored_is_repaired_and_not_lost(db: Tables) -> None:
    due(db)
    fire(db, every(plan(left_out(NOON, FireOutcome.SKIPPED, "nul \x00 in it"))))
    (row,) = db.rows(t.schedule_fire)
    assert row["reason"].startswith("nul ")


# The time of the next check


def test_it_is_told_when_the_next_schedule_is_due(db: Tables) -> None:
    assert fire(db, every(plan())) == Fired(commands=0, fires=0, next_due=None)
    due(db, at=NOON + 2 * HOUR)
    nearest = due(db, at=NOON + HOUR)
    due(db, at=NOON + MINUTE, release_state=0)
    due(db, at=NOON + MINUTE, fault="crontab: nonsense")
    due(db, at=None)
    assert fire(db, every(plan())).next_due == NOON + HOUR
    assert fire(db, every(plan(then=NOON + 3 * HOUR)), now=NOON + HOUR).next_due == NOON + 2 * HOUR
    assert the_schedule(db, nearest)["next_fire_time"] == NOON + 3 * HOUR


def test_a_schedule_that_has_to_be_worked_out_is_due_now(db: Tables) -> None:
    due(db, at=NOON - HOUR)
    a_schedule(db, counted_from=NOON - MINUTE)
    assert fire(db, every(plan(then=NOON + HOUR)), limit=1).next_due == NOON


def test_what_the_limit_left_is_due_in_the_past(db: Tables) -> None:
    due(db, at=NOON - HOUR)
    due(db, at=NOON - MINUTE)
    assert fire(db, every(plan(then=NOON + HOUR)), limit=1).next_due == NOON - MINUTE


# A change of the row


@pytest.mark.parametrize(
    "columns",
    [
        {"crontab": "0 30 * * * ?"},
        {"timezone_id": "Asia/Tokyo"},
        {"missing_time": "skip"},
        {"repeated_time": "both"},
        {"start_time": NOON - 2 * DAY},
        {"end_time": NOON + DAY},
        {"process_definition_id": 4711},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_a_change_of_what_decides_about_fires_has_them_counted_anew(
    db: Tables, columns: dict[str, Any]
) -> None:
    schedule_id = due(db, at=LATER, fault="crontab: nonsense")
    db.notifications()
    db.update(t.schedule, schedule_id, **columns)
    row = the_schedule(db, schedule_id)
    assert row["counted_from"] is not None
    assert has(row, next_fire_time=None, fault=None)


def test_what_was_due_before_its_window_changed_stays_due(db: Tables) -> None:
    # Long ago for the servers of both stores, whose clocks these tests don't set.
    at = datetime(1969, 12, 31, tzinfo=UTC)
    before = at - timedelta(seconds=1)
    schedule_id = due(db, at=at)
    db.update(t.schedule, schedule_id, end_time=NOON + 3 * YEAR)
    changed = the_schedule(db, schedule_id)
    assert has(changed, counted_from=before, next_fire_time=None, fault=None)
    # A second change before anything has read the first.
    db.update(t.schedule, schedule_id, end_time=NOON + 4 * YEAR)
    assert has(the_schedule(db, schedule_id), counted_from=before)


def test_a_change_of_anything_else_leaves_the_next_fire_as_it_is(db: Tables) -> None:
    schedule_id = due(db, at=LATER)
    db.update(
        t.schedule, schedule_id, misfire_policy="skip", deadline=5, user_id=2, worker_group_id=3
    )
    db.update(t.schedule, schedule_id, crontab="0 0 * * * ?")
    assert has(the_schedule(db, schedule_id), counted_from=None, next_fire_time=LATER)


def test_a_schedule_whose_parameters_are_mended_goes_on_where_it_was(db: Tables) -> None:
    schedule_id = due(db, start_params="not JSON", fault="start_params is not JSON")
    db.update(t.schedule, schedule_id, start_params="{}")
    row = the_schedule(db, schedule_id)
    assert has(row, fault=None, counted_from=None, next_fire_time=NOON)
    assert [schedule.id for schedule in due_schedules(db)] == [schedule_id]


def test_what_was_due_while_a_schedule_was_offline_is_not_counted(db: Tables) -> None:
    schedule_id = due(db, at=NOON - HOUR)
    db.update(t.schedule, schedule_id, release_state=0)
    assert has(the_schedule(db, schedule_id), counted_from=None, next_fire_time=NOON - HOUR)
    assert due_schedules(db) == []
    db.update(t.schedule, schedule_id, release_state=1)
    row = the_schedule(db, schedule_id)
    assert row["counted_from"] is not None
    assert row["next_fire_time"] is None
    assert [schedule.id for schedule in due_schedules(db, now=NOON + YEAR)] == [schedule_id]


def test_masters_are_told_of_a_schedule_that_comes_or_changes_and_not_of_their_own_firing(
    db: Tables,
) -> None:
    told = (Channel.SCHEDULE, "")
    schedule_id = due(db)
    assert told in db.notifications()
    db.update(t.schedule, schedule_id, crontab="0 30 * * * ?")
    assert db.notifications() == [told]
    db.update(t.schedule, schedule_id, start_params="{}")
    assert db.notifications() == [told]
    db.update(t.schedule, schedule_id, release_state=0)
    assert db.notifications() == [told]
    db.update(t.schedule, schedule_id, release_state=1)
    db.notifications()
    fire(db, every(plan(fired())))
    assert db.notifications() == [(Channel.COMMAND, "")]


@pytest.mark.parametrize(
    "columns",
    [
        {"crontab": ""},
        {"end_time": NOON - DAY},
        {"end_time": NOON - 2 * DAY},
        {"misfire_policy": "sometimes"},
        {"misfire_limit": 0},
        {"misfire_limit": 1001},
        {"deadline": -1},
        {"execution_type": 4},
    ],
    ids=lambda columns: f"{next(iter(columns))}",
)
def test_a_schedule_that_makes_no_sense_is_refused(db: Tables, columns: dict[str, Any]) -> None:
    with pytest.raises(REFUSED):
        due(db, **columns)


# From the ledger to the run


@pytest.mark.parametrize("first_step", [None, lambda _run: None], ids=["general", "plain"])
def test_the_ledger_names_the_run_that_a_fire_has_become(
    db: Tables, first_step: FirstStep | None
) -> None:
    schedule_id = due(db)
    fire(db, every(plan(fired(), fired(LATER))), now=LATER)
    begin = a_begin(command_type=CommandType.SCHEDULER)
    take(db, always(begin), first_step=first_step)
    runs = [row["id"] for row in db.rows(t.process_instance)]
    ledger = db.rows(t.schedule_fire)
    assert sorted(row["process_instance_id"] for row in ledger) == sorted(runs)
    assert {row["schedule_id"] for row in ledger} == {schedule_id}
    assert all(row["command_id"] for row in ledger)


def test_each_fire_has_the_run_of_its_own_command(db: Tables) -> None:
    due(db)
    times = [NOON - HOUR, NOON - MINUTE, NOON]
    fire(db, every(plan(*map(fired, times))))
    plans = {
        row["id"]: a_begin(command_type=CommandType.SCHEDULER, schedule_time=row["schedule_time"])
        for row in db.rows(t.command)
    }
    take(db, by_id(dict(plans)))
    run_times = {row["id"]: row["schedule_time"] for row in db.rows(t.process_instance)}
    for row in db.rows(t.schedule_fire):
        assert run_times[row["process_instance_id"]] == row["fire_time"]


def test_a_run_that_waits_for_its_turn_or_is_discarded_is_named_too(db: Tables) -> None:
    for kind in (ExecutionType.SERIAL_WAIT, ExecutionType.SERIAL_DISCARD):
        definition_id = a_definition(db, execution_type=int(kind))
        due(db, process_definition_id=definition_id)
        fire(db, every(plan(fired(), fired(LATER), then=NOON + YEAR)), now=LATER)
        begin = a_begin(
            command_type=CommandType.SCHEDULER,
            process_definition_id=definition_id,
            execution_type=kind,
        )
        take(db, always(begin))
    runs = [row["id"] for row in db.rows(t.process_instance)]
    assert sorted(row["process_instance_id"] for row in db.rows(t.schedule_fire)) == sorted(runs)
    assert len(runs) == 4


@pytest.mark.parametrize("refusal", [Reject(reason="OFFLINE"), Drop(reason="not now")])
def test_a_fire_whose_command_comes_to_nothing_names_the_command_alone(
    db: Tables, refusal: Reject | Drop
) -> None:
    due(db)
    fire(db, every(plan(fired())))
    (command,) = db.rows(t.command)
    take(db, always(refusal))
    (row,) = db.rows(t.schedule_fire)
    assert has(row, outcome="fired", command_id=command["id"], process_instance_id=0)


def test_a_fire_beside_a_command_that_is_refused_by_the_tables_keeps_its_run(db: Tables) -> None:
    """Refuse one row, so that the commands of the batch begin one by one."""
    due(db)
    fire(db, every(plan(fired(), fired(LATER))), now=LATER)
    first, second = sorted(row["id"] for row in db.rows(t.command))
    begin = a_begin(command_type=CommandType.SCHEDULER)
    too_long = a_begin(command_type=CommandType.SCHEDULER, name="n" * 321)
    take(db, by_id({first: too_long, second: begin}))
    (run,) = db.rows(t.process_instance)
    ledger = {row["command_id"]: row["process_instance_id"] for row in db.rows(t.schedule_fire)}
    assert ledger == {first: 0, second: run["id"]}
