"""The JSON of stored definitions, for who looks through it and does not run it."""

from __future__ import annotations

import json
from typing import Any, Protocol


class StoredDefinition(Protocol):
    """A row with the JSON of a definition."""

    @property
    def process_definition_json(self) -> str | None: ...


def stored_document(row: StoredDefinition) -> dict[str, Any]:
    """Return the JSON of a row; empty if it can't be read, since such a definition runs nothing."""
    try:
        found = json.loads(row.process_definition_json or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
