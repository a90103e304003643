"""Publishes: the only writer of a dataset's segments and of the offsets of its stream.

In one transaction it makes sure that the attempt is running and that none of its locks over these
intervals is revoked, compares the stored offsets with the start of the range, inserts the segments
and moves the offsets. So a task that was replaced, lost or revoked changes nothing.

A publication that was carried out is recognised by the names under which its segments were written,
which they keep in `origin_version` and `origin_num` when a replacement moves them. Nothing is ever
deleted here, so whoever does not know the outcome can ask again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Engine,
    Integer,
    Text,
    and_,
    bindparam,
    cast,
    func,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert

from common.model.intervals import Interval
from common.model.locks import (
    REPLACING_LOCKS,
    WRITING_LOCKS,
    Lock,
    LockGranularity,
    LockType,
    not_shared,
)
from common.model.segments import (
    AlreadyPublished,
    Conflict,
    LockLost,
    Outcome,
    Publication,
    Published,
    SegmentId,
    StreamRange,
    mistake_of,
)
from common.model.streams.partitions import Partition, topic_of
from common.store.streams.datasets import overlaps, take_turn
from common.store.streams.locks import IS_REACHED, LOCK_COLUMNS, lock_of
from common.store.streams.offsets import advance_offsets, locked_offsets
from common.store.streams.reach import claims, find_writer
from common.store.tables import (
    pending_segment,
    segment,
    task_lock,
    task_lock_holder,
)
from common.store.transaction import (
    StoreConflictError,
    repeatable,
    transaction,
    unnested,
)

_TIME: Final = DateTime(timezone=True)

# Locked against a revocation, which is an update, and against a release.
_LOCKS: Final = (
    select(*LOCK_COLUMNS)
    .join_from(task_lock, task_lock_holder, task_lock_holder.c.lock_id == task_lock.c.id)
    .where(task_lock_holder.c.task_id == bindparam("task_id"))
    .order_by(task_lock.c.id)
    .with_for_update(read=True)
)
_NAMED: Final = unnested(
    "named", place=Integer, start=_TIME, end=_TIME, version=Text, partition_num=Integer
)
_WRITTEN_BEFORE: Final = (
    select(segment.c.files)
    .join_from(
        segment,
        _NAMED,
        and_(
            segment.c.interval == func.tstzrange(_NAMED.c.start, _NAMED.c.end),
            segment.c.origin_version == _NAMED.c.version,
            segment.c.origin_num == _NAMED.c.partition_num,
        ),
    )
    .where(segment.c.dataset == bindparam("dataset"))
    .where(segment.c.sequence == bindparam("sequence"))
)
_PART: Final = unnested("part", place=Integer, start=_TIME, end=_TIME)
# The version of the chunk that a segment is added to, and the first number that is free there.
_CHUNKS: Final = select(
    _PART.c.place,
    select(func.max(segment.c.version))
    .where(segment.c.dataset == bindparam("dataset"))
    .where(segment.c.used)
    .where(overlaps(segment.c.interval, _PART.c.start, _PART.c.end))
    .correlate(_PART)
    .scalar_subquery()
    .label("version"),
    # The lock of a group that replaces the interval just now, beside the one that adds to it.
    select(func.max(task_lock.c.id))
    .where(task_lock.c.dataset == bindparam("dataset"))
    .where(task_lock.c.type == LockType.REPLACE.value)
    .where(task_lock.c.revoked.is_(False))
    .where(IS_REACHED)
    .where(overlaps(task_lock.c.interval, _PART.c.start, _PART.c.end))
    .correlate(_PART)
    .scalar_subquery()
    .label("beside"),
).order_by(_PART.c.place)


def _numbers_of(table: Any) -> Any:
    return select(func.max(table.c.partition_num)).where(
        table.c.dataset == bindparam("dataset"),
        table.c.interval
        == func.tstzrange(bindparam("start", type_=_TIME), bindparam("end", type_=_TIME)),
        table.c.version == bindparam("version"),
    )


_FREE_NUMBER: Final = select(
    func.coalesce(
        func.greatest(
            _numbers_of(segment).scalar_subquery(), _numbers_of(pending_segment).scalar_subquery()
        )
        + 1,
        0,
    )
)
_REPLACED: Final = (
    select(
        func.lower(segment.c.interval).label("start"),
        func.upper(segment.c.interval).label("end"),
        segment.c.version,
        segment.c.partition_num,
        segment.c.added_beside,
    )
    .where(segment.c.dataset == bindparam("dataset"))
    .where(segment.c.used)
    .where(
        overlaps(segment.c.interval, bindparam("start", type_=_TIME), bindparam("end", type_=_TIME))
    )
    .order_by(segment.c.interval, segment.c.version, segment.c.partition_num)
    .with_for_update()
)
_IS_NAMED: Final = and_(
    segment.c.dataset == bindparam("of_dataset"),
    segment.c.interval == func.tstzrange(_NAMED.c.start, _NAMED.c.end),
    segment.c.version == _NAMED.c.version,
    segment.c.partition_num == _NAMED.c.partition_num,
    segment.c.used,
)
_RETIRE: Final = update(segment).where(_IS_NAMED).values(used=False)
_MOVED: Final = unnested("moved", place=Integer, number=Integer)
_MOVE: Final = (
    update(segment)
    .where(_IS_NAMED)
    .where(_MOVED.c.place == _NAMED.c.place)
    .values(version=bindparam("new_version"), partition_num=_MOVED.c.number, added_beside=null())
)
_NEW: Final = unnested(
    "new",
    start=_TIME,
    end=_TIME,
    version=Text,
    partition_num=Integer,
    files=Text,
    rows=BigInteger,
    bytes=BigInteger,
    added_beside=Integer,
    origin_version=Text,
    origin_num=Integer,
)
_INSERT: Final = (
    insert(segment)
    .from_select(
        [
            "dataset",
            "sequence",
            "task_id",
            "interval",
            "version",
            "partition_num",
            "files",
            "rows",
            "bytes",
            "added_beside",
            "origin_version",
            "origin_num",
        ],
        select(
            cast(bindparam("dataset"), Text),
            cast(bindparam("sequence"), Text),
            cast(bindparam("task_id"), Integer),
            func.tstzrange(_NEW.c.start, _NEW.c.end),
            _NEW.c.version,
            _NEW.c.partition_num,
            cast(_NEW.c.files, JSONB),
            _NEW.c.rows,
            _NEW.c.bytes,
            _NEW.c.added_beside,
            _NEW.c.origin_version,
            _NEW.c.origin_num,
        ),
    )
    .on_conflict_do_nothing()
)


class _RefusedError(Exception):
    """Rolls the transaction back, with its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(type(outcome).__name__)
        self.outcome = outcome


class _NotSharedError(_RefusedError):
    """A refusal that rolls back the transaction and does not reveal any published data."""

    def __init__(self, dataset: str) -> None:
        super().__init__(Conflict(reason=not_shared(dataset)))


class _AloneError(Exception):
    """Rolls the transaction back: it has to number segments anew, and needs the turn alone."""


def publish(engine: Engine, publication: Publication) -> Outcome:
    """Carry a publication out, or nothing of it. To repeat it is harmless."""
    mistake = mistake_of(publication)
    if mistake is not None:
        return Conflict(reason=mistake)
    try:
        try:
            return _attempted(engine, publication, alone=publication.replaces is not None)
        except _AloneError:
            return _attempted(engine, publication, alone=True)
    except _RefusedError as refused:
        if isinstance(refused, _NotSharedError) or not isinstance(refused.outcome, Conflict):
            return refused.outcome
        # A replica may have published the same since the first look.
        look = repeatable(engine, lambda db: _published_before(db, publication), begin=transaction)
        return look or refused.outcome


def _attempted(engine: Engine, publication: Publication, *, alone: bool) -> Outcome:
    # Once more if the connection was lost: what was committed is recognised then.
    return repeatable(engine, lambda db: _publish(db, publication, alone=alone), begin=transaction)


def _publish(db: Connection, publication: Publication, *, alone: bool) -> Outcome:
    dataset, task_id = publication.dataset, publication.task_id
    take_turn(db, (dataset,), shared=not alone)
    writer = find_writer(db, task_id, dataset)
    if writer is not None and not writer.reached:
        raise _NotSharedError(dataset)
    before = _published_before(db, publication)
    if before is not None:
        return before
    if writer is None or not writer.is_running:
        raise _RefusedError(Conflict(reason=f"attempt {task_id} is not running any more"))
    locks = [lock_of(row) for row in db.execute(_LOCKS, {"task_id": task_id})]
    _check_inputs(locks)
    covering = [
        _covering(locks, publication, one.id.interval, WRITING_LOCKS, one.id.partition_num)
        for one in publication.segments
    ]
    if publication.range is not None:
        _advance(db, publication, publication.range)
    kept: tuple[SegmentId, ...] = ()
    if publication.replaces is not None:
        lock = _covering(locks, publication, publication.replaces, REPLACING_LOCKS)
        kept = _retire(db, publication, publication.replaces, lock)
    if publication.segments and not writer.is_owned and not claims(db, task_id, dataset):
        raise _NotSharedError(dataset)
    ids = _insert(db, publication, covering, alone=alone)
    if kept:
        _move(db, dataset, kept, lock.version)
    return Published(ids=ids)


def _published_before(db: Connection, publication: Publication) -> AlreadyPublished | None:
    """Recognise a publication that was carried out.

    One without segments is recognised by its end alone, and harmless if it is repeated.
    """
    stream = publication.range
    if not publication.segments:
        if stream is None or stream.starts == stream.ends:
            return None
        stored = {each: at for each, (_, at) in _stored(db, publication, stream).items()}
        return AlreadyPublished() if stored == dict(stream.ends) else None
    rows = db.execute(
        _WRITTEN_BEFORE,
        _names(one.id for one in publication.segments)
        | {"dataset": publication.dataset, "sequence": publication.sequence},
    ).all()
    if len(rows) != len(publication.segments):
        return None
    return AlreadyPublished(files=frozenset(file for row in rows for file in row.files))


def _check_inputs(locks: Sequence[Lock]) -> None:
    """Refuse what was made of intervals that the attempt was to read undisturbed, and did not."""
    for lock in locks:
        if lock.revoked and lock.type is LockType.SHARED:
            raise _RefusedError(LockLost(lock=lock))


def _covering(
    locks: Iterable[Lock],
    publication: Publication,
    interval: Interval,
    kinds: frozenset[LockType],
    partition_num: int | None = None,
) -> Lock:
    """Return the attempt's lock that allows to write the interval."""
    found = [
        lock
        for lock in locks
        if lock.dataset == publication.dataset
        and lock.type in kinds
        and lock.interval.contains(interval)
        and (
            lock.granularity is LockGranularity.TIME_CHUNK
            or (lock.partition_num == partition_num and lock.interval == interval)
        )
    ]
    for lock in found:
        if lock.revoked:
            raise _RefusedError(LockLost(lock=lock))
    if not found:
        kind = " or ".join(sorted(kinds))
        raise _RefusedError(
            Conflict(
                reason=f"attempt {publication.task_id} holds no lock {kind} on"
                f" {publication.dataset} {interval}"
            )
        )
    return found[0]


def _stored(
    db: Connection, publication: Publication, stream: StreamRange
) -> dict[Partition, tuple[str, int]]:
    return locked_offsets(db, publication.dataset, stream.starts, stream=stream.stream)


def _advance(db: Connection, publication: Publication, stream: StreamRange) -> None:
    """Compare the stored offsets with the range's start, and set them to its end."""
    stored = _stored(db, publication, stream)
    for partition, (fed, _) in sorted(stored.items()):
        if fed != topic_of(partition, stream.stream):
            raise _RefusedError(
                Conflict(
                    reason=f"dataset {publication.dataset} is fed by stream {fed}, not by"
                    f" {stream.stream}"
                )
            )
    stale = [
        f"partition {partition} is at {stored[partition][1]}, not at {start}"
        for partition, start in sorted(stream.starts.items())
        # A partition that nothing was published of may begin anywhere.
        if partition in stored and stored[partition][1] != start
    ]
    if stale:
        raise _RefusedError(Conflict(reason="the range is stale: " + "; ".join(stale)))
    changed = advance_offsets(
        db,
        publication.dataset,
        stream.ends,
        stream=stream.stream,
        known=stored.keys(),
        event_times=stream.max_event_times,
    )
    if changed != len(stream.ends):
        raise _RefusedError(
            Conflict(reason="the range is stale: another was published at the same moment")
        )


def _retire(
    db: Connection, publication: Publication, replaced: Interval, lock: Lock
) -> tuple[SegmentId, ...]:
    """Mark as unused all that was in the interval; return what was added since the lock's grant.

    No grant and no publication happen at the same moment: whoever replaces could read all the rest.
    """
    rows = db.execute(
        _REPLACED,
        {"dataset": publication.dataset, "start": replaced.start, "end": replaced.end},
    ).all()
    kept: list[SegmentId] = []
    old: list[SegmentId] = []
    for row in rows:
        name = SegmentId(
            interval=Interval(row.start, row.end),
            version=row.version,
            partition_num=row.partition_num,
        )
        if not replaced.contains(name.interval):
            raise _RefusedError(
                Conflict(
                    reason=f"segment {name} reaches beyond {replaced}; replace an interval that"
                    " holds it whole"
                )
            )
        (kept if row.added_beside == lock.id else old).append(name)
    if old:
        changed = db.execute(_RETIRE, _names(old) | {"of_dataset": publication.dataset}).rowcount
        _expect(changed, len(old))
    return tuple(kept)


def _move(db: Connection, dataset: str, kept: Sequence[SegmentId], version: str) -> None:
    """Have these segments appear in the new version, behind those that are published with it."""
    numbers = _Numbers(db, dataset)
    changed = db.execute(
        _MOVE,
        _names(kept)
        | {
            "of_dataset": dataset,
            "moved_place": list(range(len(kept))),
            "moved_number": [numbers.next(name.interval, version) for name in kept],
            "new_version": version,
        },
    ).rowcount
    _expect(changed, len(kept))


class _Numbers:
    """The partition numbers that are free in each chunk, while nobody else has the turn."""

    def __init__(self, db: Connection, dataset: str) -> None:
        self._db = db
        self._dataset = dataset
        self._free: dict[tuple[Interval, str], int] = {}

    def next(self, interval: Interval, version: str) -> int:
        key = (interval, version)
        if key not in self._free:
            self._free[key] = self._db.execute(
                _FREE_NUMBER,
                {
                    "dataset": self._dataset,
                    "start": interval.start,
                    "end": interval.end,
                    "version": version,
                },
            ).scalar_one()
        number = self._free[key]
        self._free[key] = number + 1
        return number


def _insert(
    db: Connection, publication: Publication, covering: Sequence[Lock], *, alone: bool
) -> tuple[SegmentId, ...]:
    segments = publication.segments
    if not segments:
        return ()
    chunks = db.execute(
        _CHUNKS,
        {
            "dataset": publication.dataset,
            "part_place": list(range(len(segments))),
            "part_start": [one.id.interval.start for one in segments],
            "part_end": [one.id.interval.end for one in segments],
        },
    ).all()
    numbers = _Numbers(db, publication.dataset)
    ids: list[SegmentId] = []
    beside: list[int | None] = []
    for one, lock, chunk in zip(segments, covering, chunks, strict=True):
        version = one.id.version
        adds = lock.type is LockType.APPEND
        if adds and chunk.version is not None:
            # Not its own version, if its chunk was replaced since it was given its number.
            version = chunk.version
        elif publication.replaces is None and version < (chunk.version or ""):
            raise _RefusedError(
                Conflict(
                    reason=f"segment {one.id} would be added to a chunk of version {chunk.version}"
                )
            )
        # Who replaces twice under one lock writes the same version twice.
        if version != one.id.version or publication.replaces is not None:
            if not alone:
                raise _AloneError
            number = numbers.next(one.id.interval, version)
            ids.append(SegmentId(interval=one.id.interval, version=version, partition_num=number))
        else:
            ids.append(one.id)
        beside.append(chunk.beside if adds else None)
    inserted = db.execute(_INSERT, _rows(publication, ids, beside)).rowcount
    if inserted != len(segments):
        raise _RefusedError(Conflict(reason="segments of these names were published by other work"))
    return tuple(ids)


def _rows(
    publication: Publication, ids: Sequence[SegmentId], beside: Sequence[int | None]
) -> Mapping[str, Any]:
    segments = publication.segments
    return {
        "dataset": publication.dataset,
        "sequence": publication.sequence,
        "task_id": publication.task_id,
        "new_start": [name.interval.start for name in ids],
        "new_end": [name.interval.end for name in ids],
        "new_version": [name.version for name in ids],
        "new_partition_num": [name.partition_num for name in ids],
        "new_files": [json.dumps(one.files) for one in segments],
        "new_rows": [one.rows for one in segments],
        "new_bytes": [one.bytes for one in segments],
        "new_added_beside": list(beside),
        "new_origin_version": [one.id.version for one in segments],
        "new_origin_num": [one.id.partition_num for one in segments],
    }


def _names(ids: Iterable[SegmentId]) -> dict[str, Any]:
    named = list(ids)
    return {
        "named_place": list(range(len(named))),
        "named_start": [one.interval.start for one in named],
        "named_end": [one.interval.end for one in named],
        "named_version": [one.version for one in named],
        "named_partition_num": [one.partition_num for one in named],
    }


def _expect(changed: int, expected: int) -> None:
    if changed != expected:
        raise StoreConflictError(f"{changed} segments were changed, not {expected}")
