"""The SQL of the rule that a definition reaches those of its project, and those shared with it.

`common.store.streams.reach` has the rule for datasets.

`common.model.reach` has the same rule for names. The conditions here are parts of statements of
masters and of people, so that a share is checked in the statement that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    exists,
    func,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.asked_items import asked_names
from common.model.reach import ShareKind, Target
from common.store.tables import process_definition, project, share
from common.store.transaction import AnyRow


def is_shared(
    object_id: ColumnElement[Any],
    project_id: ColumnElement[Any],
    *,
    kind: ShareKind = ShareKind.DEFINITION,
) -> Any:
    """Build the condition that a definition or a dataset is shared with a project."""
    return (
        exists()
        .where(share.c.object_type == kind.value)
        .where(share.c.object_id == object_id)
        .where(share.c.project_id == project_id)
        .correlate_except(share)
    )


def is_reached(
    definition_id: ColumnElement[Any],
    of_project: ColumnElement[Any],
    project_id: ColumnElement[Any],
) -> ColumnElement[bool]:
    """Build the condition that definitions of `project_id` may refer to a definition."""
    return or_(of_project == project_id, is_shared(definition_id, project_id))


def definitions_shared(project_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Build the array of the definitions of other projects that are shared with a project."""
    found = select(share.c.object_id).where(share.c.object_type == ShareKind.DEFINITION.value)
    found = found.where(share.c.project_id == project_id).correlate_except(share)
    return func.array(found.scalar_subquery())


def projects_sharing(definition_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Build the array of the projects with which a definition is shared."""
    found = select(share.c.project_id).where(share.c.object_type == ShareKind.DEFINITION.value)
    found = found.where(share.c.object_id == definition_id).correlate_except(share)
    return func.array(found.scalar_subquery())


def candidates() -> Select[Any]:
    """Build the query of definitions with what decides who reaches them, in order of id."""
    return (
        select(
            process_definition.c.id,
            process_definition.c.name,
            process_definition.c.project_id,
            project.c.name.label("project_name"),
            projects_sharing(process_definition.c.id).label("shared"),
        )
        .outerjoin_from(
            process_definition, project, project.c.id == process_definition.c.project_id
        )
        .order_by(process_definition.c.id)
    )


def has_name() -> ColumnElement[bool]:
    """Build the condition that a definition has one of the names of the parameter `names`."""
    names = cast(bindparam("names", type_=ARRAY(Text)), ARRAY(Text))
    return process_definition.c.name == any_(names)


_NAMED: Final = candidates().where(has_name())


def candidates_named_in(db: Connection, documents: Iterable[str]) -> list[AnyRow]:
    """Read the rows of `candidates` that DEPENDENT tasks of these definitions ask for by name.

    Names are in rows that people have typed: without any, nothing is read.
    """
    names = sorted({name for document in documents for name in asked_names(document)})
    return list(db.execute(_NAMED, {"names": names})) if names else []


def reached_by(rows: Iterable[AnyRow], project_id: int | None) -> tuple[Target, ...]:
    """Return those rows of `candidates` that definitions of a project reach.

    `project_id` is None for a run without a definition: such a run reaches all of them.
    """
    return tuple(
        Target(id=row.id, project_id=row.project_id, name=row.name, project_name=row.project_name)
        for row in rows
        if project_id is None or project_id == row.project_id or project_id in row.shared
    )
