"""Commands that several masters take at once, or that wait for rows which others hold."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine, delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from common.model.cluster import Node
from common.model.commands import Command, CommandType
from common.model.plans import Begin, Drop, Plan, SetIntent, Snapshot
from common.model.states import ExecutionType, ProcessState, TaskState
from common.store import tables as t
from common.store.master.failover import PostgresFailoverStore
from common.store.master.ports import FirstStep
from common.store.master.runs import PostgresRunStore
from tests.builders import NOON
from tests.integration.store_races.racing import (
    MASTER,
    OTHER_MASTER,
    a_begin,
    a_child_begin,
    a_run,
    an_intent_for_a_child,
    attempt,
    begin_with_a_task,
    child_commands,
    commands,
    instance,
    take,
    until_blocked,
)


@pytest.mark.parametrize("first_step", [None, begin_with_a_task], ids=["general", "plain"])
def test_masters_that_take_at_once_take_each_command_once(
    here: Engine, there: Engine, first_step: FirstStep | None
) -> None:
    made = commands(here, 120)

    def take_all(engine_of_one: Engine, node: Node) -> list[int]:
        taken: list[int] = []
        while batch := take(engine_of_one, node, limit=7, first_step=first_step):
            taken += batch
        return taken

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(take_all, here, MASTER), pool.submit(take_all, there, OTHER_MASTER)]
        # A loop ends when all that is left is locked by the other, who then takes it.
        taken = [command_id for one in both for command_id in one.result()]
    assert sorted(taken) == made
    with here.connect() as db:
        names = db.scalars(
            select(t.process_instance.c.name).where(
                t.process_instance.c.name.in_([f"run-{command_id}" for command_id in made])
            )
        ).all()
    assert len(names) == len(set(names)) == len(made)


@pytest.mark.parametrize("first_step", [None, begin_with_a_task], ids=["general", "plain"])
def test_commands_that_another_master_holds_are_passed_over(
    here: Engine, there: Engine, first_step: FirstStep | None
) -> None:
    held, free = commands(here, 2)
    with there.begin() as db:
        db.execute(select(t.command.c.id).where(t.command.c.id == held).with_for_update())
        assert list(take(here, MASTER, first_step=first_step)) == [free]
    assert list(take(here, MASTER, first_step=first_step)) == [held]


def test_a_command_that_is_changed_while_it_is_planned_is_planned_again(
    here: Engine, there: Engine
) -> None:
    (command_id,) = commands(here, 1, worker_group_id=1)
    planned = []

    def change(found: Command, snapshot: Snapshot) -> Plan:
        planned.append(found.worker_group_id)
        if len(planned) == 1:
            with there.begin() as db:
                db.execute(
                    update(t.command).where(t.command.c.id == command_id).values(worker_group_id=2)
                )
        begin = a_begin(found, snapshot)
        assert isinstance(begin, Begin)
        return replace(begin, worker_group_id=found.worker_group_id)

    (owned,) = take(here, MASTER, change, first_step=begin_with_a_task).values()
    assert planned == [1, 2]
    assert owned is not None
    assert instance(here, owned.process_instance_id).worker_group_id == 2


def test_a_command_that_is_withdrawn_while_it_is_planned_begins_nothing(
    here: Engine, there: Engine
) -> None:
    (command_id,) = commands(here, 1)

    def withdraw(found: Command, snapshot: Snapshot) -> Plan:
        with there.begin() as db:
            db.execute(delete(t.command).where(t.command.c.id == command_id))
        return a_begin(found, snapshot)

    assert take(here, MASTER, withdraw, first_step=begin_with_a_task) == {}
    with here.connect() as db:
        begun = select(func.count()).where(t.process_instance.c.name == f"run-{command_id}")
        assert db.scalar(begun) == 0


def test_t37_a_stop_that_waits_for_the_end_of_a_run_changes_nothing(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (command_id,) = commands(here, 1, command_type=9)
    stop = SetIntent(
        process_instance_id=owned.process_instance_id,
        command_type=CommandType.STOP,
        wanted_state=ProcessState.STOP,
    )
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .values(state=7, end_time=NOON)
        )
        stopping = pool.submit(take, here, OTHER_MASTER, lambda _command, _snapshot: stop)
        until_blocked(there, "here")
        other.commit()
        assert command_id in stopping.result()
    row = instance(here, owned.process_instance_id)
    assert (row.state, row.wanted_state, row.command_type) == (7, None, 0)


@pytest.mark.parametrize("first_step", [None, begin_with_a_task], ids=["general", "plain"])
def test_a_command_and_what_it_begins_are_one_transaction_1246(
    here: Engine, first_step: FirstStep | None
) -> None:
    (command_id,) = commands(here, 1)
    fails = "test_1246_fails"
    with here.begin() as db:
        db.execute(
            text(
                f"CREATE FUNCTION {fails}() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'the command stays'; END $$"
            )
        )
        db.execute(
            text(
                f"CREATE TRIGGER {fails} BEFORE DELETE ON t_ds_command"
                f" FOR EACH ROW EXECUTE FUNCTION {fails}()"
            )
        )
    try:
        with pytest.raises(DBAPIError, match="the command stays"):
            take(here, MASTER, first_step=first_step)
        with here.connect() as db:
            begun = select(func.count()).where(t.process_instance.c.name == f"run-{command_id}")
            assert db.scalar(begun) == 0
    finally:
        with here.begin() as db:
            db.execute(text(f"DROP FUNCTION {fails}() CASCADE"))
    assert list(take(here, MASTER, first_step=first_step)) == [command_id]


def test_masters_that_find_the_same_loss_at_once_recover_each_run_once(
    here: Engine, there: Engine
) -> None:
    gone = Node(address="10.0.0.9:5678", incarnation=9)
    runs = commands(here, 20)
    take(here, gone)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(PostgresFailoverStore(made).recover_runs, gone, now=NOON)
            for made in (here, there)
        ]
        assert sum(one.result() for one in both) == len(runs)
    recovered = take(here, MASTER, lambda _command, _snapshot: Drop(reason="counted"))
    assert len(recovered) == len(runs)


def test_a_frozen_masters_run_does_not_hold_up_the_commands_of_others(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    param = f'{{"ProcessInstanceId":{owned.process_instance_id}}}'
    (stop,) = commands(here, 1, command_type=9, command_param=param)
    (start,) = commands(here, 1)

    def plan(command: Command, snapshot: Snapshot) -> Plan:
        if command.command_type is not CommandType.STOP:
            return a_begin(command, snapshot)
        return SetIntent(
            process_instance_id=owned.process_instance_id,
            command_type=CommandType.STOP,
            wanted_state=ProcessState.STOP,
        )

    with there.begin() as frozen:
        frozen.execute(
            select(t.process_instance.c.id)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .with_for_update()
        )
        assert list(take(here, OTHER_MASTER, plan)) == [start]
    assert list(take(here, OTHER_MASTER, plan)) == [stop]
    assert PostgresRunStore(here).wanted(MASTER)[owned].state is ProcessState.STOP


def test_an_attempt_that_stays_locked_holds_up_the_command_for_its_child_alone(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (task_id,) = an_intent_for_a_child(here, owned, "sub")
    (wanted,) = child_commands(here, [task_id])
    (start,) = commands(here, 1)

    def plan(command: Command, snapshot: Snapshot) -> Plan:
        if command.parent_task_instance_id:
            return a_child_begin(command, snapshot)
        return a_begin(command, snapshot)

    with there.begin() as frozen:
        # The lock of a master that kills it and then freezes.
        frozen.execute(
            select(t.task_instance.c.id).where(t.task_instance.c.id == task_id).with_for_update()
        )
        assert list(take(here, OTHER_MASTER, plan)) == [start]
    assert attempt(here, task_id).state == TaskState.SUBMITTED
    begun = take(here, OTHER_MASTER, plan)
    assert [command_id for command_id, owner in begun.items() if owner] == [wanted]
    assert attempt(here, task_id).state == TaskState.RUNNING


def test_a_definition_that_stays_locked_holds_up_its_own_runs_alone(
    here: Engine, there: Engine
) -> None:
    with here.begin() as db:
        serial: int = db.execute(
            insert(t.process_definition)
            .values(name=f"serial-{uuid.uuid4().hex}", execution_type=1)
            .returning(t.process_definition.c.id)
        ).scalar_one()
    (waits,) = commands(here, 1, process_definition_id=serial)
    (start,) = commands(here, 1)

    def plan(command: Command, snapshot: Snapshot) -> Plan:
        begin = a_begin(command, snapshot)
        assert isinstance(begin, Begin)
        if command.id != waits:
            return begin
        return replace(
            begin, process_definition_id=serial, execution_type=ExecutionType.SERIAL_WAIT
        )

    with there.begin() as frozen:
        # The lock of a master that decides the next turn and then freezes.
        frozen.execute(
            select(t.process_definition.c.id)
            .where(t.process_definition.c.id == serial)
            .with_for_update(key_share=True)
        )
        assert list(take(here, MASTER, plan)) == [start]
    assert list(take(here, MASTER, plan)) == [waits]
