"""The dates of a complement: the fence before each run, room, ends and recoveries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.complement_states import ComplementState, OnFailure, RunOrder
from common.model.complements import ComplementSnapshot, ComplementStep, RunSettings
from common.model.date_rules import DateRule
from common.model.decisions import FinishProcess
from common.model.plans import Begin, Drop, Reject
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
from tests.conformance.complements import (
    DAYS,
    READY_PAUSE,
    RUNNING,
    a_complement,
    advance,
    begin_waiting,
    create,
    dates_of,
    decided_on,
    new,
    request,
    run_of,
    states,
    the_complement,
    under_way,
)
from tests.conformance.store_tables import (
    LATER,
    Tables,
    a_begin,
    a_command,
    a_definition,
    always,
    by_id,
    end_run,
    has,
    save,
    take,
    the_process,
    the_row,
)

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
        environment_code=2**40,
        start_node_names=("land", "clean"),
        start_params='{"day": "1"}',
    )
    complement_id = a_complement(
        db,
        4,
        process_definition_id=7,
        timezone_id="Asia/Tokyo",
        settings=settings,
        date_rule=DateRule.BUSINESS_DATE,
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
        assert param["environmentCode"] == str(2**40)
        assert param["complementDateRule"] == "business_date"
        assert json.loads(param["StartParams"]) == {"day": "1"}
    assert len(commands) == 2


def test_dates_of_a_complement_that_asks_for_nothing_else_have_its_zone_and_rule_alone(
    db: Tables,
) -> None:
    a_complement(db)
    advance(db)
    (command,) = db.rows(t.command)
    assert json.loads(command["command_param"]) == {
        "schedule_timezone": "UTC",
        "complementDateRule": "schedule_time",
    }


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
