"""Releases of pools and turns, and time-outs, by several masters at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, func, insert, select, update

from common.model.commands import Command, CommandType
from common.model.decisions import FinishProcess
from common.model.definitions import PoolShare, TaskTimeout
from common.model.instances import Ownership
from common.model.plans import Begin, Plan, Resume, Snapshot
from common.model.states import ExecutionType, ProcessState, TaskState, TimeoutStrategy
from common.store import tables as t
from common.store.master import holds
from common.store.master.holds import PostgresHoldStore
from common.store.master.pool_grants import no_pool
from common.store.master.ports import Released
from common.store.master.runs import PostgresRunStore
from common.store.master.timeouts import PostgresTimeoutStore
from common.store.people.pools import lock_pool, remove_pool
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.granting import grant_all
from tests.integration.store_races.racing import (
    MASTER,
    OTHER_MASTER,
    WORKER,
    a_begin,
    a_run,
    a_submit,
    attempt,
    claim,
    commands,
    save,
    take,
    until_blocked,
)


def test_a_pool_that_somebody_removes_gives_no_slots(here: Engine, there: Engine) -> None:
    owned = a_run(here)
    name = a_pool(here, 3)
    save(here, owned, a_submit("a", pools=(PoolShare(pool_name=name),)))
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        assert lock_pool(other, name)
        releasing = pool.submit(PostgresHoldStore(here).release, now=NOON)
        until_blocked(there, "here")
        assert remove_pool(other, name)
        other.commit()
        assert releasing.result().offers == ()
    with here.connect() as db:
        (row,) = db.execute(
            select(t.task_instance).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        )
    assert (row.state, row.reason) == (6, no_pool(name).reason)


def a_pool(made: Engine, size: int) -> str:
    name = f"pool-{uuid.uuid4().hex[:8]}"
    with made.begin() as db:
        db.execute(insert(t.task_group).values(name=name, group_size=size))
        in_project(db)
        grant_all(db)
    return name


def in_project(db: Connection) -> None:
    """Create the definition of these tests' runs in a project that may use the pools."""
    runs = t.process_definition.c.id == 1
    if db.scalar(select(t.process_definition.c.id).where(runs)) is None:
        db.execute(insert(t.process_definition).values(id=1, name="races"))
        db.exec_driver_sql("SELECT nextval('t_ds_process_definition_id_seq')")


def test_masters_that_release_at_once_let_no_more_go_than_there_is_room_for(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    name = a_pool(here, 3)
    share = PoolShare(pool_name=name)
    save(here, owned, *(a_submit(f"t{n}", pools=(share,)) for n in range(20)))
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(PostgresHoldStore(made).release, now=NOON)
            for made in (here, there)
            for _ in range(4)
        ]
        offers = [offer for one in both for offer in one.result().offers]
    assert len(offers) == 3
    let_go = [offer.task_instance_id for offer in offers]
    claim(here, WORKER, let_go)
    assert PostgresHoldStore(here).release(now=NOON).offers == ()
    end = AttemptEnd(task_instance_id=let_go[0], state=TaskState.SUCCESS, end_time=NOON)
    PostgresTaskStore(here).report(WORKER, [end])
    assert len(PostgresHoldStore(there).release(now=NOON).offers) == 1


def test_a_release_that_chooses_others_waits_for_the_one_before(
    here: Engine, there: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases that choose the same attempts would be kept apart by their rows alone."""
    owned = a_run(here)
    share = PoolShare(pool_name=a_pool(here, 1))
    save(here, owned, a_submit("first", pools=(share,)))
    move = holds._move
    with ThreadPoolExecutor(1) as pool:
        second: list[Future[Released]] = []

        def move_later(db: Connection, *rest: Any) -> frozenset[int]:
            if not second:
                # The first has chosen. What comes now goes before what it has chosen.
                save(there, owned, a_submit("urgent", pools=(share,), pool_priority=9))
                second.append(pool.submit(PostgresHoldStore(there).release, now=NOON))
                until_blocked(here, "there")
            return move(db, *rest)

        monkeypatch.setattr(holds, "_move", move_later)
        offers = PostgresHoldStore(here).release(now=NOON).offers
        assert len(offers + second[0].result().offers) == 1


@pytest.mark.parametrize("weight", [1, 3])
def test_an_attempt_that_comes_amid_a_release_and_wants_another_pool_is_not_failed_for_that(
    here: Engine, there: Engine, monkeypatch: pytest.MonkeyPatch, weight: int
) -> None:
    owned = a_run(here)
    known = PoolShare(pool_name=a_pool(here, 2))
    other = a_pool(here, 2)
    save(here, owned, a_submit("first", pools=(known,)))
    look = holds._pools

    def look_and_submit(db: Connection) -> Any:
        pools = look(db)
        monkeypatch.setattr(holds, "_pools", look)
        save(
            there, owned, a_submit("late", pools=(known, PoolShare(pool_name=other, slots=weight)))
        )
        return pools

    monkeypatch.setattr(holds, "_pools", look_and_submit)
    assert len(PostgresHoldStore(here).release(now=NOON).offers) == 1
    assert _late(here, owned).reason is None
    offers = PostgresHoldStore(here).release(now=NOON).offers
    late = _late(here, owned)
    if weight == 1:
        assert (len(offers), late.state) == (1, TaskState.SUBMITTED)
    else:
        assert late.reason == f"pool {other!r} has 2 slots, the task needs 3"


def _late(made: Engine, owned: Ownership) -> Any:
    row = t.task_instance.c
    named = (row.process_instance_id == owned.process_instance_id, row.name == "late")
    with made.connect() as db:
        return db.execute(select(t.task_instance).where(*named)).one()


def test_a_release_that_waits_for_a_withdrawal_lets_nothing_go(here: Engine, there: Engine) -> None:
    owned = a_run(here)
    save(here, owned, a_submit("late", due_at=NOON))
    with here.connect() as db:
        task_id = db.scalar(
            select(t.task_instance.c.id).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        )
    assert task_id is not None
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, wanted_state=9, end_time=NOON)
        )
        releasing = pool.submit(PostgresHoldStore(here).release, now=NOON)
        until_blocked(there, "here")
        other.commit()
        assert releasing.result().offers == ()
    assert attempt(here, task_id).state == TaskState.KILL


def a_serial_definition(made: Engine) -> int:
    with made.begin() as db:
        # The runs of all the other tests are of definition 1.
        db.execute(insert(t.process_definition).values(name=uuid.uuid4().hex))
        definition_id: int = db.scalars(
            insert(t.process_definition)
            .values(name=f"serial-{uuid.uuid4().hex[:8]}", execution_type=1)
            .returning(t.process_definition.c.id)
        ).one()
    return definition_id


def serially(definition_id: int) -> Callable[[Command, Snapshot], Plan]:
    def plan(command: Command, snapshot: Snapshot) -> Plan:
        if command.command_type is CommandType.RECOVER_SERIAL_WAIT:
            assert snapshot.instance is not None
            return Resume(
                process_instance_id=snapshot.instance.id,
                epoch=snapshot.instance.owner_epoch,
                command_type=CommandType.RECOVER_SERIAL_WAIT,
            )
        begin = a_begin(command, snapshot)
        assert isinstance(begin, Begin)
        return replace(
            begin,
            process_definition_id=definition_id,
            execution_type=ExecutionType.SERIAL_WAIT,
        )

    return plan


def test_of_runs_of_a_serial_definition_that_begin_at_once_one_is_live(
    here: Engine, there: Engine
) -> None:
    definition_id = a_serial_definition(here)
    plan = serially(definition_id)
    commands(here, 12, process_definition_id=definition_id)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(take, made, node, plan, limit=1)
            for made, node in ((here, MASTER), (there, OTHER_MASTER))
            for _ in range(6)
        ]
        owners = [owner for one in both for owner in one.result().values()]
    while left := take(here, MASTER, plan):
        owners += left.values()
    assert len(owners) == 12
    assert len([owner for owner in owners if owner is not None]) == 1


def test_a_run_that_waits_while_the_last_live_one_ends_gets_its_turn_once_15270(
    here: Engine, there: Engine
) -> None:
    definition_id = a_serial_definition(here)
    plan = serially(definition_id)
    commands(here, 1, process_definition_id=definition_id)
    (first,) = take(here, MASTER, plan).values()
    assert first is not None
    commands(here, 1, process_definition_id=definition_id)
    with ThreadPoolExecutor(2) as pool:
        ending = pool.submit(save, here, first, FinishProcess(state=ProcessState.SUCCESS))
        taking = pool.submit(take, there, OTHER_MASTER, plan)
        assert ending.result().holds
        (second,) = taking.result().values()
    with ThreadPoolExecutor(2) as pool:
        releasing = [
            pool.submit(PostgresHoldStore(made).release, now=NOON) for made in (here, there)
        ]
        let_begin = sum(one.result().instances for one in releasing)
    # It came before the end and waited, or after it and did not have to.
    assert let_begin == (1 if second is None else 0)
    begun = [owner for owner in take(here, MASTER, plan).values() if owner is not None]
    assert len(begun) == let_begin


def test_t46c_masters_that_time_out_at_once_make_one_alert_of_each(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    slow = TaskTimeout(after=timedelta(minutes=1), strategy=TimeoutStrategy.WARN)
    save(here, owned, *(a_submit(f"t{n}", timeout=slow) for n in range(10)))
    with here.begin() as db:
        ids = db.scalars(
            select(t.task_instance.c.id).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        ).all()
        db.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .values(timeout=1, timeout_strategy=2)
        )
        before = db.scalar(select(func.count()).select_from(t.alert))
    claim(here, WORKER, list(ids))
    later = NOON + timedelta(minutes=2)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(PostgresTimeoutStore(made).time_out, now=later)
            for made in (here, there)
            for _ in range(3)
        ]
        done = sum(one.result() for one in both)
    with here.connect() as db:
        after = db.scalar(select(func.count()).select_from(t.alert))
    assert before is not None
    assert after == before + 11
    assert done == 11
    assert PostgresRunStore(here).wanted(MASTER)[owned].state is ProcessState.FAILURE
