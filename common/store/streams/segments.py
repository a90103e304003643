"""Allocates the numbers of new segments, and finds those that hold the rows of an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, DateTime, bindparam, func, literal, or_, select, union_all
from sqlalchemy.dialects.postgresql import insert

from common.model.intervals import Interval
from common.model.locks import WRITING_LOCKS, LockGranularity, LockType
from common.model.segments import Conflict, LockLost, Segment, SegmentId
from common.store.streams.datasets import overlaps, take_turn
from common.store.streams.locks import locks_of
from common.store.streams.reach import TASK_REACHES
from common.store.tables import pending_segment, segment, task_lock_holder
from common.store.transaction import AnyRow

_TIME: Final = DateTime(timezone=True)
_START: Final = bindparam("start", type_=_TIME)
_END: Final = bindparam("end", type_=_TIME)
_INTERVAL: Final = func.tstzrange(_START, _END)

_SAME_WORK: Final = select(pending_segment.c.version, pending_segment.c.partition_num).where(
    pending_segment.c.dataset == bindparam("dataset"),
    pending_segment.c.sequence == bindparam("sequence"),
    pending_segment.c.interval == _INTERVAL,
    pending_segment.c.previous == bindparam("previous"),
)


def _in_chunk(table: Any) -> Any:
    found = select(
        func.lower(table.c.interval).label("start"),
        func.upper(table.c.interval).label("end"),
        table.c.version,
        func.max(table.c.partition_num).label("partition_num"),
        literal(table is segment).label("published"),
    ).where(table.c.dataset == bindparam("dataset"), overlaps(table.c.interval, _START, _END))
    return found.group_by(table.c.interval, table.c.version)


# Numbers count on over all, used or not; versions are those of what is used, or else promised.
_CHUNK: Final = union_all(
    _in_chunk(segment).add_columns(func.bool_or(segment.c.used).label("used")),
    _in_chunk(pending_segment).add_columns(literal(False).label("used")),
)
_PROMISE: Final = insert(pending_segment).values(
    dataset=bindparam("dataset"),
    interval=_INTERVAL,
    sequence=bindparam("sequence"),
    previous=bindparam("previous"),
    version=bindparam("version"),
    partition_num=bindparam("partition_num"),
)
_SEGMENT_COLUMNS: Final = (
    func.lower(segment.c.interval).label("start"),
    func.upper(segment.c.interval).label("end"),
    segment.c.version,
    segment.c.partition_num,
    segment.c.files,
    segment.c.rows,
    segment.c.bytes,
)
_USED: Final = (
    select(*_SEGMENT_COLUMNS)
    .where(segment.c.dataset == bindparam("dataset"))
    .where(segment.c.used)
    .order_by(segment.c.interval, segment.c.version, segment.c.partition_num)
)
_SEEN: Final = or_(
    segment.c.added_beside.is_(None),
    segment.c.added_beside.not_in(
        select(task_lock_holder.c.lock_id).where(task_lock_holder.c.task_id == bindparam("task_id"))
    ),
)
_USED_WITHIN: Final = _USED.where(overlaps(segment.c.interval, _START, _END))


def allocate(
    db: Connection,
    task_id: int,
    dataset: str,
    interval: Interval,
    *,
    sequence: str,
    previous: str = "",
) -> SegmentId | LockLost | Conflict:
    """Name a new segment of a chunk. The same work, by whichever task, gets the same name again.

    `previous` tells the segments of one sequence and chunk apart. Part of the caller's transaction.
    """
    take_turn(db, (dataset,))
    work = {
        "dataset": dataset,
        "start": interval.start,
        "end": interval.end,
        "sequence": sequence,
        "previous": previous,
    }
    same = db.execute(_SAME_WORK, work).first()
    if same is not None:
        return SegmentId(interval=interval, version=same.version, partition_num=same.partition_num)
    covering = [
        lock
        for lock in locks_of(db, task_id)
        if lock.dataset == dataset
        and lock.type in WRITING_LOCKS
        and lock.granularity is LockGranularity.TIME_CHUNK
        and lock.interval.contains(interval)
    ]
    if not covering:
        return Conflict(reason=f"attempt {task_id} holds no lock to write {dataset} {interval}")
    lock = next((one for one in covering if one.revoked), covering[0])
    if lock.revoked:
        return LockLost(lock=lock)
    rows = db.execute(_CHUNK, work).all()
    version = _version(rows, interval, lock.version)
    if isinstance(version, Conflict):
        return version
    if version > lock.version and lock.type is not LockType.APPEND:
        return Conflict(
            reason=f"{dataset} {interval} has version {version}, and the lock only {lock.version}"
        )
    taken = [
        row.partition_num
        for row in rows
        if row.version == version and Interval(row.start, row.end) == interval
    ]
    number = max(taken, default=-1) + 1
    db.execute(_PROMISE, work | {"version": version, "partition_num": number})
    return SegmentId(interval=interval, version=version, partition_num=number)


def _version(rows: Sequence[AnyRow], interval: Interval, own: str) -> str | Conflict:
    """Return the version of a chunk; `own` if nothing is there, nor promised to be."""
    used = [row for row in rows if row.used]
    for row in used:
        other = Interval(row.start, row.end)
        if other != interval:
            return Conflict(
                reason=f"there are segments of {other}, so none of {interval} can be added"
            )
    versions: list[str] = [row.version for row in used]
    if versions:
        return max(versions)
    replaced: str = max((row.version for row in rows if row.published), default="")
    promised: list[str] = [
        row.version
        for row in rows
        if Interval(row.start, row.end) == interval and row.version > replaced
    ]
    return max(promised, default=own)


def used_segments(
    db: Connection,
    dataset: str,
    interval: Interval | None = None,
    *,
    task_id: int | None = None,
    limit: int | None = None,
) -> tuple[Segment, ...]:
    """Return the segments whose rows are the dataset's, or that have some in the interval.

    An attempt does not see what was added beside a lock by which it replaces: that stays anyway,
    and would be there twice if the attempt wrote it again. An attempt sees no segment of a dataset
    that its project does not reach. `limit` is the maximum number of segments.
    """
    values: dict[str, Any] = {"dataset": dataset}
    statement = _USED
    if interval is not None:
        statement = _USED_WITHIN
        values |= {"start": interval.start, "end": interval.end}
    if task_id is not None:
        statement = statement.where(_SEEN).where(TASK_REACHES.element)
        values["task_id"] = task_id
    if limit is not None:
        statement = statement.limit(limit)
    return tuple(_segment(row) for row in db.execute(statement, values))


def _segment(row: AnyRow) -> Segment:
    return Segment(
        id=SegmentId(
            interval=Interval(row.start, row.end),
            version=row.version,
            partition_num=row.partition_num,
        ),
        files=tuple(row.files),
        rows=row.rows,
        bytes=row.bytes,
    )
