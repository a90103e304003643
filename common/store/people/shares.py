"""Shares of definitions and datasets with other projects, and the definitions that one reaches.

Each function runs within a transaction of its caller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, literal, select
from sqlalchemy.dialects.postgresql import insert

from common.model.reach import ShareKind, Target
from common.model.rights import Principal
from common.store.people.drafts import author_of
from common.store.people.rights import LARGEST_ID, seen_projects
from common.store.sharing import is_reached
from common.store.tables import dataset, process_definition, project, share, user

_TABLES: Final[dict[ShareKind, Table]] = {
    ShareKind.DEFINITION: process_definition,
    ShareKind.DATASET: dataset,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A project with which a definition or a dataset is shared.

    `project_name` is None if the reader may not see that project. `user_name` is None if nobody is
    recorded.
    """

    project_id: int
    project_name: str | None
    user_name: str | None
    create_time: datetime


def add_share(
    db: Connection,
    principal: Principal,
    kind: ShareKind,
    object_id: int,
    project_id: int,
    *,
    at: datetime,
) -> bool | None:
    """Share an object with a project; False if it is shared already, None if it is deleted."""
    row = _TABLES[kind].c.id
    # A deletion waits for this transaction, and deletes the new share too.
    held = select(row).where(row == object_id).with_for_update(read=True, key_share=True)
    if db.scalar(held) is None:
        return None
    made = db.execute(
        insert(share)
        .values(
            object_type=kind.value,
            object_id=object_id,
            project_id=project_id,
            user_id=author_of(principal),
            create_time=at,
        )
        .on_conflict_do_nothing()
    )
    return made.rowcount == 1


def delete_share(db: Connection, kind: ShareKind, object_id: int, project_id: int) -> bool:
    """End a share; False if there is none."""
    of_project = share.c.project_id == project_id
    return db.execute(delete(share).where(_of(kind, [object_id]), of_project)).rowcount == 1


def delete_shares_of(db: Connection, kind: ShareKind, ids: Collection[int]) -> None:
    """End the shares of objects that the caller has deleted."""
    db.execute(delete(share).where(_of(kind, ids)))


def _of(kind: ShareKind, ids: Collection[int]) -> ColumnElement[bool]:
    return and_(share.c.object_type == kind.value, share.c.object_id.in_(ids))


def shares_of(db: Connection, principal: Principal, kind: ShareKind, object_id: int) -> list[Share]:
    """List the projects with which an object is shared, by id."""
    seen = select(project.c.name).where(project.c.id == share.c.project_id)
    rows = db.execute(
        select(
            share.c.project_id,
            seen.where(seen_projects(principal, project.c.id)).scalar_subquery().label("name"),
            user.c.user_name,
            share.c.create_time,
        )
        .outerjoin_from(share, user, user.c.id == share.c.user_id)
        .where(_of(kind, [object_id]))
        .order_by(share.c.project_id)
    )
    return [
        Share(
            project_id=row.project_id,
            project_name=row.name,
            user_name=row.user_name,
            create_time=row.create_time,
        )
        for row in rows
    ]


def shared_with(db: Connection, definition_ids: Collection[int]) -> dict[int, frozenset[int]]:
    """Read the projects with which each of these definitions is shared."""
    found: dict[int, frozenset[int]] = {}
    rows = db.execute(
        select(share.c.object_id, share.c.project_id).where(
            _of(ShareKind.DEFINITION, definition_ids)
        )
    )
    for row in rows:
        found[row.object_id] = found.get(row.object_id, frozenset()) | {row.project_id}
    return found


def targets_named(db: Connection, project_id: int, names: Collection[str]) -> list[Target]:
    """List the definitions with one of these names that a project reaches, by id."""
    return _targets(db, project_id, process_definition.c.name.in_(names)) if names else []


def targets_with_ids(db: Connection, project_id: int, ids: Collection[int]) -> dict[int, Target]:
    """Read those of these definitions that a project reaches, by id."""
    wanted = [each for each in ids if 0 < each <= LARGEST_ID]
    if not wanted:
        return {}
    found = _targets(db, project_id, process_definition.c.id.in_(wanted))
    return {each.id: each for each in found}


def _targets(db: Connection, project_id: int, which: ColumnElement[bool]) -> list[Target]:
    row = process_definition.c
    found = db.execute(
        select(
            row.id,
            row.project_id,
            row.name,
            project.c.name.label("project_name"),
            project.c.code.label("project_code"),
        )
        .outerjoin_from(process_definition, project, project.c.id == row.project_id)
        .where(which)
        .where(is_reached(row.id, row.project_id, literal(project_id)))
        .order_by(row.id)
    )
    return [
        Target(
            id=each.id,
            project_id=each.project_id,
            name=each.name,
            project_name=each.project_name,
            project_code=each.project_code,
        )
        for each in found
    ]


def seen_among(
    db: Connection, principal: Principal, project_ids: Collection[int]
) -> frozenset[int] | None:
    """Read those of these projects that the principal may see; None means all of them."""
    if principal.owns_database:
        return None
    return frozenset(
        db.scalars(
            select(project.c.id)
            .where(project.c.id.in_(project_ids))
            .where(seen_projects(principal, project.c.id))
        )
    )


def name_of_project(db: Connection, project_id: int) -> str | None:
    """Read the name of a project."""
    found: str | None = db.scalar(select(project.c.name).where(project.c.id == project_id))
    return found
