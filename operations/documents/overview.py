"""Concerns of an overview as rows: the documented fields of `-o json`."""

from __future__ import annotations

from common.model.concerns import Concern


def concern_row(concern: Concern) -> dict[str, object]:
    """One concern; `id` is the id of its run, complement, command or schedule."""
    return {
        "kind": concern.kind.value,
        "id": concern.id,
        "name": concern.name,
        "process_definition_id": concern.process_definition_id,
        "definition": concern.definition,
        "project": concern.project,
        "since": concern.since,
        "count": concern.count,
        "reason": concern.reason,
    }
