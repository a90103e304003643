"""The operations on grants over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from common.model.grants import KINDS, GrantKind
from common.store.people.grants import ObjectGrants, ProjectOfGrant, SharedObject
from orcaflow.remote.client import Client


def grant(client: Client, kind: GrantKind, given: str | int, project: str | int) -> ObjectGrants:
    """Grant an object to a project."""
    return _grants_of(client.post("/grants", _change(kind, given, project)))


def revoke(client: Client, kind: GrantKind, given: str | int, project: str | int) -> ObjectGrants:
    """Revoke a grant."""
    return _grants_of(client.post("/grants/revoke", _change(kind, given, project)))


def list_grants(
    client: Client, kind: GrantKind | None = None, given: str | int | None = None
) -> list[ObjectGrants]:
    """List objects with the projects that can use them."""
    query = {"kind": None if kind is None else kind.word, "name": given}
    asked = {key: each for key, each in query.items() if each is not None}
    return [_grants_of(row) for row in client.get("/grants", asked)["items"]]


def _change(kind: GrantKind, given: str | int, project: str | int) -> dict[str, Any]:
    return {"kind": kind.word, "object": given, "project": project}


def _grants_of(row: Mapping[str, Any]) -> ObjectGrants:
    return ObjectGrants(
        object=SharedObject(
            kind=KINDS[row["kind"]], id=row["id"], number=row["id"], name=row["name"]
        ),
        projects=tuple(
            ProjectOfGrant(id=each["id"], name=each["name"]) for each in row["projects"]
        ),
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "grants.grant": grant,
    "grants.list_grants": list_grants,
    "grants.revoke": revoke,
}
