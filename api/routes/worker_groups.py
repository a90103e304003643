"""Worker groups: shown to members of projects that may use them, created by administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cluster_answers import (
    DeletedWorkerGroup,
    MadeWorkerGroup,
    NewWorkerGroup,
    WorkerGroup,
    WorkerGroupPage,
)
from api.cursors import After, Limit
from api.policy import BASE
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, delete, get, post
from operations import worker_groups as operations
from operations.documents.worker_groups import group_row


def list_worker_groups(
    session: Asked,
    name: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the worker groups by id, or the one of this name, with the living workers of each."""
    found = operations.list_groups(
        session, name=name, after=cursors.read("worker-groups", after) or 0, limit=limit
    )
    return {
        "items": [group_row(each) for each in found],
        "next": cursors.next_of("worker-groups", [each.view.id for each in found], limit),
    }


def show_worker_group(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
    """Show a worker group with the living workers that serve it."""
    found = operations.group_given(session, id)
    response.headers["ETag"] = f'"{operations.group_tag(found.view)}"'
    return group_row(found)


def create_worker_group(
    given: NewWorkerGroup,
    session: Asked,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Make a worker group; without addresses, workers that are started with it serve it."""
    made = operations.create_group(
        session,
        given.name,
        addresses=given.addresses,
        projects=given.projects,
        once=once_of(idempotency_key, "worker-group", given),
    )
    response.headers["Location"] = f"{BASE}/worker-groups/{made.id}"
    response.headers["ETag"] = f'"{operations.group_tag(made)}"'
    return {
        "id": made.id,
        "name": made.name,
        "addresses": list(made.addresses),
        "create_time": made.create_time,
    }


def delete_worker_group(id: Id, session: Asked, condition: Condition = None) -> dict[str, Any]:  # noqa: A002
    """Delete a worker group that is as you have read it and that nothing needs."""
    detached = operations.delete_group(session, id, expected=needed(condition))
    return {"id": id, "deleted": True, "instances": detached}


ROUTES: Final[tuple[Route, ...]] = (
    get("/worker-groups", list_worker_groups, WorkerGroupPage),
    post("/worker-groups", create_worker_group, MadeWorkerGroup, status=201),
    get("/worker-groups/{id}", show_worker_group, WorkerGroup),
    delete("/worker-groups/{id}", delete_worker_group, DeletedWorkerGroup, is_conditional=True),
)
