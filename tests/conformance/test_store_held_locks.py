"""Attempts in both stores that are held until they have their locks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from common.model.decisions import FinishTask, KillTask
from common.model.definitions import PoolShare
from common.model.instances import Ownership
from common.model.lock_needs import LockNeed
from common.model.locks import LockType
from common.model.states import TaskState
from common.store import tables as t
from common.store.streams.locks import locks_of
from tests.builders import NOON
from tests.conformance.pools import a_pool
from tests.conformance.store_tables import (
    MemoryTables,
    PostgresTables,
    Tables,
    a_definition,
    a_run,
    a_submit,
    an_end,
    claim,
    end,
    released,
    save,
    the_newest_id,
    the_task,
)

DAY = "2026-11-20/P1D"


@pytest.fixture
def db(db: Tables) -> Tables:
    if isinstance(db, PostgresTables):
        with db.engine.begin() as rows:
            rows.execute(t.task_lock.delete())
    return db


def need(dataset: str = "flights", interval: str = DAY, **more: Any) -> LockNeed:
    return LockNeed(dataset=dataset, interval=interval, **more)


def held_attempt(
    db: Tables, *locks: LockNeed, owned: Ownership | None = None, name: str = "a", **more: Any
) -> int:
    """Submit an attempt, of a run of its own if none is given; return its id."""
    assert save(db, owned or a_run(db), a_submit(name, locks=locks, **more)).offers == ()
    return the_newest_id(db, t.task_instance)


def locks(db: Tables, task_id: int) -> list[tuple[str, LockType, bool]]:
    """The dataset and type of each lock that an attempt holds, and True if it was revoked."""
    if isinstance(db, MemoryTables):
        rows = db.database
        held = {row.lock_id for row in rows.lock_holders if row.task_id == task_id}
        return [(row.dataset, row.type, row.revoked) for row in rows.locks if row.id in held]
    assert isinstance(db, PostgresTables)
    with db.engine.connect() as connection:
        found = locks_of(connection, task_id)
    return [(lock.dataset, lock.type, lock.revoked) for lock in found]


def waits(db: Tables, task_id: int) -> int:
    """The number of locks that an attempt still asks for."""
    if isinstance(db, MemoryTables):
        return sum(row.task_id == task_id for row in db.database.lock_requests)
    assert isinstance(db, PostgresTables)
    requests = t.task_lock_request
    with db.engine.connect() as connection:
        return connection.execute(
            select(func.count()).where(requests.c.task_id == task_id)
        ).scalar_one()


def state_of(db: Tables, task_id: int) -> int:
    state: int = the_task(db, task_id)["state"]
    return state


def finish(db: Tables, task_id: int) -> None:
    assert claim(db, [task_id]) == [task_id]
    end(db, an_end(task_id, TaskState.FAILURE))


def test_an_attempt_is_offered_once_it_has_all_of_its_locks(db: Tables) -> None:
    first = held_attempt(db, need(), need("others", type=LockType.SHARED))
    second = held_attempt(db, need())
    assert state_of(db, first) == TaskState.WAITING_DEPEND
    assert waits(db, first) == 2
    assert released(db) == [first]
    assert locks(db, first) == [
        ("flights", LockType.EXCLUSIVE, False),
        ("others", LockType.SHARED, False),
    ]
    assert (waits(db, first), waits(db, second), locks(db, second)) == (0, 1, [])
    assert released(db) == []
    finish(db, first)
    assert released(db) == [second]
    assert locks(db, second) == [("flights", LockType.EXCLUSIVE, False)]


def test_an_attempt_gets_none_of_its_locks_while_one_is_another_s(db: Tables) -> None:
    holder = held_attempt(db, need("b"))
    assert released(db) == [holder]
    both = held_attempt(db, need("a"), need("b"))
    other = held_attempt(db, need("a"))
    assert released(db) == [other]
    assert (locks(db, both), waits(db, both)) == ([], 2)


def test_tasks_of_one_run_share_their_lock(db: Tables) -> None:
    owned = a_run(db)
    first, second = (held_attempt(db, need(), owned=owned, name=name) for name in "ab")
    assert released(db) == [first, second]
    other = held_attempt(db, need())
    finish(db, first)
    assert released(db) == []
    finish(db, second)
    assert released(db) == [other]


def test_readers_stand_beside_each_other_and_not_beside_a_writer(db: Tables) -> None:
    shared = need(type=LockType.SHARED)
    first, second = held_attempt(db, shared), held_attempt(db, shared)
    assert released(db) == [first, second]
    writer = held_attempt(db, need())
    elsewhere = held_attempt(db, need(interval="2026-11-21/P1D"))
    assert released(db) == [elsewhere]
    for reader in (first, second):
        assert state_of(db, writer) == TaskState.WAITING_DEPEND
        finish(db, reader)
    assert released(db) == [writer]


def test_a_higher_priority_takes_the_lock_and_marks_it(db: Tables) -> None:
    low = held_attempt(db, need(priority=25))
    assert released(db) == [low]
    high = held_attempt(db, need(priority=75))
    assert released(db) == [high]
    assert locks(db, low) == [("flights", LockType.EXCLUSIVE, True)]
    assert locks(db, high) == [("flights", LockType.EXCLUSIVE, False)]


@pytest.mark.parametrize(
    ("intervals", "reason"),
    [
        (("${day}/P1D",), "'${day}' is no time"),
        (("2026-11-20/P1D", "2026-11-20/P2D"), "contradict each other"),
    ],
)
def test_locks_that_can_never_be_had_fail_the_attempt(
    db: Tables, intervals: tuple[str, ...], reason: str
) -> None:
    task_id = held_attempt(db, *(need(interval=text) for text in intervals))
    assert released(db) == []
    row = the_task(db, task_id)
    assert (row["state"], row["failure_reason"]) == (TaskState.FAILURE, "CONFIGURATION")
    assert reason in row["reason"]


def test_no_slots_are_kept_for_an_attempt_that_waits_for_a_lock(db: Tables) -> None:
    a_pool(db)
    share = (PoolShare(pool_name="db"),)
    # Attempts that use the pool are of this project. A lock restricts only those of its project.
    own = a_run(db, process_definition_id=a_definition(db, project_id=1))
    holder = held_attempt(db, need(), owned=own)
    assert released(db) == [holder]
    both = held_attempt(db, need(), pools=share)
    slot = held_attempt(db, pools=share)
    assert released(db) == [slot]
    finish(db, holder)
    # Its lock is free, and its slot is not.
    assert released(db) == []
    assert locks(db, both) == []
    finish(db, slot)
    assert released(db) == [both]


def test_an_attempt_waits_for_its_delay_and_then_for_its_locks(db: Tables) -> None:
    later = NOON + timedelta(minutes=5)
    holder = held_attempt(db, need())
    assert released(db) == [holder]
    delayed = held_attempt(db, need(), due_at=later)
    assert released(db) == []
    assert state_of(db, delayed) == TaskState.DELAY_EXECUTION
    assert released(db, later) == []
    assert state_of(db, delayed) == TaskState.WAITING_DEPEND
    finish(db, holder)
    assert released(db, later) == [delayed]


def test_an_attempt_that_is_withdrawn_waits_for_no_lock(db: Tables) -> None:
    owned = a_run(db)
    task_id = held_attempt(db, need(), owned=owned)
    save(db, owned, KillTask(name="a", attempt=1))
    other = held_attempt(db, need())
    assert released(db) == [other]
    assert (locks(db, task_id), waits(db, task_id)) == ([], 0)


def test_a_save_that_ends_the_holder_of_a_lock_wakes_the_hold_loop(db: Tables) -> None:
    owned = a_run(db)
    task_id = held_attempt(db, need(), owned=owned)
    assert released(db) == [task_id]
    finish(db, task_id)
    ended = FinishTask(name="a", attempt=1, state=TaskState.FAILURE)
    assert save(db, owned, ended).holds
