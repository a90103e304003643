"""Complements: their dates, the fence before each run, and people's requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.complements import (
    ComplementDecider,
    ComplementSnapshot,
    ComplementState,
    ComplementStep,
    NewComplement,
    OnFailure,
    Reprocess,
    RunOrder,
    RunSettings,
)
from common.model.decisions import FinishProcess
from common.model.instances import Ownership
from common.model.plans import Begin, Complement, Drop, Handled, Plan, Reject
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskDependType,
    WarningType,
)
from common.store import tables as t
from common.store.listen import Channel
from common.store.master.ports import Progressed
from master.logic.complement import step
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    Tables,
    a_begin,
    a_command,
    a_definition,
    a_run,
    always,
    by_id,
    carry_out,
    end_run,
    has,
    planner_arguments,
    save,
    take,
    the_process,
    the_row,
)

DAY = timedelta(days=1)
DAYS = tuple(NOON - (9 - number) * DAY for number in range(9))
RUNNING, READY_PAUSE, READY_STOP = (
    ComplementState.RUNNING,
    ComplementState.READY_PAUSE,
    ComplementState.READY_STOP,
)


def new(*dates: datetime, **changes: Any) -> NewComplement:
    """A complement of definition 1 with these dates."""
    found = NewComplement(
        process_definition_id=1,
        dates=dates,
        timezone_id="UTC",
        parallelism=1,
        order=RunOrder.ASCENDING,
        on_failure=OnFailure.STOP,
        reprocess=Reprocess.ALL,
        settings=RunSettings(),
    )
    return replace(found, **changes)


def create(db: Tables, *complements: NewComplement, now: datetime = NOON) -> list[int]:
    """Carry out a command that creates these complements; return their ids."""
    known = {row["id"] for row in db.rows(t.complement)}
    carry_out(db, Complement(complements=complements), now=now)
    return [row["id"] for row in db.rows(t.complement) if row["id"] not in known]


def a_complement(db: Tables, count: int = 3, **changes: Any) -> int:
    """A RUNNING complement of this many days, none of which has begun."""
    (complement_id,) = create(db, new(*DAYS[:count], **changes))
    return complement_id


def the_complement(db: Tables, complement_id: int) -> dict[str, Any]:
    return the_row(db, t.complement, complement_id)


def dates_of(db: Tables, complement_id: int) -> list[dict[str, Any]]:
    """The dates of a complement, in order."""
    found = [row for row in db.rows(t.complement_date) if row["complement_id"] == complement_id]
    return sorted(found, key=lambda row: int(row["position"]))


def states(db: Tables, complement_id: int) -> list[str]:
    return [row["state"] for row in dates_of(db, complement_id)]


def request(db: Tables, complement_id: int, state: ComplementState) -> None:
    """A person's requests about a complement."""
    db.update(t.complement, complement_id, state=int(state))


def advance(
    db: Tables,
    decide: ComplementDecider = step,
    *,
    now: datetime = NOON,
    thorough: bool = False,
) -> Progressed:
    return db.complements.advance(decide=decide, now=now, thorough=thorough)


def begin_waiting(db: Tables, *, now: datetime = NOON, **changes: Any) -> list[Handled]:
    """Take the commands of dates and let each begin; return the results."""
    plans: dict[int, Plan] = {
        row["id"]: a_begin(
            command_type=CommandType.COMPLEMENT_DATA,
            complement_date_id=row["complement_date_id"],
            schedule_time=row["schedule_time"],
            **changes,
        )
        for row in db.rows(t.command)
    }
    return list(take(db, by_id(plans), now=now))


def under_way(db: Tables, count: int = 3, *, begun: int = 1, **changes: Any) -> int:
    """A complement whose first dates have begun to run."""
    complement_id = a_complement(db, count, parallelism=begun, **changes)
    advance(db)
    assert all(one.ownership for one in begin_waiting(db))
    return complement_id


def run_of(db: Tables, complement_id: int, place: int = 0) -> Ownership:
    """The run of a date."""
    run_id = dates_of(db, complement_id)[place]["process_instance_id"]
    return Ownership(process_instance_id=run_id, host=MASTER.address, epoch=1)


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


# Dates that begin


def test_the_first_dates_begin_in_order_as_many_as_the_decider_says(db: Tables) -> None:
    settings = RunSettings(
        task_depend_type=TaskDependType.TASK_PRE,
        failure_strategy=FailureStrategy.END,
        warning_type=WarningType.FAILURE,
        warning_group_id=3,
        executor_id=4,
        priority=Priority.LOW,
        worker_group_id=5,
        start_node_names=("land", "clean"),
        start_params='{"day": "1"}',
    )
    complement_id = a_complement(
        db, 4, process_definition_id=7, timezone_id="Asia/Tokyo", settings=settings
    )
    begin_two = ComplementStep(state=RUNNING, begin=2)
    assert advance(db, lambda _: begin_two, now=LATER) == Progressed(begun=2, moving=True)
    assert states(db, complement_id) == ["submitted", "submitted", "pending", "pending"]
    commands = db.rows(t.command)
    for date, command in zip(dates_of(db, complement_id), commands, strict=False):
        assert has(
            command,
            command_type=CommandType.COMPLEMENT_DATA,
            process_definition_id=7,
            task_depend_type=1,
            failure_strategy=0,
            warning_type=2,
            warning_group_id=3,
            executor_id=4,
            process_instance_priority=3,
            worker_group_id=5,
            schedule_time=date["schedule_time"],
            start_time=LATER,
            update_time=LATER,
            complement_date_id=date["id"],
            parent_task_instance_id=0,
        )
        assert has(date, command_id=command["id"], process_instance_id=0, reason=None)
        param = json.loads(command["command_param"])
        assert param["schedule_timezone"] == "Asia/Tokyo"
        assert param["StartNodeNameList"] == "land,clean"
        assert json.loads(param["StartParams"]) == {"day": "1"}
    assert len(commands) == 2


def test_dates_of_a_complement_that_asks_for_nothing_else_say_their_zone_alone(db: Tables) -> None:
    a_complement(db)
    advance(db)
    (command,) = db.rows(t.command)
    assert json.loads(command["command_param"]) == {"schedule_timezone": "UTC"}


def test_dates_begin_in_their_order_and_not_in_that_of_the_calendar(db: Tables) -> None:
    create(db, new(*reversed(DAYS[:4]), parallelism=2, order=RunOrder.DESCENDING))
    advance(db)
    assert [row["schedule_time"] for row in db.rows(t.command)] == [DAYS[3], DAYS[2]]


def test_a_date_begins_once_however_often_one_looks(db: Tables) -> None:
    a_complement(db)
    assert [advance(db).begun for _ in range(3)] == [1, 0, 0]
    begin_waiting(db)
    assert advance(db) == Progressed(begun=0, moving=True)
    assert len(db.rows(t.process_instance)) == 1


def test_more_dates_than_there_are_do_not_begin(db: Tables) -> None:
    a_complement(db, 2)
    assert advance(db, lambda _: ComplementStep(state=RUNNING, begin=9)).begun == 2


def test_a_date_that_is_taken_has_its_run(db: Tables) -> None:
    complement_id = a_complement(db)
    advance(db)
    (handled,) = begin_waiting(db, timezone_id="Asia/Tokyo")
    assert handled.ownership is not None
    date = dates_of(db, complement_id)[0]
    run_id = handled.ownership.process_instance_id
    assert has(date, state="running", process_instance_id=run_id)
    assert has(
        the_process(db, handled.ownership),
        schedule_time=date["schedule_time"],
        history_cmd="COMPLEMENT_DATA",
        timezone_id="Asia/Tokyo",
        is_sub_process=0,
    )


@pytest.mark.parametrize(
    "state", [s for s in ComplementState if s is not RUNNING], ids=lambda s: str(s.name)
)
def test_no_date_begins_to_run_unless_its_complement_does(
    db: Tables, state: ComplementState
) -> None:
    complement_id = a_complement(db)
    advance(db)
    request(db, complement_id, state)
    (handled,) = begin_waiting(db)
    assert isinstance(handled.plan, Drop)
    assert handled.ownership is None
    assert db.rows(t.process_instance) == db.rows(t.command) == db.rows(t.error_command) == []
    assert dates_of(db, complement_id)[0]["process_instance_id"] == 0


@pytest.mark.parametrize(
    "columns",
    [{"state": "pending"}, {"state": "running"}, {"state": "cancelled"}, {"command_id": 4711}],
    ids=str,
)
def test_a_command_that_its_date_does_not_wait_for_begins_nothing(
    db: Tables, columns: dict[str, Any]
) -> None:
    complement_id = a_complement(db)
    advance(db)
    date = dates_of(db, complement_id)[0]
    db.update(t.complement_date, date["id"], **columns)
    before = dates_of(db, complement_id)
    (handled,) = begin_waiting(db)
    assert isinstance(handled.plan, Drop)
    assert db.rows(t.process_instance) == []
    # Marked RUNNING, the date would count as one whose run is lost.
    assert dates_of(db, complement_id) == before


def test_a_command_for_a_date_that_there_is_not_begins_nothing(db: Tables) -> None:
    a_command(db, command_type=5)
    (handled,) = take(db, always(a_begin(complement_date_id=4711)))
    assert isinstance(handled.plan, Drop)
    assert db.rows(t.process_instance) == []


def test_of_dates_begun_together_each_has_its_own_run(db: Tables) -> None:
    first, second = a_complement(db, 3, parallelism=2), a_complement(db, 3, parallelism=3)
    advance(db)
    request(db, second, READY_PAUSE)
    handled = begin_waiting(db)
    assert sum(isinstance(one.plan, Drop) for one in handled) == 3
    dates = dates_of(db, first)
    assert [date["state"] for date in dates] == ["running", "running", "pending"]
    for date in dates[:2]:
        run = the_row(db, t.process_instance, date["process_instance_id"])
        assert run["schedule_time"] == date["schedule_time"]


def test_a_date_beside_one_that_the_tables_refuse_begins_all_the_same(db: Tables) -> None:
    complement_id = a_complement(db, 3, parallelism=3)
    advance(db)
    first, second, third = sorted(db.rows(t.command), key=lambda row: int(row["id"]))
    ask_for = {
        row["id"]: a_begin(
            command_type=CommandType.COMPLEMENT_DATA,
            complement_date_id=row["complement_date_id"],
            name="n" * 321 if row is second else "sound",
        )
        for row in (first, second, third)
    }
    take(db, by_id(dict(ask_for)))
    assert states(db, complement_id) == ["running", "submitted", "running"]
    advance(db)
    refused = dates_of(db, complement_id)[1]
    assert refused["state"] == "failure"
    assert refused["reason"] == db.rows(t.error_command)[0]["message"]


def test_a_date_of_a_serial_definition_is_running_while_it_waits_for_its_turn(db: Tables) -> None:
    definition_id = a_definition(db, execution_type=int(ExecutionType.SERIAL_WAIT))
    complement_id = a_complement(db, 2, parallelism=2, process_definition_id=definition_id)
    advance(db)
    begin_waiting(db, process_definition_id=definition_id, execution_type=ExecutionType.SERIAL_WAIT)
    assert states(db, complement_id) == ["running", "running"]
    runs = db.rows(t.process_instance)
    assert [row["state"] for row in runs] == [ProcessState.RUNNING, ProcessState.SERIAL_WAIT]
    advance(db)
    assert states(db, complement_id) == ["running", "running"]


def test_a_date_that_a_serial_definition_discards_has_failed(db: Tables) -> None:
    definition_id = a_definition(db, execution_type=int(ExecutionType.SERIAL_DISCARD))
    complement_id = a_complement(db, 2, parallelism=2, process_definition_id=definition_id)
    advance(db)
    begin_waiting(
        db, process_definition_id=definition_id, execution_type=ExecutionType.SERIAL_DISCARD
    )
    advance(db)
    _, discarded = dates_of(db, complement_id)
    assert discarded["state"] == "failure"
    assert "discarded" in discarded["reason"]


# Room


def test_dates_take_spare_room_alone_and_none_that_others_need(db: Tables) -> None:
    a_complement(db, 5, parallelism=5)
    advance(db)
    dates = [row["id"] for row in db.rows(t.command)]
    others = [a_command(db, update_time=LATER) for _ in range(3)]
    drop = always(Drop(reason="only the choice matters"))
    # Two of the four spare places go to others of the batch.
    taken = [one.command_id for one in take(db, drop, room=2, spare=4)]
    assert sorted(taken) == [*dates[:2], *others[:2]]
    assert [row["id"] for row in db.rows(t.command)] == [*dates[2:], others[2]]


def test_dates_wait_for_spare_room_and_hold_up_nobody_meanwhile(db: Tables) -> None:
    a_complement(db, 5, parallelism=5)
    advance(db)
    other, stop = a_command(db, update_time=LATER), a_command(db, command_type=9)
    drop = always(Drop(reason="only the choice matters"))
    taken = [one.command_id for one in take(db, drop, limit=2, room=1, spare=0)]
    assert sorted(taken) == [other, stop]
    assert take(db, drop, room=0, spare=0) == ()
    assert len(take(db, drop, limit=2, room=0, spare=9)) == 2
    assert len(take(db, drop, room=0, spare=2)) == 2
    assert len(db.rows(t.command)) == 1


def test_a_sub_process_of_a_date_needs_no_room(db: Tables) -> None:
    child = a_command(db, command_type=5, parent_task_instance_id=4711)
    drop = always(Drop(reason="only the choice matters"))
    assert [one.command_id for one in take(db, drop, room=0, spare=0)] == [child]


# Dates that end


def decided_on(db: Tables, *, thorough: bool = False) -> ComplementSnapshot:
    """The decider's view of the only complement that is due."""
    seen: list[ComplementSnapshot] = []

    def decide(found: ComplementSnapshot) -> ComplementStep:
        seen.append(found)
        return ComplementStep(state=found.state)

    advance(db, decide, thorough=thorough)
    return seen[-1]


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (ProcessState.SUCCESS, "success"),
        (ProcessState.FAILURE, "failure"),
        (ProcessState.STOP, "failure"),
        (ProcessState.PAUSE, "running"),
        (None, "running"),
    ],
)
def test_a_date_ends_as_its_run_does(db: Tables, ended: ProcessState | None, expected: str) -> None:
    complement_id = under_way(db)
    if ended is not None:
        end_run(db, run_of(db, complement_id), ended)
    advance(db, now=LATER)
    date = dates_of(db, complement_id)[0]
    assert date["state"] == expected
    assert (date["reason"] is not None) == (expected == "failure")


def test_a_failed_date_says_why(db: Tables) -> None:
    complement_id = under_way(db, 4, begun=4)
    told, silent, stopped, gone = (run_of(db, complement_id, place) for place in range(4))
    save(db, told, FinishProcess(state=ProcessState.FAILURE, reason="task 'land' failed"))
    end_run(db, silent, ProcessState.FAILURE)
    end_run(db, stopped, ProcessState.STOP)
    date = dates_of(db, complement_id)[3]
    db.update(t.complement_date, date["id"], process_instance_id=2_000_000_000)
    assert gone.process_instance_id == date["process_instance_id"]
    advance(db)
    assert [row["reason"] for row in dates_of(db, complement_id)] == [
        "task 'land' failed",
        f"process instance {silent.process_instance_id} failed",
        f"process instance {stopped.process_instance_id} was stopped",
        "its process instance is gone",
    ]


def test_a_date_whose_command_was_rejected_has_failed_with_the_message(db: Tables) -> None:
    complement_id = a_complement(db)
    advance(db)
    take(db, always(Reject(reason="process definition 'flights' is OFFLINE")))
    advance(db)
    assert has(
        dates_of(db, complement_id)[0],
        state="failure",
        reason="process definition 'flights' is OFFLINE",
    )


def test_a_date_whose_command_is_gone_without_a_run_is_pending_again(db: Tables) -> None:
    complement_id = a_complement(db)
    advance(db)
    take(db, always(Drop(reason="somebody has deleted it")))
    shown = decided_on(db)
    assert (shown.pending, shown.live, shown.failed) == (3, 0, 0)
    assert has(dates_of(db, complement_id)[0], state="pending", command_id=0)
    assert advance(db).begun == 1


def test_the_decider_is_shown_the_dates_as_they_stand_now(db: Tables) -> None:
    complement_id = under_way(db, 7, begun=5, on_failure=OnFailure.CONTINUE)
    end_run(db, run_of(db, complement_id, 0), ProcessState.SUCCESS)
    end_run(db, run_of(db, complement_id, 1), ProcessState.FAILURE)
    end_run(db, run_of(db, complement_id, 2), ProcessState.PAUSE)
    dates = dates_of(db, complement_id)
    db.update(t.complement_date, dates[5]["id"], state="skipped")
    shown = decided_on(db)
    assert shown == ComplementSnapshot(
        id=complement_id,
        state=RUNNING,
        parallelism=5,
        on_failure=OnFailure.CONTINUE,
        pending=1,
        live=3,
        failed=1,
    )


def test_a_date_that_ends_lets_the_next_begin(db: Tables) -> None:
    complement_id = under_way(db)
    end_run(db, run_of(db, complement_id))
    assert advance(db).begun == 1
    assert states(db, complement_id) == ["success", "submitted", "pending"]


def test_a_complement_ends_with_the_last_of_its_dates(db: Tables) -> None:
    complement_id = under_way(db, 1)
    end_run(db, run_of(db, complement_id))
    db.notifications()
    assert advance(db, now=LATER) == Progressed(begun=0, moving=False)
    assert has(
        the_complement(db, complement_id),
        state=ComplementState.SUCCESS,
        end_time=LATER,
        update_time=LATER,
        state_reason=None,
    )
    assert (Channel.COMPLEMENT, "") in db.notifications()


def test_what_a_complement_comes_to_stands_in_its_row(db: Tables) -> None:
    complement_id = under_way(db)
    end_run(db, run_of(db, complement_id), ProcessState.FAILURE)
    advance(db, now=LATER)
    row = the_complement(db, complement_id)
    assert has(row, state=ComplementState.FAILURE, end_time=LATER)
    assert row["state_reason"] == "1 of its dates failed, so that 2 did not begin"
    # A person retries the failed dates.
    date = dates_of(db, complement_id)[0]
    db.update(t.complement_date, date["id"], state="pending", command_id=0, process_instance_id=0)
    db.update(t.complement, complement_id, state=int(RUNNING), end_time=None, state_reason=None)
    assert advance(db).begun == 1
    assert states(db, complement_id) == ["submitted", "pending", "pending"]


def test_nothing_is_written_of_a_complement_of_which_nothing_has_changed(db: Tables) -> None:
    complement_id = under_way(db)
    advance(db)
    before = the_complement(db, complement_id), dates_of(db, complement_id)
    db.notifications()
    assert advance(db, now=LATER) == Progressed(begun=0, moving=True)
    assert (the_complement(db, complement_id), dates_of(db, complement_id)) == before
    assert db.notifications() == []


def test_a_complement_that_has_ended_is_not_looked_at(db: Tables) -> None:
    for state in (s for s in ComplementState if s.is_ended):
        request(db, a_complement(db), state)
    assert advance(db, _never, thorough=True) == Progressed(begun=0, moving=False)
    assert db.rows(t.command) == []


def _never(found: ComplementSnapshot) -> ComplementStep:
    raise AssertionError(found)


def test_several_complements_move_on_at_once(db: Tables) -> None:
    ids = [a_complement(db, 4, parallelism=2) for _ in range(3)]
    assert advance(db) == Progressed(begun=6, moving=True)
    assert all(states(db, each)[:3] == ["submitted", "submitted", "pending"] for each in ids)


# Recovered dates


def recover(db: Tables, complement_id: int, state: ProcessState) -> None:
    """A person has had the run of the first date recovered; it is in this state by now."""
    run_id = dates_of(db, complement_id)[0]["process_instance_id"]
    db.update(t.process_instance, run_id, state=int(state))


@pytest.mark.parametrize(
    ("state", "expected"),
    [(ProcessState.RUNNING, "running"), (ProcessState.SUCCESS, "success")],
)
def test_a_complement_goes_on_when_a_date_that_failed_is_recovered(
    db: Tables, state: ProcessState, expected: str
) -> None:
    complement_id = under_way(db)
    end_run(db, run_of(db, complement_id), ProcessState.FAILURE)
    advance(db)
    recover(db, complement_id, state)
    # Recoveries raise no notification, so they are polled.
    assert advance(db).begun == 0
    assert states(db, complement_id)[0] == "failure"
    advanced = advance(db, thorough=True)
    assert advanced == Progressed(begun=int(expected == "success"), moving=True)
    assert has(the_complement(db, complement_id), state=RUNNING, end_time=None, state_reason=None)
    assert has(dates_of(db, complement_id)[0], state=expected, reason=None)


def test_a_date_that_failed_and_stayed_so_changes_nothing(db: Tables) -> None:
    complement_id = under_way(db)
    end_run(db, run_of(db, complement_id), ProcessState.FAILURE)
    advance(db, now=LATER)
    assert advance(db, thorough=True) == Progressed(begun=0, moving=False)
    assert has(the_complement(db, complement_id), state=ComplementState.FAILURE, end_time=LATER)


def test_a_recovered_date_of_a_complement_that_still_goes_on_is_seen_too(db: Tables) -> None:
    complement_id = under_way(db, 4, begun=2)
    end_run(db, run_of(db, complement_id, 0), ProcessState.FAILURE)
    advance(db)
    recover(db, complement_id, ProcessState.SUCCESS)
    assert advance(db, thorough=True).begun == 1
    assert states(db, complement_id) == ["success", "running", "submitted", "pending"]


# Pause and resume


def test_a_pause_takes_back_what_nobody_has_taken_and_lets_the_rest_end(db: Tables) -> None:
    complement_id = under_way(db, 5, begun=2)
    end_run(db, run_of(db, complement_id, 0))
    advance(db)
    assert states(db, complement_id) == ["success", "running", "submitted", "pending", "pending"]
    request(db, complement_id, READY_PAUSE)
    assert advance(db) == Progressed(begun=0, moving=True)
    assert states(db, complement_id) == ["success", "running", "pending", "pending", "pending"]
    assert db.rows(t.command) == []
    assert the_complement(db, complement_id)["state"] == READY_PAUSE
    running = run_of(db, complement_id, 1)
    assert the_process(db, running)["wanted_state"] is None
    end_run(db, running)
    assert advance(db, now=LATER) == Progressed(begun=0, moving=False)
    assert has(the_complement(db, complement_id), state=ComplementState.PAUSE, end_time=LATER)


def test_t32b_a_complement_that_is_to_pause_while_its_last_date_runs_is_done_with_that(
    db: Tables,
) -> None:
    complement_id = under_way(db, 1)
    request(db, complement_id, READY_PAUSE)
    advance(db)
    end_run(db, run_of(db, complement_id))
    advance(db)
    assert the_complement(db, complement_id)["state"] == ComplementState.SUCCESS


def test_t32_a_failed_complement_goes_on_at_the_date_that_failed(db: Tables) -> None:
    complement_id = under_way(db)
    end_run(db, run_of(db, complement_id))
    advance(db)
    begin_waiting(db)
    end_run(db, run_of(db, complement_id, 1), ProcessState.FAILURE)
    advance(db)
    assert states(db, complement_id) == ["success", "failure", "pending"]
    run_id = dates_of(db, complement_id)[1]["process_instance_id"]
    db.update(t.process_instance, run_id, state=int(ProcessState.SUCCESS))
    assert advance(db, thorough=True).begun == 1
    assert states(db, complement_id) == ["success", "success", "submitted"]


def test_a_paused_complement_goes_on_where_it_was(db: Tables) -> None:
    complement_id = a_complement(db)
    advance(db)
    request(db, complement_id, READY_PAUSE)
    advance(db)
    request(db, complement_id, RUNNING)
    assert advance(db).begun == 1
    assert states(db, complement_id) == ["submitted", "pending", "pending"]
    (handled,) = begin_waiting(db)
    assert handled.ownership is not None


# Cancel


def test_a_cancel_takes_back_what_nobody_has_taken_and_stops_the_rest(db: Tables) -> None:
    complement_id = under_way(db, 6, begun=3)
    end_run(db, run_of(db, complement_id, 0))
    advance(db)
    request(db, complement_id, READY_STOP)
    assert advance(db, now=LATER) == Progressed(begun=0, moving=True)
    assert db.rows(t.command) == []
    for place in (1, 2):
        assert has(
            the_process(db, run_of(db, complement_id, place)),
            state=ProcessState.RUNNING,
            wanted_state=ProcessState.STOP,
            wanted_at=LATER,
        )
        end_run(db, run_of(db, complement_id, place), ProcessState.STOP)
    assert advance(db, now=LATER + MINUTE) == Progressed(begun=0, moving=False)
    assert states(db, complement_id) == [
        "success",
        "failure",
        "failure",
        "cancelled",
        "cancelled",
        "cancelled",
    ]
    assert has(
        the_complement(db, complement_id),
        state=ComplementState.STOP,
        end_time=LATER + MINUTE,
        state_reason="cancelled",
    )


def test_a_cancel_of_what_has_not_begun_ends_it_at_once(db: Tables) -> None:
    for asked in (RUNNING, ComplementState.SUBMITTED, ComplementState.PAUSE):
        complement_id = a_complement(db)
        request(db, complement_id, asked)
        request(db, complement_id, READY_STOP)
        advance(db)
        assert states(db, complement_id) == ["cancelled"] * 3
        assert the_complement(db, complement_id)["state"] == ComplementState.STOP


def test_a_paused_run_does_not_keep_a_cancelled_complement_from_its_end(db: Tables) -> None:
    complement_id = under_way(db, 2)
    paused = run_of(db, complement_id)
    end_run(db, paused, ProcessState.PAUSE)
    request(db, complement_id, READY_STOP)
    advance(db)
    assert states(db, complement_id) == ["failure", "cancelled"]
    reason = dates_of(db, complement_id)[0]["reason"]
    assert "was paused when the complement was cancelled" in reason
    assert the_complement(db, complement_id)["state"] == ComplementState.STOP


def test_a_cancel_does_not_weaken_what_is_wanted_of_a_run_already(db: Tables) -> None:
    complement_id = under_way(db, 2, begun=2)
    failing, pausing = (run_of(db, complement_id, place) for place in range(2))
    for owned, wanted in ((failing, ProcessState.FAILURE), (pausing, ProcessState.PAUSE)):
        db.update(
            t.process_instance,
            owned.process_instance_id,
            wanted_state=int(wanted),
            wanted_at=NOON,
        )
    request(db, complement_id, READY_STOP)
    advance(db, now=LATER)
    assert has(the_process(db, failing), wanted_state=ProcessState.FAILURE, wanted_at=NOON)
    assert has(the_process(db, pausing), wanted_state=ProcessState.STOP, wanted_at=LATER)


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


# The cost to other rows


def test_a_begin_for_a_date_leaves_all_other_dates_as_they_are(db: Tables) -> None:
    complement_id, other = a_complement(db), a_complement(db)
    advance(db)
    first = min(db.rows(t.command), key=lambda row: int(row["id"]))
    begin = a_begin(
        command_type=CommandType.COMPLEMENT_DATA, complement_date_id=first["complement_date_id"]
    )

    (handled,) = take(db, by_id({first["id"]: begin}), limit=1)
    assert isinstance(handled.plan, Begin)
    assert states(db, complement_id) == ["running", "pending", "pending"]
    assert states(db, other) == ["submitted", "pending", "pending"]
