"""Pools (`t_ds_task_group`): made, resized and removed by people. Masters award their slots."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.store.tables import task_group


def create_pool(db: Connection, name: str, *, size: int, description: str | None) -> int | None:
    """Create a pool; return its id, or None if there is one of that name."""
    made: int | None = db.execute(
        pg_insert(task_group)
        .values(name=name, group_size=size, description=description)
        .on_conflict_do_nothing(index_elements=[task_group.c.name])
        .returning(task_group.c.id)
    ).scalar()
    return made


def known_pools(db: Connection, names: Collection[str]) -> frozenset[str]:
    """Return those of these names that are names of pools."""
    if not names:
        return frozenset()
    return frozenset(db.scalars(select(task_group.c.name).where(task_group.c.name.in_(names))))


def resize_pool(db: Connection, name: str, *, size: int, at: datetime) -> bool:
    """Resize a pool, False if there is none; masters look at the waiting attempts again at once."""
    changed = db.execute(
        update(task_group).where(task_group.c.name == name).values(group_size=size, update_time=at)
    )
    return changed.rowcount == 1


def lock_pool(db: Connection, name: str) -> bool:
    """Lock a pool, False if there is none; no slot of it is given until the transaction ends."""
    found = db.execute(
        select(task_group.c.id).where(task_group.c.name == name).with_for_update()
    ).first()
    return found is not None


def remove_pool(db: Connection, name: str) -> bool:
    """Remove a pool, False if there is none. The caller checks first that it is unused."""
    return db.execute(delete(task_group).where(task_group.c.name == name)).rowcount == 1
