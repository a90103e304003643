"""The names and codes of a run's definition and project, in statements that read the run."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import ColumnElement, Text, cast, func

from common.params.built_ins import Origin
from common.store.tables import process_definition, project

ORIGIN: Final[ColumnElement[Any]] = cast(
    func.json_build_array(
        process_definition.c.name, process_definition.c.code, project.c.name, project.c.code
    ),
    Text,
).label("origin")
"""The fields of `Origin`, which are null in outer joins if the objects were deleted.

They are one column, because a claim pays for each byte that describes a column.
"""


def origin_of(column: str) -> Origin:
    """Return the names and codes from the column `ORIGIN`."""
    definition, definition_code, project_name, project_code = json.loads(column)
    return Origin(
        definition_name=definition or "",
        definition_code=definition_code or 0,
        project_name=project_name or "",
        project_code=project_code or 0,
    )
