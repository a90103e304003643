"""Decides whether an interval of a dataset is complete: no row will be added to it any more.

Pure. A row gets into the interval from a partition of the stream, so each of them has to be *past*
it, in one of three ways:

- It has published a row that is later than the end of the interval by the lateness; whatever stands
  behind that row is later than the end, if the lateness is kept.
- All that read it reject rows from before the end, beginning with what is published.
- It has been idle: at a look at the broker, after the end and the lateness, nothing was left to
  read of it, and nothing had come for as long as the item says. Only if the item says so.

What is about to be published counts as not read: tasks that die may have read it for nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from common.depend_intervals import Interval
from common.model.depend_items import DatasetItem
from common.model.intervals import instant_text
from common.model.streams.partitions import Partition
from common.model.streams.progress import DatasetProgress, Feeding

_LAST: Final = datetime.max.replace(tzinfo=UTC)


def lacking(progress: DatasetProgress, item: DatasetItem, interval: Interval) -> str | None:
    """Return what the interval lacks to be complete, in words; None if it is complete."""
    needed = _later(interval.end, item.lateness)
    behind = [
        partition
        for partition in sorted({*progress.partitions, *progress.latest})
        if not _is_past(progress, partition, item.idle_after, needed=needed, end=interval.end)
    ]
    if behind:
        return _words(progress, behind, needed)
    if not progress.partitions:
        return f"nothing is known of its stream yet, and its supervisor {progress.feeding.value}"
    return None


def _is_past(
    progress: DatasetProgress,
    partition: Partition,
    idle_after: timedelta | None,
    *,
    needed: datetime,
    end: datetime,
) -> bool:
    published = progress.partitions.get(partition)
    if published is None:
        return False
    if published.latest_event is not None and published.latest_event >= needed:
        return True
    readers = [task for task in progress.tasks if partition in task.starts]
    if (
        readers
        and min(task.starts[partition] for task in readers) <= published.offset
        and all(task.min_time is not None and task.min_time >= end for task in readers)
    ):
        return True
    return (
        idle_after is not None
        and progress.looked is not None
        and progress.looked >= max(_later(published.since, idle_after), _later(needed, idle_after))
        and progress.latest.get(partition, published.offset + 1) <= published.offset
    )


def _words(progress: DatasetProgress, behind: list[Partition], needed: datetime) -> str:
    partition = behind[0]
    published = progress.partitions.get(partition)
    latest = None if published is None else published.latest_event
    reached = "nothing with a time" if latest is None else f"rows up to {instant_text(latest)}"
    more = f", and {len(behind) - 1} more are behind" if len(behind) > 1 else ""
    why = (
        "" if progress.feeding is Feeding.RUNNING else f"; its supervisor {progress.feeding.value}"
    )
    return (
        f"partition {partition} has published {reached}, and needs {instant_text(needed)}"
        f"{more}{why}"
    )


def _later(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return _LAST
