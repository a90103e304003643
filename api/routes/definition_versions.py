"""Versions of definitions: listed, shown, compared, and restored."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from fastapi import Path, Query, Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cursors import After, Limit
from api.definition_answers import SavedDefinition
from api.route import Id, Route, delete, get, post
from api.routes.definitions import saved
from api.version_answers import (
    DeletedVersion,
    Difference,
    RestoreRequest,
    VersionDocument,
    VersionPage,
)
from operations import definition_versions as operations
from operations.documents.definition_versions import difference_document, version_row

_LARGEST: Final = 2**31 - 1
_LIST: Final = "versions"

_Before: TypeAlias = Annotated[
    int | None,
    Query(alias="from", ge=1, le=_LARGEST, description="The version before; else the one before."),
]
_After: TypeAlias = Annotated[
    int | None,
    Query(alias="to", ge=1, le=_LARGEST, description="The version after; else the one in force."),
]


def list_versions(
    id: Id,  # noqa: A002  # The path's name.
    session: Asked,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the versions of a definition, the newest first."""
    found = operations.versions(session, id, limit=limit, before=cursors.read(_LIST, after))
    return {
        "items": [version_row(each) for each in found],
        "next": cursors.next_of(_LIST, [each.version for each in found], limit),
    }


def show_version(
    id: Id,  # noqa: A002
    version: Annotated[int, Path(ge=1, le=_LARGEST)],
    session: Asked,
) -> dict[str, Any]:
    """Show a definition as it was in a version, with references in the place of its secrets."""
    found = operations.export_version(session, id, version)
    return {
        "version": version,
        "document": found.document,
        "references": list(found.references),
    }


def show_difference(
    id: Id,  # noqa: A002
    session: Asked,
    before: _Before = None,
    after: _After = None,
) -> dict[str, Any]:
    """Show the difference of two versions: tasks, edges, values, and what is risky."""
    document = difference_document(operations.compare(session, id, before=before, after=after))
    return {**document, "before": document["from"], "after": document["to"]}


def restore(
    id: Id,  # noqa: A002
    given: RestoreRequest,
    session: Asked,
    response: Response,
    condition: Condition = None,
) -> dict[str, object]:
    """Save an old version of a definition that is as you have read it once more, as its newest one.

    The definition keeps its name, its schedules, its release state and the secrets of now.
    """
    made = operations.restore(session, id, given.version, expected=needed(condition))
    return saved(session, made, response)


def delete_version(
    id: Id,  # noqa: A002
    version: Annotated[int, Path(ge=1, le=_LARGEST)],
    session: Asked,
) -> dict[str, Any]:
    """Delete a version that is not in force; runs go on with their own copy."""
    row = operations.delete_version(session, id, version)
    return {"definition": row.name, "version": version, "deleted": True}


ROUTES: Final[tuple[Route, ...]] = (
    get("/definitions/{id}/versions", list_versions, VersionPage),
    get("/definitions/{id}/versions/{version}", show_version, VersionDocument),
    delete("/definitions/{id}/versions/{version}", delete_version, DeletedVersion),
    get("/definitions/{id}/diff", show_difference, Difference, is_heavy=True),
    post("/definitions/{id}/restore", restore, SavedDefinition, is_conditional=True, is_heavy=True),
)
