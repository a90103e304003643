"""Grants of shared objects to projects: listed, given and revoked by administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query

from api.asking import Asked
from api.grant_answers import GrantChange, GrantList, Kind, ObjectGrants
from api.route import Route, get, post
from operations import grants as operations
from operations.documents.grants import grants_row


def list_grants(
    session: Asked,
    kind: Kind | None = None,
    name: Annotated[str | None, Query(max_length=1000)] = None,
) -> dict[str, Any]:
    """List shared objects with the projects that can use each; `name` needs `kind`."""
    found = operations.list_grants(
        session, None if kind is None else operations.kind_named(kind), name
    )
    return {"items": [grants_row(each) for each in found]}


def grant(given: GrantChange, session: Asked) -> dict[str, Any]:
    """Grant an object to a project; an existing grant is kept."""
    kind = operations.kind_named(given.kind)
    return grants_row(operations.grant(session, kind, given.object, given.project))


def revoke(given: GrantChange, session: Asked) -> dict[str, Any]:
    """Revoke a grant. Attempts that have not started fail; running attempts continue."""
    kind = operations.kind_named(given.kind)
    return grants_row(operations.revoke(session, kind, given.object, given.project))


ROUTES: Final[tuple[Route, ...]] = (
    get("/grants", list_grants, GrantList),
    post("/grants", grant, ObjectGrants),
    post("/grants/revoke", revoke, ObjectGrants),
)
