"""The names and codes of a run's definition and project, in statements that read the run."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Text, cast, func, select

from common.model.origins import NOWHERE, Origin
from common.store.tables import process_definition, project


def _fields(of_project: FromClause) -> ColumnElement[Any]:
    definition, own = process_definition.c, of_project.c
    return cast(func.json_build_array(definition.name, definition.code, own.name, own.code), Text)


ORIGIN: Final[ColumnElement[Any]] = _fields(project).label("origin")
"""The fields of `Origin`, which are null in outer joins if the objects were deleted.

They are one column, because a claim pays for each byte that describes a column.
"""
_PROJECT: Final = project.alias("project_of_definition")
ORIGIN_OF_DEFINITION: Final[ColumnElement[Any]] = (
    select(_fields(_PROJECT))
    .where(_PROJECT.c.id == process_definition.c.project_id)
    .correlate(process_definition)
    .scalar_subquery()
    .label("origin")
)
"""The same in a statement that reads definitions and joins no projects."""


def origin_of(column: str | None) -> Origin:
    """Return the names and codes from the column `ORIGIN`; nothing without a project."""
    if column is None:
        return NOWHERE
    definition, definition_code, project_name, project_code = json.loads(column)
    return Origin(
        definition_name=definition or "",
        definition_code=definition_code or 0,
        project_name=project_name or "",
        project_code=project_code or 0,
    )
