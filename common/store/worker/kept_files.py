"""Queries that decide which files of runs and attempts a worker still has to keep.

Used by `common.store.worker.tasks`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Engine, select

from common.model.states import TaskState
from common.store.tables import process_instance, task_instance
from common.store.transaction import any_of, possible_ids, repeatable

_EXISTING: Final = select(process_instance.c.id).where(process_instance.c.id == any_of("ids"))
_SUCCEEDED: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.state.in_((TaskState.SUCCESS, TaskState.FORCED_SUCCESS)))
)


def existing_runs(engine: Engine, process_instance_ids: Collection[int]) -> frozenset[int]:
    """Return the process instances that exist."""
    asked = {"ids": possible_ids(process_instance_ids)}
    return frozenset(repeatable(engine, lambda db: db.scalars(_EXISTING, asked).all()))


def succeeded_attempts(engine: Engine, task_instance_ids: Collection[int]) -> frozenset[int]:
    """Return the attempts that ended as a success."""
    asked = {"ids": possible_ids(task_instance_ids)}
    return frozenset(repeatable(engine, lambda db: db.scalars(_SUCCEEDED, asked).all()))
