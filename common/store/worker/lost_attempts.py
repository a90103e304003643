"""Ended attempts of lost workers, until no process of them is left on their host.

Used by `common.store.worker.tasks`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Engine, and_, bindparam, func, select, update

from common.model.states import FINISHED_TASK_CODES
from common.store.tables import task_instance
from common.store.transaction import any_of, possible_ids, repeatable, transaction

_MAY_RUN_ON: Final = and_(
    task_instance.c.lost_at.is_not(None),
    task_instance.c.state.in_(FINISHED_TASK_CODES),
    task_instance.c.execute_path.is_not(None),
    # An address is the host's name and a port.
    func.regexp_replace(task_instance.c.host, ":[0-9]+$", "") == bindparam("host_name"),
)
_LOST: Final = (
    select(task_instance.c.id, task_instance.c.execute_path)
    .where(_MAY_RUN_ON)
    .order_by(task_instance.c.id)
    .limit(1_000)
)
_FOUND: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(_MAY_RUN_ON)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True)
    .cte("found")
)
_FOUND_GONE: Final = (
    update(task_instance)
    .where(task_instance.c.id == _FOUND.c.id)
    .where(_MAY_RUN_ON)
    .values(lost_at=None)
)


def lost_attempts(engine: Engine, host: str) -> dict[int, str]:
    """Do what `TaskStore.lost` does."""
    rows = repeatable(engine, lambda db: db.execute(_LOST, {"host_name": host}).all())
    return {row.id: row.execute_path for row in rows}


def found_gone(engine: Engine, host: str, task_instance_ids: Collection[int]) -> None:
    """Do what `TaskStore.found_gone` does."""
    ids = possible_ids(task_instance_ids)
    if ids:
        with transaction(engine) as db:
            db.execute(_FOUND_GONE, {"ids": ids, "host_name": host})
