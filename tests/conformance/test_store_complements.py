"""Complements in the stores: their rows, the view of their planner, and complements in a row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from common.model.complement_states import ComplementState, OnFailure, Reprocess, RunOrder
from common.model.complements import ComplementSnapshot, ComplementStep, RunSettings
from common.model.date_rules import DateRule
from common.model.plans import Complement, Drop, Handled, Plan, Reject
from common.model.states import FailureStrategy, Priority, ProcessState, TaskDependType, WarningType
from common.store import tables as t
from common.store.listen import Channel
from common.store.master.ports import Progressed
from tests.builders import NOON
from tests.conformance.complements import (
    DAY,
    DAYS,
    READY_STOP,
    RUNNING,
    a_complement,
    advance,
    begin_waiting,
    create,
    dates_of,
    new,
    request,
    run_of,
    states,
    the_complement,
)
from tests.conformance.store_tables import (
    Tables,
    a_command,
    a_definition,
    a_run,
    always,
    carry_out,
    end_run,
    has,
    planner_arguments,
    take,
)

# The columns of a new complement


def test_a_plan_becomes_a_complement_with_all_its_dates_in_the_order_given(db: Tables) -> None:
    db.notifications()
    command_id = a_command(db, command_type=5)
    settings = RunSettings(
        task_depend_type=TaskDependType.TASK_ONLY,
        failure_strategy=FailureStrategy.END,
        warning_type=WarningType.ALL,
        warning_group_id=3,
        executor_id=4,
        priority=Priority.LOW,
        worker_group_id=5,
        start_node_names=("land", "clean"),
        start_params='{"day": "1"}',
    )
    complement = new(
        DAYS[2],
        DAYS[0],
        DAYS[1],
        process_definition_id=7,
        timezone_id="Asia/Tokyo",
        parallelism=2,
        order=RunOrder.DESCENDING,
        on_failure=OnFailure.CONTINUE,
        reprocess=Reprocess.FAILED,
        settings=settings,
    )
    plan = Complement(complements=(complement,))
    (handled,) = take(db, always(plan))
    assert handled == Handled(command_id=command_id, plan=plan, ownership=None)
    assert db.rows(t.command) == []
    (row,) = db.rows(t.complement)
    assert has(
        row,
        process_definition_id=7,
        state=1,
        parallelism=2,
        run_order="descending",
        on_failure="continue",
        reprocess="failed",
        timezone_id="Asia/Tokyo",
        after_id=0,
        command_id=command_id,
        task_depend_type=0,
        failure_strategy=0,
        warning_type=3,
        warning_group_id=3,
        executor_id=4,
        process_instance_priority=3,
        worker_group_id=5,
        end_time=None,
        state_reason=None,
    )
    dates = dates_of(db, row["id"])
    assert [(date["position"], date["schedule_time"]) for date in dates] == [
        (1, DAYS[2]),
        (2, DAYS[0]),
        (3, DAYS[1]),
    ]
    assert all(
        has(date, state="pending", command_id=0, process_instance_id=0, reason=None)
        for date in dates
    )
    assert (Channel.COMPLEMENT, "") in db.notifications()


def test_complements_of_one_plan_wait_for_those_that_they_name(db: Tables) -> None:
    first, second, third, fourth = create(
        db, new(DAYS[0]), new(DAYS[0], after=0), new(DAYS[0], after=1), new(DAYS[0])
    )
    rows = [the_complement(db, one) for one in (first, second, third, fourth)]
    assert [row["after_id"] for row in rows] == [0, first, second, 0]
    assert [row["state"] for row in rows] == [1, 0, 0, 1]
    assert [row["command_id"] == 0 for row in rows] == [False, True, True, True]


def test_t73_complements_are_written_whole_or_not_at_all(db: Tables) -> None:
    sound, twice = new(DAYS[0]), new(DAYS[1], DAYS[2], DAYS[1])
    handled = carry_out(db, Complement(complements=(sound, twice)))
    assert isinstance(handled.plan, Reject)
    assert db.rows(t.complement) == db.rows(t.complement_date) == []
    (error,) = db.rows(t.error_command)
    assert error["message"]


@pytest.mark.parametrize(
    ("reprocess", "expected"),
    [
        (Reprocess.ALL, ["pending"] * 6),
        (Reprocess.FAILED, ["pending", "skipped", "skipped", "pending", "pending", "pending"]),
        (Reprocess.MISSING, ["pending", *["skipped"] * 5]),
    ],
)
def test_what_has_been_run_before_is_run_again_only_if_that_is_wanted(
    db: Tables, reprocess: Reprocess, expected: list[str]
) -> None:
    ends = (
        None,
        ProcessState.SUCCESS,
        ProcessState.FAILURE,
        ProcessState.STOP,
        ProcessState.PAUSE,
    )
    for date, state in zip(DAYS[1:], ends, strict=False):
        # An older run of the same date does not count.
        end_run(db, a_run(db, schedule_time=date), ProcessState.FAILURE)
        newest = a_run(db, schedule_time=date)
        if state is not None:
            end_run(db, newest, state)
    # Irrelevant runs: of another definition, without a date, and a sub process.
    a_run(db, process_definition_id=2, schedule_time=DAYS[0])
    a_run(db)
    child = a_run(db, schedule_time=DAYS[0])
    db.update(t.process_instance, child.process_instance_id, is_sub_process=1)
    # Order of `expected`: none, live, success, failure, stop, pause.
    complement_id = a_complement(db, 6, reprocess=reprocess)
    assert states(db, complement_id) == expected
    told = [date["reason"] for date in dates_of(db, complement_id)]
    assert [reason is not None for reason in told] == [each == "skipped" for each in expected]


@pytest.mark.parametrize("rule", DateRule)
def test_runs_are_compared_by_business_date_whatever_began_them(db: Tables, rule: DateRule) -> None:
    """Each date has one run of a schedule or of a complement, at another time of the day."""
    days = {DateRule.SCHEDULE_TIME: 0, DateRule.BUSINESS_DATE: 1}[rule]
    moment = DAYS[0] + timedelta(days=days, hours=3)
    fire = a_run(db, schedule_time=moment)
    backfill = a_run(db, schedule_time=moment, business_time=moment + DAY)
    # Not of a date: it has no schedule time.
    a_run(db)
    complement_id = a_complement(
        db, 3, reprocess=Reprocess.MISSING, date_rule=rule, at_most_daily=True
    )
    assert [date["reason"] for date in dates_of(db, complement_id)] == [
        f"process instance {fire.process_instance_id} is RUNNING",
        f"process instance {backfill.process_instance_id} is RUNNING",
        None,
    ]


def test_a_definition_with_several_runs_a_day_has_its_times_compared_too(db: Tables) -> None:
    a_run(db, schedule_time=DAYS[0] + timedelta(hours=3))
    at_that_time = a_run(db, schedule_time=DAYS[1])
    complement_id = a_complement(db, 2, reprocess=Reprocess.MISSING)
    assert [date["reason"] for date in dates_of(db, complement_id)] == [
        None,
        f"process instance {at_that_time.process_instance_id} is RUNNING",
    ]


def test_a_date_that_is_left_out_says_which_run_it_has(db: Tables) -> None:
    live = a_run(db, schedule_time=DAYS[0])
    good = a_run(db, schedule_time=DAYS[1])
    end_run(db, good)
    complement_id = a_complement(db, 2, reprocess=Reprocess.FAILED)
    assert [date["reason"] for date in dates_of(db, complement_id)] == [
        f"process instance {live.process_instance_id} is RUNNING",
        f"process instance {good.process_instance_id} ended as SUCCESS",
    ]


# The planner's view of a COMPLEMENT_DATA row


def a_schedule(db: Tables, definition_id: int, **columns: Any) -> int:
    return db.insert(
        t.schedule,
        **{
            "process_definition_id": definition_id,
            "crontab": "0 0 3 * * ?",
            "release_state": 1,
            "start_time": NOON - DAY,
            "end_time": NOON + DAY,
            **columns,
        },
    )


def test_the_planner_of_a_complement_sees_the_online_schedules_of_its_definition(
    db: Tables,
) -> None:
    definition_id = a_definition(db)
    first = a_schedule(db, definition_id, timezone_id="Asia/Tokyo")
    a_schedule(db, definition_id, release_state=0)
    second = a_schedule(db, definition_id, fault="start_params is not JSON")
    a_schedule(db, a_definition(db))
    columns = {"process_definition_id": definition_id}
    _, snapshot = planner_arguments(db, command_type=5, **columns)
    assert [schedule.id for schedule in snapshot.schedules] == [first, second]
    assert snapshot.schedules[0].timezone_id == "Asia/Tokyo"
    assert snapshot.dependents == ()
    for of_master in ({"complement_date_id": 4711}, {"parent_task_instance_id": 4711}):
        _, snapshot = planner_arguments(db, command_type=5, **columns, **of_master)
        assert snapshot.schedules == ()
    assert planner_arguments(db, command_type=0, **columns)[1].schedules == ()


def test_the_planner_sees_who_waits_for_others_only_if_those_are_to_run_too(db: Tables) -> None:
    waits = json.dumps({"tasks": [{"name": "e", "type": "DEPENDENT"}]})
    definition_id = a_definition(db)
    dependent = a_definition(db, name="report", process_definition_json=waits)
    a_definition(db, process_definition_json=waits, release_state=0)
    a_definition(db, process_definition_json=waits, flag=0)
    schedule_id = a_schedule(db, dependent)
    a_schedule(db, dependent, release_state=0)
    columns = {"command_type": 5, "process_definition_id": definition_id}
    for mode, expected in (("ALL_DEPENDENT", [dependent]), ("OFF_MODE", [])):
        param = json.dumps({"complementDependentMode": mode})
        _, snapshot = planner_arguments(db, command_param=param, **columns)
        assert [each.id for each in snapshot.dependents] == expected
    _, snapshot = planner_arguments(
        db, command_param=json.dumps({"complementDependentMode": "ALL_DEPENDENT"}), **columns
    )
    (found,) = snapshot.dependents
    assert (found.name, found.process_definition_json) == ("report", waits)
    assert [schedule.id for schedule in found.schedules] == [schedule_id]


def test_the_planner_of_a_date_sees_which_it_is(db: Tables) -> None:
    complement_id = a_complement(db)
    advance(db)
    (date, *_) = dates_of(db, complement_id)
    seen: list[int] = []

    def planner(command: Any, _snapshot: Any) -> Plan:
        seen.append(command.complement_date_id)
        return Drop(reason="seen")

    take(db, planner)
    assert seen == [date["id"]]


# Complements in a row


def chain(db: Tables, length: int = 3) -> list[int]:
    """Complements of one date each, each waiting for the one before."""
    places: Sequence[int | None] = [None, *range(length - 1)]
    return create(db, *(new(DAYS[0], after=place) for place in places))


def test_a_complement_waits_for_the_one_that_it_comes_after(db: Tables) -> None:
    first, second, third = chain(db)
    assert advance(db).begun == 1
    assert [states(db, each) for each in (first, second, third)] == [
        ["submitted"],
        ["pending"],
        ["pending"],
    ]


def test_the_next_one_begins_in_the_same_look_in_which_it_may(db: Tables) -> None:
    first, second, third = chain(db)
    advance(db)
    begin_waiting(db)
    end_run(db, run_of(db, first))
    assert advance(db) == Progressed(begun=1, moving=True)
    assert the_complement(db, first)["state"] == ComplementState.SUCCESS
    assert the_complement(db, second)["state"] == RUNNING
    assert states(db, second) == ["submitted"]
    assert the_complement(db, third)["state"] == ComplementState.SUBMITTED


@pytest.mark.parametrize("how", [ComplementState.FAILURE, ComplementState.STOP])
def test_what_comes_after_one_that_failed_fails_down_to_the_last_in_the_same_look(
    db: Tables, how: ComplementState
) -> None:
    first, second, third = chain(db)
    advance(db)
    begin_waiting(db)
    end_run(db, run_of(db, first), ProcessState.FAILURE)
    if how is ComplementState.STOP:
        request(db, first, READY_STOP)
    assert advance(db) == Progressed(begun=0, moving=False)
    assert the_complement(db, first)["state"] == how
    for above, each in ((first, second), (second, third)):
        row = the_complement(db, each)
        assert row["state"] == ComplementState.FAILURE
        assert f"complement {above}, which it waits for" in row["state_reason"]


def test_what_failed_with_the_one_before_goes_on_though_its_master_died_as_that_succeeded(
    db: Tables,
) -> None:
    first, second = chain(db, 2)
    advance(db)
    begin_waiting(db)
    end_run(db, run_of(db, first), ProcessState.FAILURE)
    advance(db)
    assert the_complement(db, second)["state"] == ComplementState.FAILURE
    # The writes of a master that died before it reached the second one.
    date = dates_of(db, first)[0]
    db.update(t.complement_date, date["id"], state="success", reason=None)
    db.update(t.complement, first, state=int(ComplementState.SUCCESS))
    assert advance(db, thorough=True) == Progressed(begun=1, moving=True)
    assert the_complement(db, second)["state"] == RUNNING


def test_the_decider_is_shown_how_the_one_before_stands(db: Tables) -> None:
    first, second = chain(db, 2)
    shown: dict[int, ComplementSnapshot] = {}

    def decide(found: ComplementSnapshot) -> ComplementStep:
        shown[found.id] = found
        return ComplementStep(state=found.state)

    advance(db, decide)
    assert (shown[first].after_id, shown[first].after_state) == (0, None)
    assert (shown[second].after_id, shown[second].after_state) == (first, RUNNING)
    db.update(t.complement, second, after_id=2_000_000_000)
    advance(db, decide)
    assert (shown[second].after_id, shown[second].after_state) == (2_000_000_000, None)
