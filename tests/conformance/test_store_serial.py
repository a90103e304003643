"""Serial definitions: only one run at a time may continue."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from common.model.cluster import Node
from common.model.commands import Command, CommandType
from common.model.decisions import (
    FinishProcess,
)
from common.model.instances import Ownership
from common.model.plans import (
    Begin,
    Drop,
    Handled,
    Plan,
    Reject,
    Restart,
    Resume,
    SetIntent,
    Snapshot,
)
from common.model.states import (
    ExecutionType,
    ProcessState,
    TaskState,
)
from common.store import tables as t
from common.store.listen import Channel
from common.store.master.ports import Intent, Released
from common.store.master.serial import DISPLACED
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    OTHER_MASTER,
    STOPPING,
    Tables,
    a_begin,
    a_command,
    a_definition,
    a_run,
    about,
    always,
    an_intent,
    begin_child,
    by_id,
    call_child,
    carry_out,
    end_run,
    end_with_promise,
    has,
    load,
    release,
    run_to_end,
    save,
    take,
    the_process,
    the_row,
)

WAIT, DISCARD, PRIORITY = (
    ExecutionType.SERIAL_WAIT,
    ExecutionType.SERIAL_DISCARD,
    ExecutionType.SERIAL_PRIORITY,
)


def a_serial_definition(db: Tables, execution_type: ExecutionType) -> int:
    return a_definition(db, execution_type=int(execution_type))


def one_more(db: Tables, definition_id: int, execution_type: ExecutionType) -> Handled:
    plan = a_begin(process_definition_id=definition_id, execution_type=execution_type)
    return carry_out(db, plan)


def the_newest(db: Tables) -> dict[str, Any]:
    return db.rows(t.process_instance)[-1]


def let_go(db: Tables, *, node: Node = MASTER, now: datetime = NOON) -> list[Ownership]:
    """Release the waiting runs, and take the commands that this creates."""
    assert release(db, now).instances == len(db.rows(t.command))

    def planner(_command: Command, snapshot: Snapshot) -> Plan:
        assert snapshot.instance is not None
        return Resume(
            process_instance_id=snapshot.instance.id,
            epoch=snapshot.instance.owner_epoch,
            command_type=CommandType.RECOVER_SERIAL_WAIT,
        )

    return [one.ownership for one in take(db, planner, node=node, now=now) if one.ownership]


@pytest.mark.parametrize("execution_type", [WAIT, DISCARD, PRIORITY])
def test_the_first_run_of_a_serial_definition_begins_at_once(
    db: Tables, execution_type: ExecutionType
) -> None:
    definition_id = a_serial_definition(db, execution_type)
    handled = one_more(db, definition_id, execution_type)
    assert handled.ownership is not None
    assert the_process(db, handled.ownership)["state"] == ProcessState.RUNNING


def test_the_next_one_waits_and_belongs_to_nobody(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    one_more(db, definition_id, WAIT)
    handled = one_more(db, definition_id, WAIT)
    assert isinstance(handled.plan, Begin)
    assert handled.ownership is None
    row = the_newest(db)
    assert row["command_id"] == handled.command_id
    assert has(
        row, state=14, host=None, owner_incarnation=None, owner_epoch=0, end_time=None, run_times=1
    )
    assert {run.process_instance_id for run in db.runs.owned(MASTER)} == {row["id"] - 1}
    # Nothing owns it, so failover has nothing to recover.
    assert db.failover.run_owners() == {MASTER}
    assert db.failover.recover_runs(MASTER, now=NOON) == 1
    assert release(db).instances == 0


def test_those_that_wait_begin_one_after_the_other_in_their_order(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    first = one_more(db, definition_id, WAIT).ownership
    assert first is not None
    waiting = []
    for _ in range(2):
        one_more(db, definition_id, WAIT)
        waiting.append(the_newest(db)["id"])
    assert let_go(db) == []
    assert end_run(db, first).holds
    (second,) = let_go(db, node=OTHER_MASTER, now=LATER)
    assert second.process_instance_id == waiting[0]
    assert has(
        the_process(db, second),
        state=1,
        host=OTHER_MASTER.address,
        owner_epoch=1,
        start_time=LATER,
        command_type=11,
        history_cmd="START_PROCESS,RECOVER_SERIAL_WAIT",
        recovery=0,
    )
    assert let_go(db) == []
    save(db, second, FinishProcess(state=ProcessState.FAILURE))
    (third,) = let_go(db)
    assert third.process_instance_id == waiting[1]


def test_a_turn_is_given_by_one_command_however_often_one_looks(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    first = one_more(db, definition_id, WAIT).ownership
    assert first is not None
    for _ in range(2):
        one_more(db, definition_id, WAIT)
    end_run(db, first)
    assert [release(db, LATER).instances for _ in range(2)] == [1, 0]
    (command,) = db.rows(t.command)
    waiting = first.process_instance_id + 1
    assert has(
        command,
        command_type=11,
        process_definition_id=definition_id,
        process_instance_id=waiting,
        update_time=LATER,
        executor_id=1,
        process_instance_priority=2,
        parent_task_instance_id=0,
    )
    assert json.loads(command["command_param"]) == {"ProcessInstanceId": waiting}
    # Two commands may name the same waiting run, but only one may begin it.
    db.update(
        t.command,
        command["id"],
        process_instance_id=waiting + 1,
        command_param=about(waiting + 1),
    )
    assert release(db).instances == 0


def test_a_turn_that_was_never_taken_is_given_again_10453_9906(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    first = one_more(db, definition_id, WAIT).ownership
    assert first is not None
    one_more(db, definition_id, WAIT)
    end_run(db, first)
    assert release(db).instances == 1
    take(db, always(Reject(reason="a mistake of ours")))
    assert len(let_go(db)) == 1


def test_nobody_begins_out_of_turn(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    one_more(db, definition_id, WAIT)
    one_more(db, definition_id, WAIT)
    waiting = the_newest(db)["id"]
    for command_type in (
        CommandType.RECOVER_SERIAL_WAIT,
        CommandType.RECOVER_TOLERANCE_FAULT_PROCESS,
        CommandType.RECOVER_WAITTING_THREAD,
    ):
        plan = Resume(process_instance_id=waiting, epoch=0, command_type=command_type)
        assert isinstance(carry_out(db, plan).plan, Drop)
    assert the_newest(db)["state"] == ProcessState.SERIAL_WAIT


def test_a_turn_is_taken_once(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    first = one_more(db, definition_id, WAIT).ownership
    assert first is not None
    one_more(db, definition_id, WAIT)
    end_run(db, first)
    plan = Resume(
        process_instance_id=the_newest(db)["id"],
        epoch=0,
        command_type=CommandType.RECOVER_SERIAL_WAIT,
    )
    assert carry_out(db, plan).ownership is not None
    for epoch in (0, 1):
        assert isinstance(carry_out(db, replace(plan, epoch=epoch)).plan, Drop)


def test_runs_of_one_batch_see_each_other(db: Tables) -> None:
    serial, other = a_serial_definition(db, WAIT), a_serial_definition(db, WAIT)
    plans: dict[int, Plan] = {
        a_command(db): a_begin(process_definition_id=definition_id, execution_type=WAIT)
        for definition_id in (serial, other, serial, other, serial)
    }
    handled = take(db, by_id(plans))
    assert [one.ownership is not None for one in handled] == [True, True, False, False, False]
    assert [row["state"] for row in db.rows(t.process_instance)].count(14) == 3


def test_sub_processes_and_other_definitions_are_in_nobodys_way(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    parent = a_run(db, process_definition_id=a_definition(db))
    begin_child(db, parent, call_child(db, parent), process_definition_id=definition_id)
    assert one_more(db, definition_id, WAIT).ownership is not None


def test_a_parallel_definition_begins_whatever_is_live(db: Tables) -> None:
    definition_id = a_definition(db)
    for _ in range(2):
        assert one_more(db, definition_id, ExecutionType.PARALLEL).ownership is not None
    owned = a_run(db, process_definition_id=definition_id)
    assert not end_run(db, owned).holds


def test_what_is_discarded_ends_at_once_and_says_for_whose_sake(db: Tables) -> None:
    definition_id = a_serial_definition(db, DISCARD)
    first = one_more(db, definition_id, DISCARD).ownership
    assert first is not None
    handled = one_more(db, definition_id, DISCARD)
    assert handled.ownership is None
    assert has(
        the_newest(db),
        state=5,
        end_time=NOON,
        host=None,
        state_reason=(
            f"discarded: process instance {first.process_instance_id}"
            " of this definition is still live"
        ),
    )
    end_run(db, first)
    assert one_more(db, definition_id, DISCARD).ownership is not None


def test_one_that_goes_first_has_the_others_stopped_and_waits_for_them(db: Tables) -> None:
    definition_id = a_serial_definition(db, PRIORITY)
    first = one_more(db, definition_id, PRIORITY).ownership
    assert first is not None
    assert one_more(db, definition_id, PRIORITY).ownership is None
    second = the_newest(db)
    assert second["state"] == ProcessState.SERIAL_WAIT
    assert db.runs.wanted(MASTER) == {first: Intent(state=ProcessState.STOP, at=NOON)}
    assert the_process(db, first)["history_cmd"] == "START_PROCESS"
    one_more(db, definition_id, PRIORITY)
    third = the_newest(db)
    # The one between has not begun: it ends without ever having an owner.
    assert release(db, LATER) == Released(offers=(), instances=0, next_due=None)
    assert has(
        the_row(db, t.process_instance, second["id"]),
        state=5,
        end_time=LATER,
        state_reason=DISPLACED,
        duration_from=LATER,
    )
    ended = FinishProcess(state=ProcessState.STOP, reason="stopped on request")
    save(db, first, STOPPING, ended)
    assert the_process(db, first)["state_reason"] == DISPLACED
    assert [run.process_instance_id for run in let_go(db)] == [third["id"]]


def test_a_displaced_run_that_succeeds_first_has_no_reason(db: Tables) -> None:
    definition_id = a_serial_definition(db, PRIORITY)
    first = one_more(db, definition_id, PRIORITY).ownership
    assert first is not None
    one_more(db, definition_id, PRIORITY)
    assert the_process(db, first)["state_reason"] == DISPLACED
    end_run(db, first)
    assert has(the_process(db, first), state=7, state_reason=None)


@pytest.mark.parametrize("wanted", [ProcessState.STOP, ProcessState.FAILURE])
def test_one_that_goes_first_asks_none_twice(db: Tables, wanted: ProcessState) -> None:
    definition_id = a_serial_definition(db, PRIORITY)
    first = one_more(db, definition_id, PRIORITY).ownership
    assert first is not None
    early = NOON - MINUTE
    db.update(
        t.process_instance, first.process_instance_id, wanted_state=int(wanted), wanted_at=early
    )
    one_more(db, definition_id, PRIORITY)
    assert db.runs.wanted(MASTER) == {first: Intent(state=wanted, at=early)}


def test_a_stop_ends_a_waiting_run_at_once_and_a_pause_does_nothing(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    one_more(db, definition_id, WAIT)
    one_more(db, definition_id, WAIT)
    waiting = the_newest(db)["id"]
    db.notifications()
    assert isinstance(carry_out(db, an_intent(waiting, CommandType.PAUSE)).plan, Drop)
    assert the_newest(db)["state"] == ProcessState.SERIAL_WAIT
    db.notifications()
    assert isinstance(
        carry_out(db, an_intent(waiting, CommandType.STOP), now=LATER).plan, SetIntent
    )
    assert has(
        the_newest(db),
        state=5,
        end_time=LATER,
        state_reason="stopped before its turn came",
        history_cmd="START_PROCESS,STOP",
    )
    assert db.notifications() == [(Channel.COMMAND, ""), (Channel.PROCESS, str(waiting))]


@pytest.mark.parametrize("asked", ["by a command", "in its row"])
def test_a_paused_run_that_is_stopped_while_it_waits_again_promises_no_retry(
    db: Tables, asked: str
) -> None:
    definition_id = a_serial_definition(db, WAIT)
    old = one_more(db, definition_id, WAIT).ownership
    assert old is not None
    end_with_promise(db, old)
    assert one_more(db, definition_id, WAIT).ownership is not None
    resumed = replace(
        a_serial_restart(old, WAIT), command_type=CommandType.RECOVER_SUSPENDED_PROCESS, reset=()
    )
    assert carry_out(db, resumed).ownership is None
    (attempt,) = db.rows(t.task_instance)
    assert has(attempt, settled=True, retry_at=LATER + MINUTE)
    if asked == "by a command":
        carry_out(db, an_intent(old.process_instance_id, CommandType.STOP), now=LATER)
    else:
        db.update(t.process_instance, old.process_instance_id, wanted_state=ProcessState.STOP)
        release(db, LATER)
    assert the_process(db, old)["state"] == ProcessState.STOP
    (attempt,) = db.rows(t.task_instance)
    assert has(attempt, state=TaskState.FAILURE, flag=1, settled=True, retry_at=None)


def a_serial_restart(owned: Ownership, execution_type: ExecutionType) -> Restart:
    return Restart(
        process_instance_id=owned.process_instance_id,
        epoch=owned.epoch,
        command_type=CommandType.REPEAT_RUNNING,
        reset=("a",),
        execution_type=execution_type,
        afresh=True,
    )


@pytest.mark.parametrize("execution_type", [WAIT, PRIORITY])
def test_a_restarted_run_takes_its_turn_too(db: Tables, execution_type: ExecutionType) -> None:
    definition_id = a_serial_definition(db, execution_type)
    old = one_more(db, definition_id, execution_type).ownership
    assert old is not None
    run_to_end(db, old, "a", TaskState.FAILURE)
    end_run(db, old, ProcessState.FAILURE)
    live = one_more(db, definition_id, execution_type).ownership
    assert live is not None
    handled = carry_out(db, a_serial_restart(old, execution_type))
    assert isinstance(handled.plan, Restart)
    assert handled.ownership is None
    assert has(
        the_process(db, old),
        state=14,
        host=None,
        owner_incarnation=None,
        owner_epoch=2,
        run_times=2,
        end_time=None,
    )
    asked = execution_type is PRIORITY
    assert (live in db.runs.wanted(MASTER)) is asked
    end_run(db, live, ProcessState.STOP if asked else ProcessState.SUCCESS)
    (again,) = let_go(db)
    assert again == replace(old, epoch=3)
    assert [task.valid for task in load(db, again).tasks] == [False]


def test_a_restart_that_would_have_to_wait_where_nobody_waits_is_dropped(db: Tables) -> None:
    definition_id = a_serial_definition(db, DISCARD)
    old = one_more(db, definition_id, DISCARD).ownership
    assert old is not None
    end_run(db, old, ProcessState.FAILURE)
    assert one_more(db, definition_id, DISCARD).ownership is not None
    before = the_process(db, old)
    assert isinstance(carry_out(db, a_serial_restart(old, DISCARD)).plan, Drop)
    assert the_process(db, old) == before


def test_a_restart_begins_at_once_when_no_other_is_live(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    old = one_more(db, definition_id, WAIT).ownership
    assert old is not None
    end_run(db, old, ProcessState.FAILURE)
    assert carry_out(db, a_serial_restart(old, WAIT)).ownership == replace(old, epoch=2)


@pytest.mark.parametrize("afresh", [False, True])
def test_a_restarted_run_that_has_had_its_turn_began_when_it_did(db: Tables, afresh: bool) -> None:
    """People identify a run by its `start_time`; waiting for a turn does not change it."""
    definition_id = a_serial_definition(db, WAIT)
    old = one_more(db, definition_id, WAIT).ownership
    assert old is not None
    end_run(db, old, ProcessState.FAILURE)
    live = one_more(db, definition_id, WAIT).ownership
    assert live is not None
    plan = replace(a_serial_restart(old, WAIT), afresh=afresh)
    assert carry_out(db, plan, now=LATER).ownership is None
    end_run(db, live)
    assert let_go(db, now=LATER + MINUTE) == [replace(old, epoch=3)]
    assert has(
        the_process(db, old),
        state=1,
        start_time=LATER if afresh else NOON,
        restart_time=LATER + MINUTE,
        # It has executed for no time, and has waited since.
        duration_from=LATER + MINUTE,
    )


def test_those_that_wait_begin_when_their_definition_is_serial_no_more(db: Tables) -> None:
    definition_id, other = a_serial_definition(db, WAIT), a_serial_definition(db, WAIT)
    waiting = []
    for definition in (definition_id, other):
        assert one_more(db, definition, WAIT).ownership is not None
        for _ in range(2):
            one_more(db, definition, WAIT)
            waiting.append(the_newest(db)["id"])
    assert let_go(db) == []
    db.update(t.process_definition, definition_id, execution_type=0)
    assert release(db).instances == 2
    assert release(db).instances == 0
    handled = take(
        db,
        lambda _command, snapshot: Resume(
            process_instance_id=0 if snapshot.instance is None else snapshot.instance.id,
            epoch=0,
            command_type=CommandType.RECOVER_SERIAL_WAIT,
        ),
    )
    begun = [one.ownership.process_instance_id for one in handled if one.ownership is not None]
    assert begun == waiting[:2]
    assert let_go(db) == []
    assert [the_row(db, t.process_instance, one)["state"] for one in waiting] == [1, 1, 14, 14]


def test_a_turn_of_a_definition_that_is_serial_again_is_no_turn(db: Tables) -> None:
    definition_id = a_serial_definition(db, WAIT)
    assert one_more(db, definition_id, WAIT).ownership is not None
    one_more(db, definition_id, WAIT)
    db.update(t.process_definition, definition_id, execution_type=0)
    assert release(db).instances == 1
    db.update(t.process_definition, definition_id, execution_type=int(PRIORITY))
    plan = Resume(
        process_instance_id=the_newest(db)["id"],
        epoch=0,
        command_type=CommandType.RECOVER_SERIAL_WAIT,
    )
    (handled,) = take(db, always(plan))
    assert isinstance(handled.plan, Drop)
    assert the_newest(db)["state"] == ProcessState.SERIAL_WAIT


# The turn-taking of a schedule's own runs


def of_schedule(db: Tables, definition_id: int, execution_type: ExecutionType) -> Handled:
    plan = a_begin(
        process_definition_id=definition_id,
        execution_type=execution_type,
        is_serial_by_schedule=True,
    )
    return carry_out(db, plan)


def test_a_run_keeps_what_its_schedule_says_of_others_and_nothing_if_that_says_nothing(
    db: Tables,
) -> None:
    definition_id = a_serial_definition(db, WAIT)
    one_more(db, definition_id, WAIT)
    assert the_newest(db)["execution_type"] is None
    of_schedule(db, definition_id, DISCARD)
    assert has(the_newest(db), execution_type=DISCARD, state=ProcessState.STOP)
    assert of_schedule(db, definition_id, ExecutionType.PARALLEL).ownership is not None
    assert has(the_newest(db), execution_type=ExecutionType.PARALLEL, state=ProcessState.RUNNING)


def test_a_run_that_waits_because_of_its_schedule_does_so_in_a_parallel_definition_too(
    db: Tables,
) -> None:
    definition_id = a_definition(db)
    first = one_more(db, definition_id, ExecutionType.PARALLEL).ownership
    assert first is not None
    waiting = []
    for _ in range(2):
        assert of_schedule(db, definition_id, WAIT).ownership is None
        waiting.append(the_newest(db)["id"])
    assert has(the_newest(db), state=ProcessState.SERIAL_WAIT, execution_type=WAIT)
    # The definition blocks none of them, and yet it is not their turn.
    assert let_go(db) == []
    end_run(db, first)
    (second,) = let_go(db)
    assert second.process_instance_id == waiting[0]
    assert let_go(db) == []
    end_run(db, second)
    (third,) = let_go(db)
    assert third.process_instance_id == waiting[1]


def test_a_turn_given_too_early_to_a_run_that_waits_by_its_schedule_is_dropped(db: Tables) -> None:
    definition_id = a_definition(db)
    one_more(db, definition_id, ExecutionType.PARALLEL)
    of_schedule(db, definition_id, WAIT)
    run_id = the_newest(db)["id"]
    turn = Resume(process_instance_id=run_id, epoch=0, command_type=CommandType.RECOVER_SERIAL_WAIT)
    handled = carry_out(db, turn)
    assert isinstance(handled.plan, Drop)
    assert has(the_newest(db), state=ProcessState.SERIAL_WAIT)


def test_those_that_wait_by_a_definition_made_parallel_begin_beside_one_that_waits_by_its_schedule(
    db: Tables,
) -> None:
    definition_id = a_serial_definition(db, WAIT)
    one_more(db, definition_id, WAIT)
    one_more(db, definition_id, WAIT)
    freed = the_newest(db)["id"]
    of_schedule(db, definition_id, WAIT)
    db.update(t.process_definition, definition_id, execution_type=0)
    assert [owned.process_instance_id for owned in let_go(db)] == [freed]
    assert has(the_newest(db), state=ProcessState.SERIAL_WAIT)
