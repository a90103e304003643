"""Shares of definitions and datasets with other projects: listed, made and ended."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path

from api.asking import Asked
from api.route import Id, Route, delete, get, post
from api.routes.datasets import Name
from api.share_answers import NewShare, Shared, SharedDataset, Shares
from common.model.reach import ShareKind
from common.store.people.shares import Share
from operations import shares as operations
from operations.documents.shares import share_row, shared_row

_Project = Annotated[int, Path(ge=1, le=2**31 - 1)]


def list_shares(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """List the projects with which a definition is shared."""
    return _listed(operations.shares(session, id))


def share(id: Id, given: NewShare, session: Asked) -> dict[str, object]:  # noqa: A002
    """Share a definition with a project, whose definitions may then refer to it."""
    return shared_row(operations.share(session, id, given.project))


def unshare(id: Id, project: _Project, session: Asked) -> dict[str, object]:  # noqa: A002
    """End a share; new attempts of tasks that refer to the definition from there fail."""
    return shared_row(operations.unshare(session, id, project))


def list_dataset_shares(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """List the projects with which a dataset is shared."""
    return _listed(operations.shares(session, id, kind=ShareKind.DATASET))


def share_dataset(id: Name, given: NewShare, session: Asked) -> dict[str, object]:  # noqa: A002
    """Share a dataset with a project. Its tasks may then read, lock and change the dataset."""
    return shared_row(operations.share(session, id, given.project, kind=ShareKind.DATASET))


def unshare_dataset(id: Name, project: _Project, session: Asked) -> dict[str, object]:  # noqa: A002
    """End a share. Reads then find nothing, and locks and publications are refused."""
    return shared_row(operations.unshare(session, id, project, kind=ShareKind.DATASET))


def _listed(found: list[Share]) -> dict[str, Any]:
    return {"items": [share_row(each) for each in found]}


ROUTES: Final[tuple[Route, ...]] = (
    get("/definitions/{id}/shares", list_shares, Shares),
    post("/definitions/{id}/shares", share, Shared),
    delete("/definitions/{id}/shares/{project}", unshare, Shared),
    get("/datasets/{id}/shares", list_dataset_shares, Shares),
    post("/datasets/{id}/shares", share_dataset, SharedDataset),
    delete("/datasets/{id}/shares/{project}", unshare_dataset, SharedDataset),
)
