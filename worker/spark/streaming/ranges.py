"""Decides which records of a stream a batch takes, and how a batch is shared by tasks of Spark.

Pure. Offsets of ends are the first not to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from common.errors import SchedulerError
from common.model.streams.partitions import Partition, TopicPartition
from common.model.streams.spec import Offsets
from worker.spark.streaming.documents import Limits

Name = TypeVar("Name", int | TopicPartition, str)
"""The names of partitions in Kafka, or texts in a spout."""


class PastTheEndError(SchedulerError):
    """An end was named at a place that has been passed already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(Generic[Name]):
    """Records of one partition, from `start` up to but not including `end`."""

    partition: Name
    start: int
    end: int


def next_offsets(
    begin: Offsets, latest: Offsets, limits: Limits, most_rows: int | None
) -> dict[Partition, int]:
    """Return the end of the next batch; `begin` if nothing is to be read now."""
    if limits.paused:
        return dict(begin)
    ends = limits.ends or {}
    for partition, start in begin.items():
        if ends.get(partition, start) < start:
            raise PastTheEndError(
                f"partition {partition} was to end at offset {ends[partition]},"
                f" and has been read up to {start}"
            )
    ceiling = {
        partition: max(start, min(latest.get(partition, start), ends.get(partition, 2**63)))
        for partition, start in begin.items()
    }
    return ceiling if most_rows is None else limited(begin, ceiling, most_rows)


def limited(
    begin: Mapping[Name, int], ceiling: Mapping[Name, int], most_rows: int
) -> dict[Name, int]:
    """Share a batch fairly: what a short partition leaves is for the longer ones."""
    found: dict[Name, int] = {}
    left = most_rows
    waiting = sorted(begin, key=lambda partition: ceiling[partition] - begin[partition])
    for index, partition in enumerate(waiting):
        share = -(-left // (len(waiting) - index))
        taken = min(share, ceiling[partition] - begin[partition])
        found[partition] = begin[partition] + taken
        left -= taken
    return found


def pieces(
    begin: Mapping[Name, int], end: Mapping[Name, int], at_once: int, least_rows: int
) -> tuple[Piece[Name], ...]:
    """Cut a batch so that `at_once` tasks share it, with `least_rows` or more each.

    A partition is cut by offsets, so gaps of it make a piece smaller and nothing else.
    """
    spans = {partition: end[partition] - begin[partition] for partition in sorted(begin)}
    total = sum(spans.values())
    if not total:
        return ()
    size = max(least_rows, -(-total // at_once))
    found: list[Piece[Name]] = []
    for partition, span in spans.items():
        count = max(1, round(span / size)) if span else 0
        edges = [begin[partition] + span * index // count for index in range(count)]
        edges.append(end[partition])
        found += _between(partition, edges if count else ())
    return tuple(found)


def _between(partition: Name, edges: Sequence[int]) -> list[Piece[Name]]:
    return [Piece(partition=partition, start=start, end=end) for start, end in pairwise(edges)]
