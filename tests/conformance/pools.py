"""Pools in both stores, and attempts that are held for their slots."""

from __future__ import annotations

from typing import Any

from common.model.definitions import PoolShare
from common.model.instances import Ownership
from common.model.states import TaskState
from common.store import tables as t
from tests.conformance.store_tables import (
    Tables,
    a_submit,
    save,
    the_newest_id,
    the_task,
)


def a_pool(db: Tables, name: str = "db", size: int = 1, **columns: Any) -> int:
    return db.insert(t.task_group, name=name, group_size=size, **columns)


def share(pool: int | str, slots: int = 1) -> PoolShare:
    if isinstance(pool, int):
        return PoolShare(pool_id=pool, slots=slots)
    return PoolShare(pool_name=pool, slots=slots)


def submit_held(
    db: Tables, owned: Ownership, name: str, *pools: PoolShare, attempt: int = 1, **changes: Any
) -> int:
    """Submit an attempt that is held back; return its id."""
    saved = save(db, owned, a_submit(name, attempt, pools=pools, **changes))
    assert (saved.offers, saved.holds) == ((), True)
    return the_newest_id(db, t.task_instance)


def state_of(db: Tables, task_id: int) -> TaskState:
    return TaskState(the_task(db, task_id)["state"])


def queue_of(db: Tables, task_id: int) -> list[dict[str, Any]]:
    return [row for row in db.rows(t.task_group_queue) if row["task_id"] == task_id]
