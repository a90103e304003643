"""The progress of streams in memory, made of the rows as `common.store.master.dataset_progress` does."""

from __future__ import annotations

from datetime import datetime

from common.model.streams.progress import (
    DatasetProgress,
    Feeding,
    OpenTask,
    PartitionProgress,
    fed_partitions,
)
from common.model.streams.tasks import offsets_of
from common.model.upstream import Absence
from tests.memory.database import MemoryDatabase
from tests.memory.rows import EPOCH
from tests.memory.stream_rows import RuntimeRecord, StreamTaskRecord


def progress_of(db: MemoryDatabase, dataset: str) -> DatasetProgress | Absence:
    """Return the progress of the stream that feeds a dataset."""
    offsets = [row for row in db.dataset_offsets if row.dataset == dataset]
    keeper = next((row for row in db.supervisors if row.name == dataset), None)
    if keeper is None and not offsets:
        return Absence.NO_STREAM
    status = {} if keeper is None else keeper.standing.status
    looked = status.get("offsetsLastUpdated")
    tasks = [row for row in db.stream_tasks if row.assignment.supervisor == dataset]
    stored = {
        row.partition: PartitionProgress(
            offset=row.position,
            since=row.since or EPOCH,
            latest_event=row.latest_event,
        )
        for row in offsets
    }
    readers = tuple(_open(row) for row in tasks if not row.closed)
    latest = offsets_of(status.get("latestOffsets") or {})
    return DatasetProgress(
        feeding=_feeding(db, keeper),
        partitions=fed_partitions(stored, readers, latest),
        tasks=readers,
        latest=latest,
        looked=None if looked is None else datetime.fromisoformat(looked),
    )


def _feeding(db: MemoryDatabase, keeper: RuntimeRecord | None) -> Feeding:
    if keeper is None or not keeper.active:
        return Feeding.ENDED
    spec = next(
        row
        for row in db.supervisor_specs
        if (row.name, row.version) == (keeper.name, keeper.version)
    )
    if spec.document is None:
        return Feeding.ENDED
    return Feeding.SUSPENDED if spec.suspended else Feeding.RUNNING


def _open(task: StreamTaskRecord) -> OpenTask:
    assignment = task.assignment
    checkpoints = assignment.checkpoints
    first = checkpoints[min(checkpoints)] if checkpoints else assignment.starts
    return OpenTask(starts=first, min_time=assignment.min_time)
