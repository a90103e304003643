"""Datasets as people see them: what there is, and how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from common.store.tables import segment


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """A dataset: its used segments from the first chunk to the last, and how many are replaced."""

    name: str
    start: datetime | None
    end: datetime | None
    segments: int
    rows: int
    bytes: int
    unused_segments: int
    changed: datetime


def dataset_summaries(db: Connection, name: str | None = None) -> tuple[DatasetSummary, ...]:
    """Return all datasets that anything was published into, or the one of this name."""
    used = segment.c.used
    statement = (
        select(
            segment.c.dataset,
            func.min(func.lower(segment.c.interval)).filter(used).label("start"),
            func.max(func.upper(segment.c.interval)).filter(used).label("end"),
            func.count().filter(used).label("segments"),
            func.coalesce(func.sum(segment.c.rows).filter(used), 0).label("rows"),
            func.coalesce(func.sum(segment.c.bytes).filter(used), 0).label("bytes"),
            func.count().filter(~used).label("unused"),
            func.max(segment.c.created).label("changed"),
        )
        .group_by(segment.c.dataset)
        .order_by(segment.c.dataset)
    )
    if name is not None:
        statement = statement.where(segment.c.dataset == name)
    return tuple(
        DatasetSummary(
            name=row.dataset,
            start=row.start,
            end=row.end,
            segments=row.segments,
            rows=int(row.rows),
            bytes=int(row.bytes),
            unused_segments=row.unused,
            changed=row.changed,
        )
        for row in db.execute(statement)
    )
