"""The operations on shares that an api-server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, assert_never

from common.model.reach import ShareKind
from common.store.people.shares import Share
from operations.shares import Shared
from orcaflow.remote.client import Client, path_of
from orcaflow.remote.definitions import definition_named
from orcaflow.remote.people import project_id


def share(
    client: Client, name: str, project: str | int, *, kind: ShareKind = ShareKind.DEFINITION
) -> Shared:
    """Share an object with a project."""
    answer = client.post(_place(client, kind, name), {"project": project})
    return _shared(kind, answer, project)


def unshare(
    client: Client, name: str, project: str | int, *, kind: ShareKind = ShareKind.DEFINITION
) -> Shared:
    """End a share."""
    # The other project is not the chosen one.
    number = project_id(client.everywhere(), project)
    return _shared(kind, client.delete(f"{_place(client, kind, name)}/{number}"), project)


def shares(client: Client, name: str, *, kind: ShareKind = ShareKind.DEFINITION) -> list[Share]:
    """List the shares of an object."""
    return [
        Share(
            project_id=each["project_id"],
            project_name=each["project"],
            user_name=each["user"],
            create_time=datetime.fromisoformat(each["create_time"]),
        )
        for each in client.get(_place(client, kind, name))["items"]
    ]


def _place(client: Client, kind: ShareKind, name: str) -> str:
    match kind:
        case ShareKind.DEFINITION:
            return f"/definitions/{definition_named(client, name).id}/shares"
        case ShareKind.DATASET:
            return f"{path_of('datasets', name)}/shares"
        case _:
            assert_never(kind)


def _shared(kind: ShareKind, answer: Mapping[str, Any], project: str | int) -> Shared:
    return Shared(
        kind=kind,
        id=answer.get("id"),
        name=answer[kind.value],
        project=project,
        changed=answer["changed"],
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "shares.share": share,
    "shares.unshare": unshare,
    "shares.shares": shares,
}
