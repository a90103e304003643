"""The JSON schema of definition files, for the task types that are installed here."""

from __future__ import annotations

from typing import Any

from common.model.definition_schema import definition_schema
from common.task_types import known_task_types


def schema_of_files() -> dict[str, Any]:
    """Return the schema (2020-12) of a definition file."""
    return definition_schema(known_task_types())
