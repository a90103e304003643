"""Grants, joins, revokes and releases locks on intervals of datasets.

`common.model.locks` decides; this reads what stands, under the turn at the datasets, and writes the
decision. A lock whose holders have all ended counts no more, however they ended, and is removed by
the next request: so nothing need be released for one to end. A lock of a project that no longer
reaches the dataset is ignored, and the next request revokes it. Used by masters for their tasks,
and for the tasks of streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

from sqlalchemy import (
    Boolean,
    Connection,
    DateTime,
    Integer,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert

from common.model.intervals import Interval
from common.model.locks import (
    Busy,
    Grant,
    Impossible,
    Join,
    Lock,
    LockGranularity,
    LockRequest,
    LockType,
    NotShared,
    Revoked,
    decide_locks,
    not_shared,
)
from common.model.states import LIVE_TASK_STATES
from common.store.fixed_statement import FixedStatement
from common.store.streams.datasets import overlaps, take_turn
from common.store.streams.reach import counts_for, project_of_task, reaches_dataset
from common.store.tables import (
    pending_segment,
    segment,
    task_instance,
    task_lock,
    task_lock_holder,
)
from common.store.transaction import AnyRow, StoreConflictError, any_of, unnested

_IS_HELD: Final = (
    exists()
    .where(task_lock_holder.c.lock_id == task_lock.c.id)
    .where(task_instance.c.id == task_lock_holder.c.task_id)
    .where(task_instance.c.state.in_(LIVE_TASK_STATES))
    .correlate(task_lock)
)
_PROJECT: Final = project_of_task(cast(bindparam("task_id"), Integer))
_HOLDING: Final = project_of_task(task_lock_holder.c.task_id)
IS_REACHED: Final = _IS_HELD.where(reaches_dataset(_HOLDING, task_lock.c.dataset))
"""The condition that a live attempt holds a lock and that its project reaches the dataset."""
_COUNTS: Final = _IS_HELD.where(counts_for(_PROJECT, _HOLDING, task_lock.c.dataset))
_DATASETS: Final = any_(cast(bindparam("datasets"), ARRAY(Text)))
# A project may have lost the dataset since the grant: another one owns it now, or a share ended.
_LOST: Final = (
    update(task_lock)
    .where(task_lock.c.dataset == _DATASETS)
    .where(task_lock.c.revoked.is_(False))
    .where(_IS_HELD)
    .where(~IS_REACHED)
    .values(revoked=True)
    .cte("lost")
)
_DEAD: Final = (
    delete(task_lock).where(task_lock.c.dataset == _DATASETS).where(~_IS_HELD).cte("dead")
)
_TIME: Final = DateTime(timezone=True)
_ASKED: Final = unnested(
    "asked", place=Integer, dataset=Text, start=_TIME, end=_TIME, by_segment=Boolean
)
_NOW: Final = func.statement_timestamp()
_NOW_AS_VERSION: Final = func.to_char(func.timezone("UTC", _NOW), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
LOCK_COLUMNS: Final = (
    task_lock.c.id,
    task_lock.c.dataset,
    task_lock.c.group_id,
    func.lower(task_lock.c.interval).label("start"),
    func.upper(task_lock.c.interval).label("end"),
    task_lock.c.version,
    task_lock.c.type,
    task_lock.c.priority,
    task_lock.c.granularity,
    task_lock.c.partition_num,
    task_lock.c.revoked,
)


def _newest(table: Any) -> Any:
    """Return the greatest version in the interval, if the time of now is not above all versions.

    That the dataset has none above it, one index tells, however many segments it has.
    """
    of_dataset = select(func.max(table.c.version)).where(table.c.dataset == _ASKED.c.dataset)
    of_interval = of_dataset.where(overlaps(table.c.interval, _ASKED.c.start, _ASKED.c.end))
    return case(
        (
            or_(
                _ASKED.c.by_segment,
                of_dataset.correlate(_ASKED).scalar_subquery() >= _NOW_AS_VERSION,
            ),
            of_interval.correlate(_ASKED).scalar_subquery(),
        )
    )


_IS_LIVE: Final = (
    exists()
    .where(task_instance.c.id == bindparam("task_id"))
    .where(task_instance.c.state.in_(LIVE_TASK_STATES))
    .where(task_instance.c.flag == 1)
)
_REACHED: Final = reaches_dataset(_PROJECT, _ASKED.c.dataset)
_STANDING: Final = FixedStatement(
    select(
        _IS_LIVE.label("is_live"),
        _REACHED.label("reached"),
        _ASKED.c.place,
        func.greatest(_newest(segment), _newest(pending_segment)).label("newest"),
        _NOW.label("now"),
        *LOCK_COLUMNS,
    )
    .outerjoin_from(
        _ASKED,
        task_lock,
        and_(
            task_lock.c.dataset == _ASKED.c.dataset,
            overlaps(task_lock.c.interval, _ASKED.c.start, _ASKED.c.end),
            _COUNTS,
        ),
    )
    .add_cte(_DEAD, _LOST),
    prepared=True,
)
_MADE: Final = (
    insert(task_lock)
    .values(
        dataset=bindparam("dataset"),
        group_id=bindparam("group_id"),
        interval=func.tstzrange(bindparam("start", type_=_TIME), bindparam("end", type_=_TIME)),
        version=bindparam("version"),
        type=bindparam("type"),
        priority=bindparam("priority"),
        granularity=bindparam("granularity"),
        partition_num=bindparam("partition_num"),
    )
    .returning(task_lock.c.id)
    .cte("made")
)
_TAKE: Final = FixedStatement(
    insert(task_lock_holder)
    .from_select(["lock_id", "task_id"], select(_MADE.c.id, cast(bindparam("task_id"), Integer)))
    .returning(task_lock_holder.c.lock_id),
    prepared=True,
    by_index=False,
)
_JOIN: Final = insert(task_lock_holder).on_conflict_do_nothing()
_REVOKE: Final = (
    update(task_lock)
    .where(task_lock.c.id == any_of("ids"))
    .where(task_lock.c.revoked.is_(False))
    .values(revoked=True)
)
_DATASETS_OF: Final = (
    select(task_lock.c.dataset)
    .distinct()
    .join_from(task_lock, task_lock_holder, task_lock_holder.c.lock_id == task_lock.c.id)
    .where(task_lock_holder.c.task_id == bindparam("task_id"))
)
_LEAVE: Final = delete(task_lock_holder).where(task_lock_holder.c.task_id == bindparam("task_id"))
_REMOVE_DEAD: Final = delete(task_lock).where(task_lock.c.dataset == _DATASETS).where(~_IS_HELD)
_OF_TASK: Final = (
    select(*LOCK_COLUMNS)
    .join_from(task_lock, task_lock_holder, task_lock_holder.c.lock_id == task_lock.c.id)
    .where(task_lock_holder.c.task_id == bindparam("task_id"))
    .order_by(task_lock.c.id)
)
_LIVE: Final = (
    select(
        *LOCK_COLUMNS,
        task_lock.c.create_time,
        task_instance.c.id.label("task_id"),
        task_instance.c.name.label("task_name"),
        task_instance.c.process_instance_id,
    )
    .join_from(task_lock, task_lock_holder, task_lock_holder.c.lock_id == task_lock.c.id)
    .join(task_instance, task_instance.c.id == task_lock_holder.c.task_id)
    .where(task_instance.c.state.in_(LIVE_TASK_STATES))
    .order_by(task_lock.c.dataset, task_lock.c.interval, task_lock.c.id, task_instance.c.id)
)
_VALID: Final = (
    select(
        func.lower(task_lock.c.interval).label("start"),
        func.upper(task_lock.c.interval).label("end"),
    )
    .where(task_lock.c.dataset == bindparam("dataset"))
    .where(task_lock.c.priority >= bindparam("priority"))
    .where(task_lock.c.revoked.is_(False))
    .where(IS_REACHED)
    .order_by(task_lock.c.interval)
)
_COUNTING: Final = select(task_lock.c.id).where(task_lock.c.dataset == _DATASETS).where(_COUNTS)


def request_locks(
    db: Connection, task_id: int, requests: Sequence[LockRequest]
) -> tuple[Lock, ...] | Revoked | Busy | Impossible:
    """Get all of these locks for an attempt, one for each request, or none of them.

    Part of the caller's transaction, which keeps the turn at the datasets until it ends.
    """
    take_turn(db, {request.dataset for request in requests})
    rows = _STANDING.rows_within(db, _asked(requests) | {"task_id": task_id})
    if not rows[0].is_live:
        return Impossible(reason=f"attempt {task_id} is over, and gets no locks any more")
    foreign = next((requests[row.place] for row in rows if not row.reached), None)
    if foreign is not None:
        return NotShared(reason=not_shared(foreign.dataset))
    decisions = decide_locks(
        requests,
        {row.id: lock_of(row) for row in rows if row.id is not None}.values(),
        now=rows[0].now,
        newest={requests[row.place]: row.newest for row in rows if row.newest is not None},
    )
    taken: list[Lock] = []
    for request, decision in zip(requests, decisions, strict=False):
        match decision:
            case Grant():
                taken.append(_take(db, task_id, request, decision))
            case Join(lock=lock):
                # One that this call has made is held already; it stands for an equal request.
                joined = lock if lock.id > 0 else taken[-1 - lock.id]
                db.execute(_JOIN, {"lock_id": joined.id, "task_id": task_id})
                taken.append(joined)
            case Revoked() | Busy() | Impossible():
                return decision
            case _:
                assert_never(decision)
    return tuple(taken)


def release_locks(db: Connection, task_id: int) -> int:
    """Release all locks of an attempt; return the number of those that nobody holds any more."""
    datasets = list(db.scalars(_DATASETS_OF, {"task_id": task_id}))
    take_turn(db, datasets)
    db.execute(_LEAVE, {"task_id": task_id})
    return db.execute(_REMOVE_DEAD, {"datasets": datasets}).rowcount


def locks_of(db: Connection, task_id: int) -> tuple[Lock, ...]:
    """Return the locks of an attempt, revoked ones too."""
    return tuple(lock_of(row) for row in db.execute(_OF_TASK, {"task_id": task_id}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """A live attempt that holds a lock."""

    task_instance_id: int
    task_name: str
    process_instance_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLock:
    """A lock with those that hold it, granted at `since`."""

    lock: Lock
    since: datetime
    holders: tuple[LockHolder, ...]


def held_locks(db: Connection, datasets: Collection[str] | None = None) -> tuple[HeldLock, ...]:
    """Return the locks that live attempts hold, of these datasets or of all, revoked ones too."""
    statement = _LIVE
    if datasets is not None:
        statement = statement.where(task_lock.c.dataset.in_(datasets))
    found: dict[int, HeldLock] = {}
    for row in db.execute(statement):
        holder = LockHolder(
            task_instance_id=row.task_id,
            task_name=row.task_name,
            process_instance_id=row.process_instance_id,
        )
        known = found.get(row.id)
        found[row.id] = HeldLock(
            lock=lock_of(row),
            since=row.create_time,
            holders=(*(known.holders if known else ()), holder),
        )
    return tuple(found.values())


def locks_for(db: Connection, task_id: int, datasets: Collection[str]) -> frozenset[int]:
    """Return the ids of the locks on these datasets that restrict an attempt."""
    values = {"task_id": task_id, "datasets": sorted(datasets)}
    return frozenset(db.scalars(_COUNTING, values))


def locked_intervals(db: Connection, dataset: str, *, priority: int) -> tuple[Interval, ...]:
    """Return the intervals that are held at this priority or a higher one, in order of time."""
    rows = db.execute(_VALID, {"dataset": dataset, "priority": priority})
    return tuple(dict.fromkeys(Interval(row.start, row.end) for row in rows))


def lock_of(row: AnyRow) -> Lock:
    """Return the lock that a row of `LOCK_COLUMNS` holds."""
    return Lock(
        id=row.id,
        dataset=row.dataset,
        group_id=row.group_id,
        interval=Interval(row.start, row.end),
        version=row.version,
        type=LockType(row.type),
        priority=row.priority,
        granularity=LockGranularity(row.granularity),
        partition_num=row.partition_num,
        revoked=row.revoked,
    )


def _asked(requests: Iterable[LockRequest]) -> dict[str, Any]:
    asked = list(requests)
    return {
        "datasets": sorted({request.dataset for request in asked}),
        "asked_place": list(range(len(asked))),
        "asked_dataset": [request.dataset for request in asked],
        "asked_start": [request.interval.start for request in asked],
        "asked_end": [request.interval.end for request in asked],
        "asked_by_segment": [request.granularity is LockGranularity.SEGMENT for request in asked],
    }


def _take(db: Connection, task_id: int, request: LockRequest, grant: Grant) -> Lock:
    if grant.revoke:
        revoked = db.execute(_REVOKE, {"ids": list(grant.revoke)}).rowcount
        if revoked != len(grant.revoke):
            raise StoreConflictError("locks have changed though nobody else had the turn at them")
    lock_id: int = _TAKE.execute(
        db,
        {
            "task_id": task_id,
            "dataset": request.dataset,
            "group_id": request.group_id,
            "start": request.interval.start,
            "end": request.interval.end,
            "version": grant.version,
            "type": request.type.value,
            "priority": request.priority,
            "granularity": request.granularity.value,
            "partition_num": request.partition_num,
        },
    ).scalar_one()
    return Lock(
        id=lock_id,
        dataset=request.dataset,
        group_id=request.group_id,
        interval=request.interval,
        version=grant.version,
        type=request.type,
        priority=request.priority,
        granularity=request.granularity,
        partition_num=request.partition_num,
    )
