"""Shares of definitions with other projects: listed, made and ended."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path

from api.asking import Asked
from api.route import Id, Route, delete, get, post
from api.share_answers import NewShare, Shared, Shares
from operations import shares as operations
from operations.documents.shares import share_row, shared_row

_Project = Annotated[int, Path(ge=1, le=2**31 - 1)]


def list_shares(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """List the projects with which a definition is shared."""
    return {"items": [share_row(each) for each in operations.shares(session, id)]}


def share(id: Id, given: NewShare, session: Asked) -> dict[str, object]:  # noqa: A002
    """Share a definition with a project, whose definitions may then refer to it."""
    return shared_row(operations.share(session, id, given.project))


def unshare(id: Id, project: _Project, session: Asked) -> dict[str, object]:  # noqa: A002
    """End a share; new attempts of tasks that refer to the definition from there fail."""
    return shared_row(operations.unshare(session, id, project))


ROUTES: Final[tuple[Route, ...]] = (
    get("/definitions/{id}/shares", list_shares, Shares),
    post("/definitions/{id}/shares", share, Shared),
    delete("/definitions/{id}/shares/{project}", unshare, Shared),
)
