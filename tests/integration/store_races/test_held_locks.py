"""Attempts that are held until they have their locks, released by one master or several."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select

from common.model.decisions import FinishTask, KillTask
from common.model.definitions import PoolShare
from common.model.instances import Ownership
from common.model.lock_needs import LockNeed
from common.model.locks import Lock, LockType
from common.model.states import TaskState
from common.store import tables as t
from common.store.master.holds import PostgresHoldStore
from common.store.streams.datasets import take_turn
from common.store.streams.locks import locks_of
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.integration.store_races.racing import WORKER, a_run, a_submit, attempt, claim, save


@pytest.fixture
def ds() -> str:
    return f"ds-{uuid.uuid4().hex[:8]}"


def need(ds: str, interval: str = "2026-11-20/P1D", **more: Any) -> LockNeed:
    return LockNeed(dataset=ds, interval=interval, **more)


def held_attempt(made: Engine, owned: Ownership, *locks: LockNeed, **more: Any) -> int:
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert save(made, owned, a_submit(name, locks=locks, **more)).offers == ()
    with made.connect() as db:
        return db.execute(
            select(t.task_instance.c.id).where(t.task_instance.c.name == name)
        ).scalar_one()


def release(made: Engine) -> list[int]:
    released = PostgresHoldStore(made).release(now=NOON)
    return [offer.task_instance_id for offer in released.offers]


def held(made: Engine, task_id: int) -> list[Lock]:
    with made.connect() as db:
        return list(locks_of(db, task_id))


def waits(made: Engine, task_id: int) -> int:
    with made.connect() as db:
        return db.execute(
            select(func.count()).where(t.task_lock_request.c.task_id == task_id)
        ).scalar_one()


def end(made: Engine, task_id: int) -> None:
    assert claim(made, WORKER, [task_id]) == [task_id]
    ended = AttemptEnd(
        task_instance_id=task_id, state=TaskState.FAILURE, end_time=NOON, exit_code=1, reason=None
    )
    assert PostgresTaskStore(made).report(WORKER, [ended]) == {task_id}


def test_an_attempt_is_offered_once_it_has_all_of_its_locks(here: Engine, ds: str) -> None:
    first = held_attempt(here, a_run(here), need(ds), need(f"{ds}.in", type=LockType.SHARED))
    second = held_attempt(here, a_run(here), need(ds))
    assert attempt(here, first).state == TaskState.WAITING_DEPEND
    assert release(here) == [first]
    assert [(lock.dataset, lock.type) for lock in held(here, first)] == [
        (ds, LockType.EXCLUSIVE),
        (f"{ds}.in", LockType.SHARED),
    ]
    assert (waits(here, first), waits(here, second)) == (0, 1)
    assert release(here) == []
    end(here, first)
    assert release(here) == [second]
    assert [lock.dataset for lock in held(here, second)] == [ds]


def test_tasks_of_one_run_share_their_lock(here: Engine, ds: str) -> None:
    owned = a_run(here)
    first, second = (held_attempt(here, owned, need(ds)) for _ in range(2))
    assert release(here) == [first, second]
    assert held(here, first) == held(here, second)


def test_masters_that_release_at_once_give_a_lock_once(
    here: Engine, there: Engine, ds: str
) -> None:
    ids = [held_attempt(here, a_run(here), need(ds)) for _ in range(4)]
    with ThreadPoolExecutor(2) as pool:
        released = [*pool.map(release, [here, there])]
    assert sorted(task_id for each in released for task_id in each) == [ids[0]]


@pytest.mark.parametrize(
    ("locks", "reason"),
    [
        (("${day}/P1D",), "'${day}' is no time"),
        (("2026-11-20/P1D", "2026-11-20/P2D"), "contradict each other"),
    ],
)
def test_locks_that_can_never_be_had_fail_the_attempt(
    here: Engine, ds: str, locks: tuple[str, ...], reason: str
) -> None:
    task_id = held_attempt(here, a_run(here), *(need(ds, text) for text in locks))
    assert release(here) == []
    row = attempt(here, task_id)
    assert row.state == TaskState.FAILURE
    assert reason in row.reason
    assert row.failure_reason == "CONFIGURATION"


def test_no_slots_are_kept_for_an_attempt_that_waits_for_a_lock(here: Engine, ds: str) -> None:
    name = f"pool-{uuid.uuid4().hex[:8]}"
    with here.begin() as db:
        db.execute(insert(t.task_group).values(name=name, group_size=1))
    share = (PoolShare(pool_name=name),)
    holder = held_attempt(here, a_run(here), need(ds))
    assert release(here) == [holder]
    both = held_attempt(here, a_run(here), need(ds), pools=share)
    slot = held_attempt(here, a_run(here), pools=share)
    assert release(here) == [slot]
    end(here, holder)
    # Its lock is free, and its slot is not.
    assert release(here) == []
    assert held(here, both) == []
    end(here, slot)
    assert release(here) == [both]


def test_an_attempt_waits_for_its_delay_and_then_for_its_locks(here: Engine, ds: str) -> None:
    later = NOON + timedelta(minutes=5)
    holder = held_attempt(here, a_run(here), need(ds))
    assert release(here) == [holder]
    delayed = held_attempt(here, a_run(here), need(ds), due_at=later)
    holds = PostgresHoldStore(here)
    assert holds.release(now=NOON).offers == ()
    assert attempt(here, delayed).state == TaskState.DELAY_EXECUTION
    assert holds.release(now=later).offers == ()
    assert attempt(here, delayed).state == TaskState.WAITING_DEPEND
    end(here, holder)
    (offer,) = holds.release(now=later).offers
    assert offer.task_instance_id == delayed


def test_an_attempt_that_is_withdrawn_waits_for_no_lock(here: Engine, ds: str) -> None:
    owned = a_run(here)
    task_id = held_attempt(here, owned, need(ds))
    name = attempt(here, task_id).name
    save(here, owned, KillTask(name=name, attempt=1))
    other = held_attempt(here, a_run(here), need(ds))
    assert release(here) == [other]
    assert (held(here, task_id), waits(here, task_id)) == ([], 0)


def test_a_dataset_that_is_in_use_just_now_is_asked_again_soon(
    here: Engine, there: Engine, ds: str
) -> None:
    task_id = held_attempt(here, a_run(here), need(ds))
    free = held_attempt(here, a_run(here), need(f"{ds}-free"))
    with there.begin() as db:
        take_turn(db, (ds,), shared=True)
        released = PostgresHoldStore(here).release(now=NOON)
        assert [offer.task_instance_id for offer in released.offers] == [free]
        assert released.next_due == NOON
    assert release(here) == [task_id]


def test_a_save_that_ends_the_holder_of_a_lock_wakes_the_hold_loop(here: Engine, ds: str) -> None:
    owned = a_run(here)
    task_id = held_attempt(here, owned, need(ds))
    assert release(here) == [task_id]
    end(here, task_id)
    name = attempt(here, task_id).name
    assert save(here, owned, FinishTask(name=name, attempt=1, state=TaskState.FAILURE)).holds
