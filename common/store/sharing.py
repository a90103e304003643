"""The SQL of the rule that a definition reaches those of its project, and those shared with it.

`common.model.reach` has the same rule for names. The conditions here are parts of statements of
masters and of people, so that a share is checked in the statement that needs it.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, exists, func, or_, select

from common.store.tables import share

DEFINITION: Final = "definition"
"""The `object_type` of a definition in `t_ds_share`."""


def is_shared(definition_id: ColumnElement[Any], project_id: ColumnElement[Any]) -> Any:
    """Build the condition that a definition is shared with a project."""
    return (
        exists()
        .where(share.c.object_type == DEFINITION)
        .where(share.c.object_id == definition_id)
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
    found = select(share.c.object_id).where(share.c.object_type == DEFINITION)
    found = found.where(share.c.project_id == project_id).correlate_except(share)
    return func.array(found.scalar_subquery())


def projects_sharing(definition_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Build the array of the projects with which a definition is shared."""
    found = select(share.c.project_id).where(share.c.object_type == DEFINITION)
    found = found.where(share.c.object_id == definition_id).correlate_except(share)
    return func.array(found.scalar_subquery())
