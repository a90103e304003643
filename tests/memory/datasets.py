"""Datasets in memory: locks, publications of a stream's tasks, replacements by others.

The rules are those of `common.store.streams`; a chunk of a dataset is a number here, and its
interval an hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from common.model.intervals import Interval
from common.model.lock_needs import group_of_run
from common.model.locks import (
    BATCH_PRIORITY,
    REPLACING_LOCKS,
    Busy,
    Grant,
    Impossible,
    Join,
    Lock,
    LockRequest,
    LockType,
    Revoked,
    decide_lock,
)
from common.model.segments import AlreadyPublished, Conflict, LockLost, Outcome, Published
from common.model.states import TaskState
from common.store.worker.datasets import group_of_stream
from tests.memory.database import Transaction
from tests.memory.lock_rows import LockHolderRecord, LockRecord
from tests.memory.stream_rows import OffsetRecord, SegmentRecord
from tests.memory.streams import StreamTables

FIRST_HOUR = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """A file with rows of one chunk that is to become a segment."""

    chunk: int
    path: str


class MemoryDatasets:
    """Datasets as a worker reaches them for its tasks, and batch writers for themselves."""

    def __init__(self, tables: StreamTables) -> None:
        self._tables = tables
        self._db = tables.db

    def lock(
        self,
        task_id: int,
        dataset: str,
        chunk: int,
        *,
        kind: LockType,
        priority: int = BATCH_PRIORITY,
        of_stream: bool = False,
    ) -> Lock | Busy | Revoked | Impossible:
        with self._db.transaction("lock") as tx:
            if not self._is_live(task_id):
                return Impossible(reason=f"attempt {task_id} is not live")
            request = LockRequest(
                dataset=dataset,
                group_id=group_of_stream(dataset) if of_stream else self._group(task_id),
                interval=hour(chunk),
                type=kind,
                priority=priority,
            )
            decision = decide_lock(request, self._standing(), now=self._db.now())
            match decision:
                case Grant():
                    for each in decision.revoke:
                        tx.update(self._db.locks, each, revoked=True)
                    row = LockRecord(
                        dataset=dataset,
                        group_id=request.group_id,
                        interval=request.interval,
                        version=decision.version,
                        priority=priority,
                        type=kind,
                    )
                    taken = tx.insert(self._db.locks, row)
                case Join(lock=lock):
                    taken = lock.id
                case _:
                    return decision
            if not any(
                (held.lock_id, held.task_id) == (taken, task_id) for held in self._db.lock_holders
            ):
                tx.insert(self._db.lock_holders, LockHolderRecord(lock_id=taken, task_id=task_id))
        return next(each for each in self._standing() if each.id == taken)

    def publish(
        self,
        task_id: int,
        dataset: str,
        parts: Sequence[MemoryPart],
        *,
        sequence: str,
        stream: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        times: Mapping[int, datetime] | None = None,
    ) -> Outcome:
        """Publish a range of the stream; `times`: the latest one of each partition's rows."""
        with self._db.transaction("publish") as tx:
            before = self._published_before(dataset, parts, sequence, starts, ends)
            if before is not None:
                return before
            if not self._runs(task_id):
                return Conflict(reason=f"attempt {task_id} is not running any more")
            for part in parts:
                covering = self._covering(task_id, dataset, part.chunk)
                if covering is None:
                    return Conflict(reason=f"no lock on chunk {part.chunk}")
                if covering.revoked:
                    return LockLost(lock=covering)
            others = [row.stream for row in self._tables.stored(dataset).values()]
            if any(each != stream for each in others):
                return Conflict(reason=f"dataset {dataset} is fed by stream {others[0]}")
            stale = self._stale(dataset, starts)
            if stale:
                return Conflict(reason=stale)
            if self._named(dataset, parts, sequence):
                return Conflict(reason="segments of these names were published by other work")
            self._advance(tx, dataset, stream, ends, times or {})
            for part in parts:
                record = SegmentRecord(
                    dataset=dataset,
                    chunk=part.chunk,
                    sequence=sequence,
                    path=part.path,
                    task_id=task_id,
                    beside=self._replacing(dataset, part.chunk),
                )
                tx.insert(self._tables.segments, record)
        return Published()

    def paths(self, task_id: int, dataset: str, chunk: int) -> list[str]:
        """Return the files of a chunk, without those that were added beside the task's own lock."""
        lock = self._covering(task_id, dataset, chunk)
        return [
            row.path
            for row in self._tables.segments
            if row.dataset == dataset
            and row.chunk == chunk
            and row.used
            and not (lock is not None and row.beside == lock.id)
        ]

    def replace(self, task_id: int, dataset: str, chunk: int, paths: Sequence[str]) -> Outcome:
        """Replace a chunk; what was added beside the lock that replaces it stays."""
        with self._db.transaction("replace") as tx:
            lock = self._covering(task_id, dataset, chunk)
            if lock is None or lock.type not in REPLACING_LOCKS:
                return Conflict(reason="no lock")
            if lock.revoked:
                return LockLost(lock=lock)
            for row in list(self._tables.segments):
                if row.dataset == dataset and row.chunk == chunk and row.used:
                    kept = row.beside == lock.id
                    tx.update(self._tables.segments, row.id, used=kept, beside=0)
            for path in paths:
                record = SegmentRecord(
                    dataset=dataset, chunk=chunk, sequence=f"b{task_id}", path=path, task_id=task_id
                )
                tx.insert(self._tables.segments, record)
        return Published()

    def _published_before(
        self,
        dataset: str,
        parts: Sequence[MemoryPart],
        sequence: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
    ) -> AlreadyPublished | None:
        if not parts:
            stored = self._tables.stored(dataset)
            at = {each: stored[each].position for each in starts if each in stored}
            is_done = dict(starts) != dict(ends) and at == dict(ends)
            return AlreadyPublished() if is_done else None
        found = self._named(dataset, parts, sequence)
        if len(found) < len(parts):
            return None
        return AlreadyPublished(files=frozenset(row.path for row in found))

    def _named(
        self, dataset: str, parts: Sequence[MemoryPart], sequence: str
    ) -> list[SegmentRecord]:
        """Return the segments that bear these names: a sequence has one of each chunk."""
        chunks = {part.chunk for part in parts}
        return [
            row
            for row in self._tables.segments
            if row.dataset == dataset and row.sequence == sequence and row.chunk in chunks
        ]

    def _stale(self, dataset: str, starts: Mapping[int, int]) -> str:
        stored = self._tables.stored(dataset)
        return "; ".join(
            f"partition {partition} is at {stored[partition].position}, not at {start}"
            for partition, start in sorted(starts.items())
            if partition in stored and stored[partition].position != start
        )

    def _advance(
        self,
        tx: Transaction,
        dataset: str,
        stream: str,
        ends: Mapping[int, int],
        times: Mapping[int, datetime],
    ) -> None:
        stored = self._tables.stored(dataset)
        for partition, end in ends.items():
            former = stored.get(partition)
            known = [times.get(partition), None if former is None else former.latest_event]
            latest = max((each for each in known if each is not None), default=None)
            if former is not None:
                tx.update(self._tables.offsets, former.id, position=end, latest_event=latest)
            else:
                record = OffsetRecord(
                    dataset=dataset,
                    stream=stream,
                    partition=partition,
                    position=end,
                    latest_event=latest,
                )
                tx.insert(self._tables.offsets, record)

    def _group(self, task_id: int) -> str:
        """The group of an attempt's run; a batch writer is one by itself."""
        task = self._db.tasks.get(task_id)
        return f"batch {-task_id}" if task is None else group_of_run(task.process_instance_id)

    def _replacing(self, dataset: str, chunk: int) -> int:
        """Return the lock of a group that replaces the chunk just now."""
        return max(
            (
                lock.id
                for lock in self._standing()
                if lock.dataset == dataset
                and lock.type is LockType.REPLACE
                and not lock.revoked
                and lock.interval == hour(chunk)
            ),
            default=0,
        )

    def _covering(self, task_id: int, dataset: str, chunk: int) -> Lock | None:
        held = {row.lock_id for row in self._db.lock_holders if row.task_id == task_id}
        return next(
            (
                lock
                for lock in self._standing()
                if lock.id in held and lock.dataset == dataset and lock.interval == hour(chunk)
            ),
            None,
        )

    def _standing(self) -> list[Lock]:
        held = {row.lock_id for row in self._db.lock_holders if self._is_live(row.task_id)}
        return [
            Lock(
                id=row.id,
                dataset=row.dataset,
                group_id=row.group_id,
                interval=row.interval,
                version=row.version,
                type=row.type,
                priority=row.priority,
                revoked=row.revoked,
            )
            for row in self._db.locks
            if row.id in held
        ]

    def _runs(self, task_id: int) -> bool:
        task = self._db.tasks.get(task_id)
        return task is not None and task.state == TaskState.RUNNING and task.flag == 1

    def _is_live(self, task_id: int) -> bool:
        if task_id < 0:
            return task_id in self._tables.batches
        task = self._db.tasks.get(task_id)
        return task is not None and not task.is_finished


def hour(chunk: int) -> Interval:
    """Return the interval of a chunk."""
    start = FIRST_HOUR + timedelta(hours=chunk)
    return Interval(start, start + timedelta(hours=1))
