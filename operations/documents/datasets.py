"""Datasets as documents: the fields of `orcaflow dataset … -o json`."""

from __future__ import annotations

from pathlib import Path

from common.model.segments import Segment
from common.store.people.datasets import DatasetSummary
from common.store.streams.offsets import PartitionOffset
from operations.datasets import DatasetView


def summary_row(summary: DatasetSummary) -> dict[str, object]:
    """A dataset, with the times between which it has segments."""
    return {
        "dataset": summary.name,
        "start": summary.start,
        "end": summary.end,
        "segments": summary.segments,
        "rows": summary.rows,
        "bytes": summary.bytes,
        "unused_segments": summary.unused_segments,
        "changed": summary.changed,
    }


def dataset_document(view: DatasetView) -> dict[str, object]:
    """A dataset with its segments, and the offsets of its stream."""
    return {
        **summary_row(view.summary),
        "segments": [segment_row(each) for each in view.segments],
        "offsets": [offset_row(each) for each in view.offsets],
    }


def segment_row(segment: Segment) -> dict[str, object]:
    """A used segment."""
    return {
        "interval": str(segment.id.interval),
        "version": segment.id.version,
        "number": segment.id.partition_num,
        "files": len(segment.files),
        "rows": segment.rows,
        "bytes": segment.bytes,
    }


def offset_row(offset: PartitionOffset) -> dict[str, object]:
    """The offset up to which the dataset has a partition of its stream."""
    return {
        "stream": offset.stream,
        "partition": offset.partition,
        "offset": offset.offset,
        "max_event_time": offset.max_event_time,
    }


def file_row(path: Path) -> dict[str, object]:
    """A file of a segment, as this host has it."""
    return {"file": str(path)}
