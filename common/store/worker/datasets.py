"""Datasets as a worker reaches them for its tasks: segments, locks and publications.

Names segments and publishes them in two transactions: a name that was given to what is added, and
not used, is given again to the same work. Every answer may be asked for again. Used by
`worker.datasets`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import (
    Connection,
    Engine,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    select,
    true,
)
from sqlalchemy import Interval as SqlInterval
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.intervals import Interval
from common.model.lock_needs import group_of_run
from common.model.locks import (
    REPLACING_LOCKS,
    WRITING_LOCKS,
    Busy,
    Impossible,
    Lock,
    LockRequest,
    LockType,
    Revoked,
)
from common.model.segments import (
    AlreadyPublished,
    Conflict,
    LockLost,
    Outcome,
    Publication,
    Published,
    Segment,
    SegmentId,
    StreamRange,
)
from common.model.states import LIVE_TASK_STATES
from common.store.streams.locks import locks_of, request_locks
from common.store.streams.publication import publish
from common.store.streams.segments import allocate, used_segments
from common.store.tables import pending_segment, segment, task_instance
from common.store.transaction import any_of, repeatable, transaction

_TASK: Final = select(task_instance.c.process_instance_id, task_instance.c.name).where(
    task_instance.c.id == bindparam("task_id")
)
# By the names that the work was given: these have an index by sequence.
_OF_SEQUENCE: Final = (
    select(segment.c.files)
    .join_from(
        pending_segment,
        segment,
        and_(
            segment.c.dataset == pending_segment.c.dataset,
            segment.c.interval == pending_segment.c.interval,
            segment.c.origin_version == pending_segment.c.version,
            segment.c.origin_num == pending_segment.c.partition_num,
            segment.c.sequence == pending_segment.c.sequence,
        ),
    )
    .where(pending_segment.c.dataset == bindparam("dataset"))
    .where(pending_segment.c.sequence == bindparam("sequence"))
)
_LIVE: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.state.in_(LIVE_TASK_STATES))
)
_FILES: Final = func.jsonb_array_elements_text(segment.c.files).table_valued("value").lateral()
_NAMED_FILE: Final = _FILES.c.value
_FOLDER: Final = (
    func.split_part(_NAMED_FILE, "/", 1) + "/" + func.split_part(_NAMED_FILE, "/", 2)
).label("folder")
_FOLDERS_OF: Final = (
    select(_FOLDER)
    .select_from(segment.join(_FILES, true()))
    .distinct()
    .where(segment.c.dataset == any_(cast(bindparam("datasets"), ARRAY(Text))))
    .where(segment.c.task_id == any_of("ids"))
)
_NEWER: Final = segment.alias("newer")
_PURGE: Final = (
    delete(segment)
    .where(segment.c.used.is_(False))
    .where(
        exists()
        .where(_NEWER.c.dataset == segment.c.dataset)
        .where(_NEWER.c.interval.op("&&", is_comparison=True)(segment.c.interval))
        .where(_NEWER.c.version > segment.c.version)
        # What bears a higher version has replaced it, when that appeared or before.
        .where(_NEWER.c.created < func.now() - cast(bindparam("age"), SqlInterval))
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """The run of an attempt, and the name of its task."""

    process_instance_id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Files with rows of one chunk that are to become a segment."""

    interval: Interval
    files: tuple[str, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Live attempts, and the folders `<dataset>/<folder>` of which the tables name a file."""

    live: frozenset[int]
    folders: frozenset[str]


class _UnnamedError(Exception):
    """Rolls the transaction back, with its outcome."""

    def __init__(self, outcome: LockLost | Conflict) -> None:
        super().__init__(type(outcome).__name__)
        self.outcome = outcome


class PostgresDatasetStore:
    """Datasets in PostgreSQL. Methods may be called from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def task(self, task_id: int) -> TaskFacts | None:
        """Return the facts of an attempt; None if it has no row."""
        row = repeatable(self._engine, lambda db: db.execute(_TASK, {"task_id": task_id}).first())
        if row is None:
            return None
        return TaskFacts(process_instance_id=row.process_instance_id, name=row.name)

    def segments(
        self, task_id: int, dataset: str, interval: Interval | None
    ) -> tuple[Segment, ...]:
        """Return the segments of the dataset, or of the interval, that an attempt reads."""
        return repeatable(
            self._engine, lambda db: used_segments(db, dataset, interval, task_id=task_id)
        )

    def lock(
        self,
        task_id: int,
        dataset: str,
        interval: Interval,
        *,
        kind: LockType,
        priority: int,
        of_stream: bool,
    ) -> Lock | Busy | Revoked | Impossible:
        """Ask for a lock for a running attempt, as a task of its run or of the dataset's stream."""

        def ask(db: Connection) -> tuple[Lock, ...] | Busy | Revoked | Impossible:
            row = db.execute(_TASK, {"task_id": task_id}).first()
            if row is None:
                return Impossible(reason=f"there is no attempt {task_id}")
            group = group_of_run(row.process_instance_id)
            request = LockRequest(
                dataset=dataset,
                group_id=group_of_stream(dataset) if of_stream else group,
                interval=interval,
                type=kind,
                priority=priority,
            )
            return request_locks(db, task_id, (request,))

        # To join a lock of the own group once more changes nothing.
        answer = repeatable(self._engine, ask, begin=transaction)
        return answer[0] if isinstance(answer, tuple) else answer

    def writes(self, task_id: int, dataset: str) -> bool:
        """Return True if the attempt holds a lock to write some interval of the dataset."""
        locks = repeatable(self._engine, lambda db: locks_of(db, task_id))
        return any(lock.dataset == dataset and lock.type in WRITING_LOCKS for lock in locks)

    def published(self, dataset: str, sequence: str) -> frozenset[str] | None:
        """Return the files of a sequence that has published some segments; None if it has none."""
        rows = repeatable(
            self._engine,
            lambda db: db.execute(_OF_SEQUENCE, {"dataset": dataset, "sequence": sequence}).all(),
        )
        return frozenset(file for row in rows for file in row.files) if rows else None

    def publish(
        self,
        task_id: int,
        dataset: str,
        parts: Sequence[Part],
        *,
        sequence: str,
        stream_range: StreamRange | None = None,
        replaces: Interval | None = None,
        is_whole: bool = False,
    ) -> Outcome:
        """Name these parts, and publish them as segments.

        `is_whole`: the sequence has one publication alone, so whatever it has published before is
        all that it ever does.
        """
        if is_whole and (before := self.published(dataset, sequence)) is not None:
            return AlreadyPublished(files=before)
        if not parts and stream_range is None and replaces is None:
            return Published()
        try:
            names = repeatable(
                self._engine,
                lambda db: (
                    _named(db, task_id, dataset, parts, sequence)
                    if replaces is None
                    else _named_anew(db, task_id, dataset, parts, replaces)
                ),
                begin=transaction,
            )
        except _UnnamedError as refused:
            return refused.outcome
        return publish(
            self._engine,
            Publication(
                dataset=dataset,
                task_id=task_id,
                sequence=sequence,
                segments=tuple(
                    Segment(id=name, files=part.files, rows=part.rows, bytes=part.bytes)
                    for name, part in zip(names, parts, strict=True)
                ),
                range=stream_range,
                replaces=replaces,
            ),
        )

    def wanted(self, datasets: Collection[str], task_ids: Collection[int]) -> Wanted:
        """Return what keeps folders of these datasets, written by these attempts, from removal.

        An attempt that has ended publishes nothing any more, so the order of the looks matters.
        """
        ids = {"ids": sorted(task_ids)}
        live = repeatable(self._engine, lambda db: frozenset(db.scalars(_LIVE, ids)))
        values = ids | {"datasets": sorted(datasets)}
        named = repeatable(self._engine, lambda db: frozenset(db.scalars(_FOLDERS_OF, values)))
        return Wanted(live=live, folders=named)

    def purge(self, age: timedelta) -> int:
        """Remove the rows of segments that were replaced so long ago; return their number.

        Those of intervals that were emptied stay.
        """
        return repeatable(self._engine, lambda db: db.execute(_PURGE, {"age": age}).rowcount)


def group_of_stream(dataset: str) -> str:
    """Return the group that all tasks of a dataset's stream are."""
    return f"index_kafka_{dataset}"


def _named_anew(
    db: Connection, task_id: int, dataset: str, parts: Sequence[Part], replaced: Interval
) -> list[SegmentId]:
    """Name each part by the version of the lock under which it replaces what is there."""
    version = next(
        (
            lock.version
            for lock in locks_of(db, task_id)
            if lock.dataset == dataset
            and lock.type in REPLACING_LOCKS
            and lock.interval.contains(replaced)
        ),
        None,
    )
    if version is None:
        kinds = " or ".join(sorted(REPLACING_LOCKS))
        reason = f"attempt {task_id} holds no lock {kinds} on {dataset} {replaced}"
        raise _UnnamedError(Conflict(reason=reason))
    # Their places tell them apart; which numbers are free is known when they are published.
    return [
        SegmentId(interval=part.interval, version=version, partition_num=place)
        for place, part in enumerate(parts)
    ]


def _named(
    db: Connection, task_id: int, dataset: str, parts: Sequence[Part], sequence: str
) -> list[SegmentId]:
    """Name each part, in its place among those of its chunk."""
    names: list[SegmentId] = []
    places: dict[Interval, int] = {}
    for part in parts:
        place = places[part.interval] = places.get(part.interval, -1) + 1
        name = allocate(
            db,
            task_id,
            dataset,
            part.interval,
            sequence=sequence,
            previous=str(place) if place else "",
        )
        if not isinstance(name, SegmentId):
            raise _UnnamedError(name)
        names.append(name)
    return names
