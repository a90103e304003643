"""Pools (`t_ds_task_group`): made, resized, removed and listed by people; masters award slots."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.model.grants import GrantKind
from common.model.rights import Principal
from common.model.states import TaskState
from common.store.people.grants import is_shown
from common.store.queue_entries import IS_COMPLEMENT
from common.store.tables import process_instance, task_group, task_group_queue, task_instance


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """An attempt that holds slots of a pool, or waits for them, submitted at `since`.

    `ahead`: the number of those that wait in the same pool and go before it.
    """

    task_instance_id: int
    task_name: str
    process_instance_id: int
    slots: int
    holds: bool
    priority: int
    since: datetime | None
    ahead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool; `users`, where they were asked for: holders, then those that wait, the next first.

    `used` is the number of slots that are taken, `waiting` that of the attempts that wait, and
    `user_id` is whoever made it.
    """

    id: int
    name: str
    description: str | None
    size: int
    user_id: int
    used: int
    waiting: int
    users: tuple[PoolUse, ...]


def pools(
    db: Connection,
    *,
    seen_by: Principal | None = None,
    name: str | None = None,
    pool_id: int | None = None,
    after: int | None = None,
    limit: int | None = None,
    with_users: bool = False,
) -> list[PoolView]:
    """List all pools by name, the one of this name or id, or those behind an id by their ids.

    Their users are counted; they are only read if that is asked for, since there may be many.
    """
    # Code points, as other programs sort them, whatever the database's own order is.
    order = task_group.c.name.collate("C") if after is None else task_group.c.id
    statement = (
        select(
            task_group.c.id,
            task_group.c.name,
            task_group.c.description,
            task_group.c.group_size,
            task_group.c.user_id,
        )
        .where(is_shown(GrantKind.POOL, seen_by))
        .order_by(order)
        .limit(limit)
    )
    if name is not None:
        statement = statement.where(task_group.c.name == name)
    if pool_id is not None:
        statement = statement.where(task_group.c.id == pool_id)
    if after is not None:
        statement = statement.where(task_group.c.id > after)
    rows = db.execute(statement).all()
    users: dict[int, list[PoolUse]] = {row.id: [] for row in rows}
    if with_users:
        for group_id, use in pool_users(db, list(users)):
            users[group_id].append(use)
        counts = {
            key: (sum(use.slots for use in found if use.holds), sum(not use.holds for use in found))
            for key, found in users.items()
        }
    else:
        counts = _counts(db, list(users))
    return [
        PoolView(
            id=row.id,
            name=row.name,
            description=row.description,
            size=row.group_size,
            user_id=row.user_id,
            used=counts.get(row.id, (0, 0))[0],
            waiting=counts.get(row.id, (0, 0))[1],
            users=tuple(users[row.id]),
        )
        for row in rows
    ]


_HOLDS: Final = and_(
    task_group_queue.c.status == 1,
    task_instance.c.state.in_((TaskState.SUBMITTED, TaskState.RUNNING)),
)
_WAITS: Final = and_(
    task_group_queue.c.status == -1, task_instance.c.state == TaskState.WAITING_DEPEND
)


def _counts(db: Connection, ids: Collection[int]) -> dict[int, tuple[int, int]]:
    """Count the slots that are taken of each of these pools, and the attempts that wait."""
    rows = db.execute(
        select(
            task_group_queue.c.group_id,
            func.coalesce(func.sum(task_group_queue.c.weight).filter(_HOLDS), 0).label("used"),
            func.count().filter(_WAITS).label("waiting"),
        )
        .join_from(
            task_group_queue, task_instance, task_instance.c.id == task_group_queue.c.task_id
        )
        .where(task_group_queue.c.group_id.in_(ids))
        .where(or_(_HOLDS, _WAITS))
        .group_by(task_group_queue.c.group_id)
    )
    return {row.group_id: (row.used, row.waiting) for row in rows}


def pool_users(
    db: Connection, ids: Collection[int], *, waiting: Collection[int] | None = None
) -> list[tuple[int, PoolUse]]:
    """List the holders of these pools' slots and those waiting, in the order of the slots' award.

    A holder is an attempt that was given slots and may still run: nothing else takes a slot. Of
    those that wait, `waiting` names the ones to be listed; without it all are.
    """
    holds = task_group_queue.c.status == 1
    turn = (
        process_instance.c.process_instance_priority,
        IS_COMPLEMENT,
        task_group_queue.c.priority.desc(),
        task_instance.c.id,
    )
    users = (
        select(
            task_group_queue.c.group_id,
            task_group_queue.c.priority,
            task_group_queue.c.weight,
            holds.label("holds"),
            task_instance.c.id,
            task_instance.c.name,
            task_instance.c.process_instance_id,
            task_instance.c.submit_time,
            func.row_number()
            .over(partition_by=(task_group_queue.c.group_id, holds), order_by=turn)
            .label("place"),
        )
        .join_from(
            task_group_queue, task_instance, task_instance.c.id == task_group_queue.c.task_id
        )
        .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
        .where(task_group_queue.c.group_id.in_(ids))
        .where(or_(_HOLDS, _WAITS))
        .subquery("users")
    )
    statement = select(users).order_by(users.c.holds.desc(), users.c.place, users.c.group_id)
    if waiting is not None:
        statement = statement.where(or_(users.c.holds, users.c.id.in_(waiting)))
    rows = db.execute(statement)
    return [
        (
            row.group_id,
            PoolUse(
                task_instance_id=row.id,
                task_name=row.name,
                process_instance_id=row.process_instance_id,
                slots=row.weight,
                holds=row.holds,
                priority=row.priority,
                since=row.submit_time,
                ahead=row.place - 1,
            ),
        )
        for row in rows
    ]


def create_pool(
    db: Connection, name: str, *, size: int, description: str | None, user_id: int = 1
) -> int | None:
    """Create a pool; return its id, or None if there is one of that name."""
    made: int | None = db.execute(
        pg_insert(task_group)
        .values(name=name, group_size=size, description=description, user_id=user_id)
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
