"""Taking commands off their table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from common.errors import BadCommandError
from common.model.commands import Command, CommandType
from common.model.decisions import (
    FinishProcess,
)
from common.model.instances import Ownership
from common.model.plans import Begin, Drop, Handled, Plan, Reject, Resume, SetIntent, Snapshot
from common.model.states import (
    ExecutionType,
    ProcessState,
    ReleaseState,
)
from common.store import tables as t
from common.store.master.ports import Intent, Planner
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    OTHER_MASTER,
    PARAM_LIMIT,
    REBORN,
    REFUSED,
    Tables,
    a_begin,
    a_command,
    a_definition,
    a_run,
    a_stop,
    about,
    always,
    an_intent,
    by_id,
    carry_out,
    has,
    load,
    planner_arguments,
    save,
    take,
    take_over,
    the_process,
)


def test_a_start_becomes_a_process_instance_that_belongs_to_its_taker(db: Tables) -> None:
    command_id = a_command(db)
    begin = a_begin(schedule_time=LATER, worker_group_id=3, locations="{}", timeout_minutes=5)
    (handled,) = take(db, always(begin))
    (row,) = db.rows(t.process_instance)
    owned = Ownership(process_instance_id=row["id"], host=MASTER.address, epoch=1)
    assert handled == Handled(command_id=command_id, plan=begin, ownership=owned)
    assert db.rows(t.command) == []
    expected = {
        "name": begin.name,
        "process_definition_id": 1,
        "state": 1,
        "recovery": 0,
        "start_time": NOON,
        "end_time": None,
        "run_times": 1,
        "host": MASTER.address,
        "owner_incarnation": MASTER.incarnation,
        "owner_epoch": 1,
        "command_type": 0,
        "command_param": "{}",
        "task_depend_type": 2,
        "max_try_times": 0,
        "failure_strategy": 1,
        "warning_type": 0,
        "warning_group_id": 0,
        "schedule_time": LATER,
        "command_start_time": NOON,
        "global_params": "[]",
        "process_instance_json": begin.process_instance_json,
        "flag": 1,
        "is_sub_process": 0,
        "executor_id": 1,
        "locations": "{}",
        "connects": None,
        "history_cmd": "START_PROCESS",
        "process_instance_priority": 2,
        "worker_group_id": 3,
        "timeout": 5,
        "tenant_id": -1,
        "wanted_state": None,
        "state_reason": None,
    }
    assert {name: row[name] for name in expected} == expected


def test_a_run_names_the_command_that_began_it_whatever_is_put_for_it_later(db: Tables) -> None:
    command_id = a_command(db)
    (handled,) = take(db, always(a_begin()))
    owned = handled.ownership
    assert owned is not None
    assert the_process(db, owned)["command_id"] == command_id
    taken_over = take_over(db, owned)
    assert (taken_over.epoch, the_process(db, taken_over)["command_id"]) == (2, command_id)


def test_t39b_commands_are_taken_by_priority_then_age_then_id(db: Tables) -> None:
    late = a_command(db, update_time=LATER)
    low = a_command(db, update_time=NOON, process_instance_priority=4)
    early = a_command(db, update_time=NOON)
    twin = a_command(db, update_time=NOON)
    urgent = a_command(db, update_time=LATER, process_instance_priority=0)
    drop = always(Drop(reason="only the order matters"))
    assert [one.command_id for one in take(db, drop, limit=2)] == [urgent, early]
    assert [one.command_id for one in take(db, drop)] == [twin, late, low]


def test_t68_a_minute_of_waiting_makes_up_for_a_level_of_priority(db: Tables) -> None:
    """T68: commands of low priority must not starve."""
    low = a_command(db, update_time=NOON, process_instance_priority=4)
    urgent_later = a_command(db, update_time=NOON + 5 * MINUTE, process_instance_priority=0)
    urgent_even = a_command(db, update_time=NOON + 4 * MINUTE, process_instance_priority=0)
    unknown = a_command(db, update_time=NOON, process_instance_priority=None)
    drop = always(Drop(reason="only the order matters"))
    handled = [one.command_id for one in take(db, drop)]
    assert handled == [unknown, urgent_even, low, urgent_later]


def test_of_those_that_need_room_no_more_are_taken_than_there_is_room_for(db: Tables) -> None:
    first, second, third = (a_command(db) for _ in range(3))
    stop, pause_ = a_command(db, command_type=9), a_command(db, command_type=8)
    drop = always(Drop(reason="only the choice matters"))
    handled = [one.command_id for one in take(db, drop, room=2)]
    assert sorted(handled) == [first, second, stop, pause_]
    assert [row["id"] for row in db.rows(t.command)] == [third]


@pytest.mark.parametrize("room", [1, 2, 100])
def test_a_stop_behind_more_runs_than_are_taken_at_once_is_not_held_up_by_them(
    db: Tables, room: int
) -> None:
    """As many as ten thousand runs may wait, and the instances to stop are what takes the room."""
    waiting = [a_command(db) for _ in range(5)]
    stop = a_command(db, command_type=9)
    child = a_command(db, parent_task_instance_id=4711)
    drop = always(Drop(reason="only the choice matters"))
    handled = [one.command_id for one in take(db, drop, limit=3, room=room)]
    assert handled == [stop, child, waiting[0]]


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_stop_behind_more_children_than_are_taken_at_once_is_not_held_up_by_them(
    db: Tables, room: int
) -> None:
    """A run may start thousands of children, and the stop may be for this run."""
    children = [a_command(db, parent_task_instance_id=4711 + n) for n in range(5)]
    start = a_command(db)
    stop = a_command(db, command_type=9)
    drop = always(Drop(reason="only the choice matters"))
    handled = [one.command_id for one in take(db, drop, limit=3, room=room)]
    assert handled == [stop, children[0], start if room else children[1]]
    handled = [one.command_id for one in take(db, drop, limit=3, room=room)]
    assert handled == (children[1:4] if room else children[2:])


def test_t36_t36d_without_room_pauses_stops_and_sub_processes_are_taken_all_the_same(
    db: Tables,
) -> None:
    """T36d: a parent whose child waits for room would wait for ever.

    And so would runs that fill the room, for slots or a turn that a lost master's run has.
    """
    waiting = [a_command(db, command_type=kind) for kind in (0, 3, 10, 11)]
    stop = a_command(db, command_type=9)
    child = a_command(db, parent_task_instance_id=4711)
    recovery = a_command(db, command_type=2)
    drop = always(Drop(reason="only the choice matters"))
    # A command that needs room does not use up the limit either, though it comes first.
    handled = [one.command_id for one in take(db, drop, limit=3, room=0)]
    assert sorted(handled) == [stop, child, recovery]
    assert [row["id"] for row in db.rows(t.command)] == waiting


def test_nothing_is_taken_without_capacity_or_without_commands(db: Tables) -> None:
    assert not db.commands.waiting()
    assert take(db, always(a_begin())) == ()
    a_command(db)
    assert db.commands.waiting()
    assert take(db, always(a_begin()), limit=0) == ()
    assert len(db.rows(t.command)) == 1


def test_a_planner_sees_the_command_its_definition_its_instance_and_who_is_alive(
    db: Tables,
) -> None:
    owned = a_run(db)
    definition_id = a_definition(db, name="flights", version=3, timeout=9, global_params="[]")
    a_command(
        db,
        command_type=9,
        process_definition_id=definition_id,
        command_param=json.dumps({"ProcessInstanceId": owned.process_instance_id}),
        schedule_time=LATER,
        worker_group_id=0,
    )
    seen: list[tuple[Command, Snapshot]] = []

    def planner(command: Command, snapshot: Snapshot) -> Plan:
        seen.append((command, snapshot))
        return Drop(reason="seen")

    take(db, planner)
    ((command, snapshot),) = seen
    assert command.command_type is CommandType.STOP
    assert (command.schedule_time, command.worker_group_id) == (LATER, -1)
    assert command.process_instance_id == owned.process_instance_id
    assert snapshot.definition is not None
    assert (snapshot.definition.name, snapshot.definition.version) == ("flights", 3)
    assert snapshot.definition.release_state is ReleaseState.ONLINE
    assert snapshot.definition.usable
    assert snapshot.definition.timeout_minutes == 9
    assert snapshot.instance is not None
    assert (snapshot.instance.state, snapshot.instance.owner) == (ProcessState.RUNNING, MASTER)
    assert snapshot.instance.owner_epoch == 1
    # Nobody's failover is among them, so nobody is asked for the living.
    assert snapshot.live_masters == frozenset()


def test_what_a_command_names_and_is_not_there_is_absent_from_the_snapshot(db: Tables) -> None:
    a_command(db, process_definition_id=None, command_param='{"ProcessInstanceId":"4711"}')
    seen: list[Snapshot] = []

    def planner(_command: Command, snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return Drop(reason="seen")

    take(db, planner)
    assert [(one.definition, one.instance) for one in seen] == [(None, None)]


def test_a_command_that_names_no_definition_is_about_that_of_its_instance(db: Tables) -> None:
    definition_id = a_definition(db, name="flights", execution_type=2)
    owned = a_run(db, process_definition_id=definition_id)
    for of_command in (None, 0):
        param = about(owned.process_instance_id)
        _, snapshot = planner_arguments(
            db, command_type=9, process_definition_id=of_command, command_param=param
        )
        assert snapshot.definition is not None
        assert (snapshot.definition.id, snapshot.definition.name) == (definition_id, "flights")
        assert snapshot.definition.execution_type is ExecutionType.SERIAL_DISCARD
        assert snapshot.asked_instance_id == owned.process_instance_id


def test_a_planner_is_told_which_instance_was_named_though_there_is_none(db: Tables) -> None:
    _, snapshot = planner_arguments(db, command_type=9, command_param=about(4711))
    assert (snapshot.asked_instance_id, snapshot.instance) == (4711, None)
    _, snapshot = planner_arguments(db)
    assert snapshot.asked_instance_id is None


# Waiting recoveries


@pytest.mark.parametrize("command_type", [3, 4, 7, 12])
def test_t14_of_two_recoveries_of_an_instance_that_people_type_the_second_is_refused(
    db: Tables, command_type: int
) -> None:
    """T14, and contract §3.9."""
    a_command(db, command_type=command_type, command_param='{"ProcessInstanceId": 12}')
    a_command(db, command_type=command_type, command_param='{"ProcessInstanceId":"13"}')
    for other_type, text in ((3, '{"x":1,"ProcessInstanceId":"12"}'), (7, about(13))):
        with pytest.raises(REFUSED):
            a_command(db, command_type=other_type, command_param=text)
    assert [row["process_instance_id"] for row in db.rows(t.command)] == [12, 13]


@pytest.mark.parametrize("command_type", [2, 11])
def test_t14_a_recovery_that_a_person_asks_for_does_not_hold_up_that_of_a_master(
    db: Tables, command_type: int
) -> None:
    a_command(db, command_type=7, command_param=about(12))
    a_command(db, command_type=command_type, command_param=about(12))
    with pytest.raises(REFUSED):
        a_command(db, command_type=command_type, command_param=about(12))
    assert [row["process_instance_id"] for row in db.rows(t.command)] == [12, 12]


def test_a_waiting_instance_too_is_recovered_once_at_a_time(db: Tables) -> None:
    a_command(db, command_type=10, command_param='{"WaittingThreadInstanceId":"12"}')
    with pytest.raises(REFUSED):
        a_command(db, command_type=10, command_param=about(12))


def test_a_recovery_may_be_typed_again_once_the_first_is_gone(db: Tables) -> None:
    for _ in range(2):
        a_command(db, command_type=3, command_param=about(12))
        take(db, always(Reject(reason="it still runs")))
    assert len(db.rows(t.error_command)) == 2


@pytest.mark.parametrize(
    ("command_type", "param"),
    [
        (0, '{"ProcessInstanceId":12}'),
        (8, '{"ProcessInstanceId":12}'),
        (9, '{"ProcessInstanceId":12}'),
        (3, None),
        (3, "{not JSON"),
        (3, '{"ProcessInstanceId":"x"}'),
        (3, '{"ProcessInstanceId":0}'),
        (3, '{"ProcessInstanceId":99999999999}'),
        (3, '{"ProcessInstanceId":2147483648}'),
        (None, '{"ProcessInstanceId":12}'),
    ],
)
def test_what_is_no_recovery_of_a_nameable_instance_is_never_refused(
    db: Tables, command_type: int | None, param: str | None
) -> None:
    for _ in range(2):
        a_command(db, command_type=command_type, command_param=param)
    assert [row["process_instance_id"] for row in db.rows(t.command)] == [0, 0]


def test_a_command_is_taken_once(db: Tables) -> None:
    a_command(db)
    assert len(take(db, always(a_begin()), node=MASTER)) == 1
    assert take(db, always(a_begin()), node=OTHER_MASTER) == ()
    assert len(db.rows(t.process_instance)) == 1


def test_a_rejected_command_is_kept_with_the_reason_and_its_columns_as_they_were(
    db: Tables,
) -> None:
    columns = {
        "command_type": 6,
        "process_definition_id": 99,
        "command_param": ' {"a" : 1}',
        "task_depend_type": 1,
        "failure_strategy": 0,
        "warning_type": 3,
        "warning_group_id": 7,
        "schedule_time": LATER,
        "start_time": NOON,
        "executor_id": 5,
        "update_time": NOON,
        "process_instance_priority": 1,
        "worker_group_id": 8,
    }
    command_id = a_command(db, **columns)
    (handled,) = take(db, always(Reject(reason="no\0such definition")))
    (row,) = db.rows(t.error_command)
    assert {name: row[name] for name in columns} == columns
    assert row["command_id"] == command_id
    assert row["message"] == "no\N{REPLACEMENT CHARACTER}such definition"
    assert isinstance(handled.plan, Reject)
    assert db.rows(t.command) == []


def test_t69_the_same_command_id_can_be_rejected_twice(db: Tables) -> None:
    a_command(db, id=2_000_000_001)
    take(db, always(Reject(reason="first")))
    a_command(db, id=2_000_000_001)
    take(db, always(Reject(reason="second")))
    assert [row["message"] for row in db.rows(t.error_command)] == ["first", "second"]


def _raising(error: Exception) -> Callable[[Command, Snapshot], Plan]:
    def planner(_command: Command, _snapshot: Snapshot) -> Plan:
        raise error

    return planner


@pytest.mark.parametrize(
    ("columns", "planner", "message"),
    [
        ({"command_param": "{not JSON"}, None, "command_param is not JSON"),
        ({"command_param": "[1]"}, None, "command_param must be a JSON object"),
        ({"command_param": "[" * 5900}, None, "command_param"),
        ({"command_param": '{"ProcessInstanceId":"x"}'}, None, "ProcessInstanceId"),
        ({"command_param": '{"ProcessInstanceId":"' + "9" * 30 + '"}'}, None, "ProcessInstanceId"),
        (
            {"command_param": '{"ProcessInstanceId":"' + "9" * 5000 + '"}'},
            None,
            "ProcessInstanceId",
        ),
        ({"command_param": "é" * PARAM_LIMIT}, None, f"has {2 * PARAM_LIMIT} bytes"),
        ({"command_param": '{"n":' + "9" * 5000 + "}"}, None, "command_param can't be read"),
        ({"command_type": 13}, None, "command_type is 13; it must be one of 0 START_PROCESS, "),
        ({"command_type": None}, None, "command_type is NULL"),
        ({"command_type": -(2**31)}, None, "command_type is -2147483648"),
        ({"task_depend_type": 3}, None, "task_depend_type is 3"),
        ({"failure_strategy": 2}, None, "failure_strategy is 2; it must be one of 0 END, 1 CON"),
        ({"warning_type": 70000}, None, "warning_type is 70000"),
        ({"process_instance_priority": -1}, None, "process_instance_priority is -1"),
        ({}, _raising(BadCommandError("there is no definition 1")), "there is no definition 1"),
        ({}, _raising(ZeroDivisionError("a mistake")), "ZeroDivisionError: a mistake"),
        ({}, always(a_begin(name="a\0b")), "name holds a NUL character"),
        ({}, always(a_begin(global_params="\ud800")), "global_params holds half of a surrogate"),
        ({}, always(a_begin(name="x" * 321)), "too long"),
        ({}, always(a_begin(tenant_id=2**40)), "out of range"),
    ],
)
def test_t69_a_poisoned_command_is_rejected_alone(
    db: Tables, columns: dict[str, Any], planner: Planner | None, message: str
) -> None:
    before = a_command(db)
    poisoned = a_command(db, **columns)
    behind = a_command(db)
    good = always(a_begin())

    def mixed(command: Command, snapshot: Snapshot) -> Plan:
        of = planner if planner is not None and command.id == poisoned else good
        return of(command, snapshot)

    handled = {one.command_id: one for one in take(db, mixed)}
    assert set(handled) == {before, poisoned, behind}
    assert handled[before].ownership is not None
    assert handled[behind].ownership is not None
    assert isinstance(handled[poisoned].plan, Reject)
    assert handled[poisoned].ownership is None
    (row,) = db.rows(t.error_command)
    assert row["command_id"] == poisoned
    assert message in row["message"]
    assert "INSERT" not in row["message"]
    assert row["command_param"] == columns.get("command_param")
    assert len(db.rows(t.process_instance)) == 2
    assert db.rows(t.command) == []


def test_a_command_about_an_instance_in_an_unknown_state_is_rejected(db: Tables) -> None:
    owned = a_run(db)
    db.update(t.process_instance, owned.process_instance_id, state=11)
    param = json.dumps({"ProcessInstanceId": owned.process_instance_id})
    a_command(db, command_type=9, command_param=param)
    (handled,) = take(db, always(a_stop(owned)))
    assert isinstance(handled.plan, Reject)
    assert "state 11" in handled.plan.reason


def test_a_batch_begins_many_runs_each_under_its_own_command(db: Tables) -> None:
    plans: dict[int, Plan] = {a_command(db): a_begin(name=f"run-{n}") for n in range(30)}
    handled = take(db, by_id(plans))
    names = {row["id"]: row["name"] for row in db.rows(t.process_instance)}
    for one in handled:
        assert isinstance(one.plan, Begin)
        assert one.ownership is not None
        assert names[one.ownership.process_instance_id] == one.plan.name
    assert len(handled) == len(names) == 30


def test_a_resume_makes_the_run_its_takers_and_raises_the_epoch(db: Tables) -> None:
    owned = a_run(db)
    now_owned = take_over(db, owned)
    assert now_owned == replace(owned, host=OTHER_MASTER.address, epoch=2)
    row = the_process(db, owned)
    assert (row["host"], row["owner_incarnation"]) == OTHER_MASTER_COLUMNS
    assert (row["owner_epoch"], row["recovery"], row["command_type"]) == (2, 1, 2)
    assert row["history_cmd"] == "START_PROCESS,RECOVER_TOLERANCE_FAULT_PROCESS"
    assert row["state"] == ProcessState.RUNNING
    assert load(db, now_owned).ownership == now_owned


OTHER_MASTER_COLUMNS = (OTHER_MASTER.address, OTHER_MASTER.incarnation)


def test_a_resume_that_somebody_else_has_done_since_is_dropped(db: Tables) -> None:
    owned = a_run(db)
    take_over(db, owned)
    a_command(db, command_type=2)
    stale = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    (handled,) = take(db, always(stale), node=REBORN)
    assert isinstance(handled.plan, Drop)
    assert handled.ownership is None
    assert the_process(db, owned)["owner_epoch"] == 2
    assert db.rows(t.command) == []


def test_t36b_an_instance_that_waited_for_room_goes_on_when_it_is_resumed_for_that(
    db: Tables,
) -> None:
    owned = a_run(db)
    db.update(t.process_instance, owned.process_instance_id, state=10)
    plan = Resume(
        process_instance_id=owned.process_instance_id,
        epoch=owned.epoch,
        command_type=CommandType.RECOVER_WAITTING_THREAD,
    )
    handled = carry_out(db, plan, node=OTHER_MASTER, now=LATER)
    assert handled.ownership == replace(owned, host=OTHER_MASTER.address, epoch=2)
    assert has(
        the_process(db, owned),
        state=1,
        recovery=0,
        command_type=10,
        start_time=NOON,
        history_cmd="START_PROCESS,RECOVER_WAITTING_THREAD",
    )
    assert isinstance(carry_out(db, replace(plan, epoch=2)).plan, Drop)


def test_a_run_that_has_ended_is_not_resumed(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, FinishProcess(state=ProcessState.SUCCESS))
    a_command(db, command_type=2)
    plan = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    (handled,) = take(db, always(plan))
    assert isinstance(handled.plan, Drop)
    assert the_process(db, owned)["state"] == ProcessState.SUCCESS


def test_a_stop_stores_what_is_wanted_and_changes_no_state(db: Tables) -> None:
    owned = a_run(db)
    a_command(db, command_type=9)
    (handled,) = take(db, always(a_stop(owned)), node=OTHER_MASTER)
    assert handled.plan == a_stop(owned)
    assert handled.ownership is None
    row = the_process(db, owned)
    assert (row["state"], row["wanted_state"], row["wanted_at"]) == (1, 5, NOON)
    assert (row["command_type"], row["history_cmd"]) == (9, "START_PROCESS,STOP")
    assert db.runs.wanted(MASTER) == {owned: Intent(state=ProcessState.STOP, at=NOON)}
    assert db.runs.wanted(OTHER_MASTER) == {}


def test_a_second_stop_is_dropped_also_within_one_batch(db: Tables) -> None:
    owned = a_run(db)
    a_command(db, command_type=9)
    a_command(db, command_type=9)
    first, second = take(db, always(a_stop(owned)))
    assert isinstance(first.plan, SetIntent)
    assert isinstance(second.plan, Drop)
    a_command(db, command_type=9)
    assert isinstance(take(db, always(a_stop(owned)))[0].plan, Drop)
    assert the_process(db, owned)["history_cmd"] == "START_PROCESS,STOP"


def test_t37_a_stop_that_comes_after_the_end_changes_nothing(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, FinishProcess(state=ProcessState.FAILURE, reason="it broke"))
    a_command(db, command_type=9)
    (handled,) = take(db, always(a_stop(owned)))
    assert isinstance(handled.plan, Drop)
    row = the_process(db, owned)
    assert (row["state"], row["wanted_state"]) == (ProcessState.FAILURE, None)
    assert row["history_cmd"] == "START_PROCESS"


def test_an_end_that_comes_after_a_stop_keeps_the_state_that_it_ended_in(db: Tables) -> None:
    owned = a_run(db)
    a_command(db, command_type=9)
    take(db, always(a_stop(owned)))
    save(db, owned, FinishProcess(state=ProcessState.SUCCESS))
    assert the_process(db, owned)["state"] == ProcessState.SUCCESS
    assert db.runs.wanted(MASTER) == {}


def test_a_pause_is_stored_and_a_stop_takes_its_place(db: Tables) -> None:
    owned = a_run(db)
    pause_it = an_intent(owned.process_instance_id, CommandType.PAUSE)
    assert carry_out(db, pause_it).plan == pause_it
    assert db.runs.wanted(MASTER) == {owned: Intent(state=ProcessState.PAUSE, at=NOON)}
    assert isinstance(carry_out(db, pause_it, now=LATER).plan, Drop)
    assert the_process(db, owned)["wanted_at"] == NOON
    assert carry_out(db, a_stop(owned), now=LATER).plan == a_stop(owned)
    assert db.runs.wanted(MASTER) == {owned: Intent(state=ProcessState.STOP, at=LATER)}
    assert the_process(db, owned)["history_cmd"] == "START_PROCESS,PAUSE,STOP"


@pytest.mark.parametrize("wanted", [ProcessState.STOP, ProcessState.FAILURE])
def test_a_pause_takes_the_place_of_nothing_stronger(db: Tables, wanted: ProcessState) -> None:
    owned = a_run(db)
    db.update(
        t.process_instance, owned.process_instance_id, wanted_state=int(wanted), wanted_at=NOON
    )
    pause_it = an_intent(owned.process_instance_id, CommandType.PAUSE)
    assert isinstance(carry_out(db, pause_it, now=LATER).plan, Drop)
    assert db.runs.wanted(MASTER) == {owned: Intent(state=wanted, at=NOON)}


def test_what_is_dropped_leaves_no_trace(db: Tables) -> None:
    a_command(db)
    (handled,) = take(db, always(Drop(reason="it has come about already")))
    assert handled.ownership is None
    assert db.rows(t.command) == db.rows(t.error_command) == db.rows(t.process_instance) == []
