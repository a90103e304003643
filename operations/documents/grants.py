"""Grants as documents: the fields of `orcaflow … grants -o json`."""

from __future__ import annotations

from common.store.people.grants import ObjectGrants


def grants_row(found: ObjectGrants) -> dict[str, object]:
    """Return an object with the projects that can use it."""
    return {
        "kind": found.object.kind.word,
        "id": found.object.id,
        "name": found.object.name,
        "projects": [{"id": each.id, "name": each.name} for each in found.projects],
    }
