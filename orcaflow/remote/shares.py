"""The operations on shares that an api-server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from common.store.people.shares import Share
from operations.shares import Shared
from orcaflow.remote.client import Client
from orcaflow.remote.definitions import definition_named
from orcaflow.remote.people import project_id


def share(client: Client, definition: str, project: str | int) -> Shared:
    """Share a definition with a project."""
    return _shared(client.post(_place(client, definition), {"project": project}), project)


def unshare(client: Client, definition: str, project: str | int) -> Shared:
    """End a share."""
    # The other project is not the chosen one.
    number = project_id(client.everywhere(), project)
    return _shared(client.delete(f"{_place(client, definition)}/{number}"), project)


def shares(client: Client, definition: str) -> list[Share]:
    """List the shares of a definition."""
    return [
        Share(
            project_id=each["project_id"],
            project_name=each["project"],
            user_name=each["user"],
            create_time=datetime.fromisoformat(each["create_time"]),
        )
        for each in client.get(_place(client, definition))["items"]
    ]


def _place(client: Client, definition: str) -> str:
    return f"/definitions/{definition_named(client, definition).id}/shares"


def _shared(answer: Mapping[str, Any], project: str | int) -> Shared:
    return Shared(
        definition_id=answer["id"],
        name=answer["definition"],
        project=project,
        changed=answer["changed"],
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "shares.share": share,
    "shares.unshare": unshare,
    "shares.shares": shares,
}
