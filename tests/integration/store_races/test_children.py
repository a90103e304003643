"""Parents and children that begin, end and are killed at the same moment."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sqlalchemy import Engine, event, select, update

from common.model.commands import Command
from common.model.decisions import FinishProcess, KillTask
from common.model.plans import Plan, Snapshot
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.master.ports import Saved, Step
from common.store.master.runs import PostgresRunStore
from tests.builders import NOON
from tests.integration.store_races.racing import (
    MASTER,
    OTHER_MASTER,
    a_child_begin,
    a_run,
    an_intent_for_a_child,
    attempt,
    child_commands,
    children,
    instance,
    save,
    take,
    until_blocked,
)


def kill(name: str) -> KillTask:
    return KillTask(name=name, attempt=1)


def test_t36c_a_child_that_waits_for_its_parents_kill_does_not_begin(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (task_id,) = an_intent_for_a_child(here, owned, "sub")
    (command_id,) = child_commands(here, [task_id])
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        # As a save with KillTask writes it, just before its commit.
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, wanted_state=9, end_time=NOON)
        )
        taking = pool.submit(take, here, OTHER_MASTER, a_child_begin)
        until_blocked(there, "here")
        other.commit()
        assert taking.result() == {command_id: None}
    with here.connect() as db:
        ids = select(t.process_instance.c.id).where(
            t.process_instance.c.parent_task_instance_id == task_id
        )
        assert db.execute(ids).all() == []


def test_a_kill_that_waits_for_a_childs_beginning_is_passed_on_to_the_child(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (task_id,) = an_intent_for_a_child(here, owned, "sub")
    with ThreadPoolExecutor(2) as pool:
        killing: Future[Saved]
        began: list[Future[Saved]] = []

        def plan(command: Command, snapshot: Snapshot) -> Plan:
            return a_child_begin(command, snapshot)

        @event.listens_for(there, "before_cursor_execute")
        def _kill_before_the_end(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
            # The attempt is claimed by then, and the transaction still open.
            if "DELETE FROM t_ds_command" in statement and not began:
                began.append(pool.submit(save, here, owned, kill("sub")))
                until_blocked(here, "here")

        begun = take(there, OTHER_MASTER, plan)
        killing = began[0]
        assert killing.result().intents
    (child,) = (owner for owner in begun.values() if owner is not None)
    assert attempt(here, task_id).state == TaskState.RUNNING
    assert PostgresRunStore(here).propagate_intents(MASTER) == 1
    assert PostgresRunStore(here).wanted(OTHER_MASTER)[child].state is ProcessState.STOP
    assert PostgresRunStore(here).propagate_intents(MASTER) == 0


def test_t37_a_childs_end_that_waits_for_its_parents_kill_is_its_end_all_the_same(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (child,) = children(here, owned, "sub")
    task_id = instance(here, child.process_instance_id).parent_task_instance_id
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance).where(t.task_instance.c.id == task_id).values(wanted_state=9)
        )
        ending = pool.submit(save, here, child, FinishProcess(state=ProcessState.SUCCESS))
        until_blocked(there, "here")
        other.commit()
        assert ending.result().lost == frozenset()
    row = attempt(here, task_id)
    assert (row.state, row.wanted_state, row.settled) == (7, 9, False)


def test_a_childs_end_comes_too_late_for_an_attempt_that_was_given_up(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (child,) = children(here, owned, "sub")
    task_id = instance(here, child.process_instance_id).parent_task_instance_id
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, wanted_state=9, end_time=NOON, settled=True)
        )
        ending = pool.submit(save, here, child, FinishProcess(state=ProcessState.SUCCESS))
        until_blocked(there, "here")
        other.commit()
        ending.result()
    assert attempt(here, task_id).state == TaskState.KILL
    assert instance(here, child.process_instance_id).state == ProcessState.SUCCESS


def test_parents_that_kill_and_children_that_end_do_not_wait_in_a_ring(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    names = [f"s{n}" for n in range(30)]
    begun = children(here, owned, *names)
    assert len(begun) == len(names)
    store = PostgresRunStore(there)
    with ThreadPoolExecutor(2) as pool:
        killing = pool.submit(save, here, owned, *(kill(name) for name in reversed(names)))
        ending = pool.submit(
            store.save,
            [
                Step(
                    ownership=child,
                    decisions=(FinishProcess(state=ProcessState.SUCCESS),),
                    at=NOON,
                )
                for child in reversed(begun)
            ],
        )
        assert ending.result().lost == frozenset()
        assert killing.result().withdrawn == ()
    with here.connect() as db:
        states = db.scalars(
            select(t.task_instance.c.state).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        ).all()
    assert states == [TaskState.SUCCESS] * len(names)
