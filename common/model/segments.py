"""Segments, publications and their outcomes: how a dataset moves forward.

Pure. A *segment* is a set of files with rows of one interval of a dataset, named by interval,
version and partition number. A *publication* is all that one task wants to appear at once: its
segments, the offsets of the stream up to which they reach, and the interval that they replace.
`common.store.streams.publication` carries one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from common.model.intervals import Interval
from common.model.locks import Lock
from common.model.streams.partitions import Partition
from common.model.streams.spec import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentId:
    """The name of a segment within its dataset."""

    interval: Interval
    version: str
    partition_num: int

    def __str__(self) -> str:
        return f"{self.interval} {self.version} {self.partition_num}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment with its files, whose paths are relative to the warehouse."""

    id: SegmentId
    files: tuple[str, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRange:
    """A part of a stream, by partition: from `starts` up to but not including `ends`."""

    stream: str
    starts: Offsets
    ends: Offsets
    max_event_times: Mapping[Partition, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """All that appears at once. `replaces`: the interval of which nothing else is to stay.

    `sequence` names the work, so that the same work by another task is recognised.
    """

    dataset: str
    task_id: int
    sequence: str
    segments: tuple[Segment, ...] = ()
    range: StreamRange | None = None
    replaces: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The publication was carried out; `ids` are those under which its segments appear."""

    ids: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyPublished:
    """The same was published before. Files that `files` does not name can be deleted."""

    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LockLost:
    """Nothing was published: this lock was revoked."""

    lock: Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Nothing was published, and never will be: the task's work is stale or was never allowed."""

    reason: str


Outcome: TypeAlias = Published | AlreadyPublished | LockLost | Conflict


def mistake_of(publication: Publication) -> str | None:
    """Return the contradiction within a publication, or None."""
    stream = publication.range
    if stream is not None:
        if stream.starts.keys() != stream.ends.keys() or not stream.starts:
            return "a range needs a start and an end for the same partitions, one at least"
        if len({isinstance(each, int) for each in stream.starts}) > 1:
            return "a range has partitions of one topic, or of several, and not both"
        for partition, start in stream.starts.items():
            if not 0 <= start <= stream.ends[partition]:
                return (
                    f"partition {partition} would go from offset {start} back to"
                    f" {stream.ends[partition]}"
                )
    ids = [segment.id for segment in publication.segments]
    if len(set(ids)) != len(ids):
        return "two segments have the same interval, version and partition number"
    replaced = publication.replaces
    if replaced is not None:
        for each in ids:
            if not replaced.contains(each.interval):
                return f"segment {each} reaches beyond the interval that is replaced, {replaced}"
    for segment in publication.segments:
        if not segment.files and segment.rows:
            return f"segment {segment.id} has rows and no file"
    if stream is None and replaced is None and not ids:
        return "there is nothing to publish"
    return None
