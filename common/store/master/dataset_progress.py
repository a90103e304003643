"""Reads how far the streams of datasets have been published, and who may still publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Engine, Integer, Text, and_, case, func, or_, select
from sqlalchemy.dialects.postgresql import JSONB

from common.model.streams.partitions import TopicPartition
from common.model.streams.progress import (
    DatasetProgress,
    Feeding,
    OpenTask,
    PartitionProgress,
    fed_partitions,
)
from common.model.streams.tasks import offsets_of
from common.model.upstream import Absence, DatasetQuestion
from common.store.streams.offsets import ALL_OFFSETS
from common.store.streams.reach import reaches_dataset
from common.store.tables import stream_task, supervisor, supervisor_runtime
from common.store.transaction import AnyRow, repeatable, storable, unnested

_ASKED: Final = unnested("asked", place=Integer, dataset=Text, asking_project=Integer)
# All in one statement, and so of one moment: a task whose publication is seen may be closed.
_PARTITIONS: Final = (
    select(
        func.jsonb_agg(
            func.jsonb_build_array(
                case((ALL_OFFSETS.c.by_topic, ALL_OFFSETS.c.stream)),
                ALL_OFFSETS.c.partition,
                ALL_OFFSETS.c.offset,
                ALL_OFFSETS.c.update_time,
                ALL_OFFSETS.c.max_event_time,
                type_=JSONB,
            ),
            type_=JSONB,
        )
    )
    .where(ALL_OFFSETS.c.dataset == _ASKED.c.dataset)
    .correlate(_ASKED)
    .scalar_subquery()
)
_TASKS: Final = (
    select(func.jsonb_agg(stream_task.c.assignment, type_=JSONB))
    .where(stream_task.c.supervisor == _ASKED.c.dataset)
    .where(stream_task.c.closed.is_(False))
    .correlate(_ASKED)
    .scalar_subquery()
)
_LOOK: Final = (
    select(
        supervisor_runtime.c.active,
        supervisor.c.suspended,
        supervisor.c.tombstone,
        supervisor_runtime.c.status,
        # A dataset of another project gets the same answer as a missing one.
        or_(
            _ASKED.c.asking_project.is_(None),
            reaches_dataset(_ASKED.c.asking_project, _ASKED.c.dataset),
        ).label("reached"),
        _PARTITIONS.label("partitions"),
        _TASKS.label("tasks"),
    )
    .select_from(_ASKED)
    .outerjoin(supervisor_runtime, supervisor_runtime.c.id == _ASKED.c.dataset)
    .outerjoin(
        supervisor,
        and_(
            supervisor.c.id == supervisor_runtime.c.id,
            supervisor.c.version == supervisor_runtime.c.version,
        ),
    )
    .order_by(_ASKED.c.place)
)


def progress_of(
    engine: Engine, questions: Sequence[DatasetQuestion]
) -> tuple[DatasetProgress | Absence, ...]:
    """Answer each of these questions, in their order."""
    asked = {
        "asked_place": list(range(len(questions))),
        "asked_dataset": [storable(each.dataset) for each in questions],
        "asked_asking_project": [each.asking_project for each in questions],
    }
    rows = repeatable(engine, lambda db: db.execute(_LOOK, asked).all())
    return tuple(_progress(row) for row in rows)


def _progress(row: AnyRow) -> DatasetProgress | Absence:
    if not row.reached or (row.active is None and not row.partitions):
        return Absence.NO_STREAM
    status: Mapping[str, Any] = row.status or {}
    stored = {
        int(number) if topic is None else TopicPartition(topic, int(number)): PartitionProgress(
            offset=int(offset), since=datetime.fromisoformat(since), latest_event=_time(latest)
        )
        for topic, number, offset, since, latest in row.partitions or ()
    }
    tasks = tuple(_task(each) for each in row.tasks or ())
    latest = offsets_of(status.get("latestOffsets") or {})
    return DatasetProgress(
        feeding=_feeding(row),
        partitions=fed_partitions(stored, tasks, latest),
        tasks=tasks,
        latest=latest,
        looked=_time(status.get("offsetsLastUpdated")),
    )


def _feeding(row: AnyRow) -> Feeding:
    if not row.active or row.tombstone:
        return Feeding.ENDED
    return Feeding.SUSPENDED if row.suspended else Feeding.RUNNING


def _task(assignment: Mapping[str, Any]) -> OpenTask:
    checkpoints: Mapping[str, Any] = assignment.get("checkpoints") or {}
    first = checkpoints[min(checkpoints, key=int)] if checkpoints else assignment["starts"]
    return OpenTask(starts=offsets_of(first), min_time=_time(assignment.get("minTime")))


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
