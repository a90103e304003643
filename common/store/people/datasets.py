"""Datasets as people see them: what there is, and how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Text, cast, exists, func, literal, null, select, true
from sqlalchemy.dialects.postgresql import insert

from common.model.rights import Principal
from common.store.people.rights import seen_projects
from common.store.streams.offsets import has_offsets
from common.store.tables import dataset, segment


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


def dataset_summaries(
    db: Connection,
    principal: Principal,
    name: str | None = None,
    *,
    after: str = "",
    limit: int | None = None,
) -> tuple[DatasetSummary, ...]:
    """Return the datasets that anything was published into and that the principal may see.

    By name: the one of this name, or some of those behind one. What is of no project is for
    administrators.
    """
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
        .outerjoin_from(segment, dataset, dataset.c.name == segment.c.dataset)
        .where(seen_projects(principal, dataset.c.project_id))
        .where(true() if name is None else segment.c.dataset == name)
        .where(segment.c.dataset > after)
        .group_by(segment.c.dataset)
        .order_by(segment.c.dataset)
        .limit(limit)
    )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRow:
    """A dataset of a project; it is empty until the first publication."""

    id: int
    name: str
    project_id: int


def dataset_named(db: Connection, name: str) -> DatasetRow | None:
    """Read a dataset; None if it is missing or does not belong to a project."""
    found = db.execute(
        select(dataset.c.id, dataset.c.name, dataset.c.project_id).where(dataset.c.name == name)
    ).first()
    if found is None:
        return None
    return DatasetRow(id=found.id, name=found.name, project_id=found.project_id)


def sees_rows(db: Connection, principal: Principal, name: str) -> bool:
    """Return True if something was published into the dataset and the principal may see it."""
    found = (
        select(segment.c.dataset)
        .outerjoin_from(segment, dataset, dataset.c.name == segment.c.dataset)
        .where(seen_projects(principal, dataset.c.project_id))
        .where(segment.c.dataset == name)
        .limit(1)
    )
    return db.scalar(found) is not None


def sees_unowned(db: Connection, principal: Principal, name: str) -> bool:
    """Return True if the principal may see a dataset that does not belong to a project."""
    no_project = cast(null(), dataset.c.project_id.type)
    rows = exists().where(segment.c.dataset == name)
    owned = exists().where(dataset.c.name == name)
    return bool(db.scalar(select(rows & ~owned & seen_projects(principal, no_project))))


def own_dataset(db: Connection, name: str, project_id: int, *, anyway: bool) -> int | None:
    """Give a dataset that is no project's to this one; return the one that it is of by now.

    None: it has rows or offsets, and is left to those who may have it `anyway`.
    """
    free = select(literal(name, Text), cast(literal(project_id), dataset.c.project_id.type))
    if not anyway:
        free = free.where(~exists().where(segment.c.dataset == name)).where(~has_offsets(name))
    db.execute(insert(dataset).from_select(["name", "project_id"], free).on_conflict_do_nothing())
    owner: int | None = db.scalar(select(dataset.c.project_id).where(dataset.c.name == name))
    return owner
