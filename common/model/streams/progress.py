"""The progress of the stream that feeds a dataset, and the tasks that may still publish into it.

Pure. The store reads it from the tables, as of one moment; `master.logic.completeness` judges by it
whether an interval of the dataset is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from common.model.streams.partitions import Partition
from common.model.streams.spec import Offsets


class Feeding(Enum):
    """The state of a dataset's supervisor."""

    RUNNING = "is running"
    SUSPENDED = "is suspended"
    ENDED = "has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """A partition of the stream: all records before `offset` are published, or were thrown away.

    It has stood there since `since`, by the clock of the database. `latest_event` is the latest
    time of all that was published of it.
    """

    offset: int
    since: datetime
    latest_event: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask:
    """A task that reads or publishes: where it began, and the time before which it takes no row."""

    starts: Offsets
    min_time: datetime | None = None


def fed_partitions(
    stored: Mapping[Partition, PartitionProgress], tasks: Collection[OpenTask], latest: Offsets
) -> dict[Partition, PartitionProgress]:
    """Return the partitions that may still feed a dataset.

    Offsets of a topic stay stored after its deletion, or after a change of the pattern. Once no
    task reads such a topic, it adds no more rows.
    """
    return {
        partition: progress
        for partition, progress in stored.items()
        if isinstance(partition, int)
        or not latest
        or partition in latest
        or any(partition in task.starts for task in tasks)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetProgress:
    """The partitions of a dataset's stream, and the tasks that may still publish.

    `latest` has the next offset of each partition at the broker, as the supervisor saw it at
    `looked`, which is None if it has not seen any.
    """

    feeding: Feeding
    partitions: Mapping[Partition, PartitionProgress] = field(default_factory=dict)
    tasks: tuple[OpenTask, ...] = ()
    latest: Offsets = field(default_factory=dict)
    looked: datetime | None = None
