"""Locks on datasets as people see them: who holds which, and who waits for which."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from common.model.intervals import IntervalError
from common.model.lock_needs import LockNeed, group_of_run, request_of
from common.model.locks import Busy, Impossible, Lock, LockType, Revoked, decide_lock
from common.model.rights import Principal
from common.model.states import HELD_TASK_STATES
from common.store.people.rights import seen_instances
from common.store.streams.locks import HeldLock, LockHolder, held_locks, locks_for
from common.store.tables import task_instance, task_lock_request
from common.why import LockHolder as Holder
from common.why import LockWait


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLock:
    """A lock that a held attempt waits for since it was submitted."""

    need: LockNeed
    since: datetime
    holder: LockHolder


def waiting_locks(
    db: Connection, *, datasets: Collection[str] | None = None, tasks: Collection[int] | None = None
) -> tuple[WaitingLock, ...]:
    """Return the locks that held attempts wait for, of these datasets or attempts or of all."""
    statement = (
        select(
            task_lock_request.c.dataset,
            task_lock_request.c.interval,
            task_lock_request.c.type,
            task_lock_request.c.priority,
            task_lock_request.c.create_time,
            task_instance.c.id,
            task_instance.c.name,
            task_instance.c.process_instance_id,
        )
        .join_from(
            task_lock_request, task_instance, task_instance.c.id == task_lock_request.c.task_id
        )
        .where(task_instance.c.state.in_(HELD_TASK_STATES))
        .order_by(task_lock_request.c.dataset, task_lock_request.c.id)
    )
    if datasets is not None:
        statement = statement.where(task_lock_request.c.dataset.in_(datasets))
    if tasks is not None:
        statement = statement.where(task_instance.c.id.in_(tasks))
    return tuple(
        WaitingLock(
            need=LockNeed(
                dataset=row.dataset,
                interval=row.interval,
                type=LockType(row.type),
                priority=row.priority,
            ),
            since=row.create_time,
            holder=LockHolder(
                task_instance_id=row.id,
                task_name=row.name,
                process_instance_id=row.process_instance_id,
            ),
        )
        for row in db.execute(statement)
    )


def lock_waits(
    db: Connection, held: Collection[int], principal: Principal, *, now: datetime
) -> dict[int, tuple[LockWait, ...]]:
    """Return the locks that each of these attempts waits for, with those that are in the way."""
    waiting = waiting_locks(db, tasks=held) if held else ()
    if not waiting:
        return {}
    standing = held_locks(db, {each.need.dataset for each in waiting})
    may_see = seen_instances(
        db, principal, {holder.process_instance_id for one in standing for holder in one.holders}
    )
    found: dict[int, tuple[LockWait, ...]] = {}
    for each in waiting:
        counting = locks_for(db, each.holder.task_instance_id, {each.need.dataset})
        counted = tuple(one for one in standing if one.lock.id in counting)
        problem, in_the_way = _in_the_way(each, counted, now)
        holders = [holder for one in in_the_way for holder in one.holders]
        seen = [one for one in holders if one.process_instance_id in may_see]
        wait = LockWait(
            dataset=each.need.dataset,
            interval=each.need.interval,
            type=each.need.type.value,
            problem=problem,
            holders=tuple(
                Holder(
                    task_instance_id=one.task_instance_id,
                    task_name=one.task_name,
                    process_instance_id=one.process_instance_id,
                    lock=_lock_of(one, in_the_way),
                )
                for one in seen
            ),
            hidden=len(holders) - len(seen),
        )
        task_id = each.holder.task_instance_id
        found[task_id] = (*found.get(task_id, ()), wait)
    return found


def _lock_of(holder: LockHolder, in_the_way: tuple[HeldLock, ...]) -> str:
    locks = [one.lock for one in in_the_way if holder in one.holders]
    return ", ".join(f"{lock.type} {lock.interval} (priority {lock.priority})" for lock in locks)


def _in_the_way(
    waiting: WaitingLock, standing: tuple[HeldLock, ...], now: datetime
) -> tuple[str | None, tuple[HeldLock, ...]]:
    try:
        request = request_of(waiting.need, group_of_run(waiting.holder.process_instance_id))
    except IntervalError as error:
        return str(error), ()
    by: tuple[Lock, ...] = ()
    match decide_lock(request, [one.lock for one in standing], now=now):
        case Busy(by=locks):
            by = locks
        case Revoked(lock=lock):
            by = (lock,)
        case Impossible(reason=reason):
            return reason, ()
        case _:
            pass
    return None, tuple(one for one in standing if one.lock in by)
