"""Environments: shown to members of projects that may use them, changed by administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cursors import After, Limit
from api.environment_answers import (
    DeletedEnvironment,
    EnvironmentAnswer,
    EnvironmentPage,
    EnvironmentUpdate,
    NewEnvironment,
)
from api.policy import BASE
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, delete, get, patch, post
from operations import environments as operations
from operations.documents.environments import environment_row
from operations.environments import Environment, EnvironmentChange
from operations.secret_keys import key_trouble


def list_environments(
    session: Asked,
    name: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the environments by id, or the one of this name; their configs for administrators."""
    found = operations.list_environments(
        session, name=name, after=cursors.read("environments", after) or 0, limit=limit
    )
    return {
        "items": [environment_row(each) for each in found],
        "next": cursors.next_of("environments", [each.view.id for each in found], limit),
    }


def show_environment(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
    """Show an environment; its config is masked, and for administrators alone."""
    return _tagged(operations.environment_given(session, id), response)


def create_environment(
    given: NewEnvironment,
    session: Asked,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Make an environment; the values of variables whose names sound secret are encrypted."""
    with key_trouble():
        made = operations.create_environment(
            session,
            given.name,
            config=given.config,
            description=given.description,
            worker_groups=given.worker_groups,
            code=given.code,
            projects=given.projects,
            once=once_of(idempotency_key, "environment", given),
        )
    response.headers["Location"] = f"{BASE}/environments/{made.view.id}"
    return _tagged(made, response)


def change_environment(
    id: Id,  # noqa: A002  # The path's name.
    given: EnvironmentUpdate,
    session: Asked,
    response: Response,
    condition: Condition = None,
) -> dict[str, Any]:
    """Change an environment that is as you have read it; a variable sent as its mask stays."""
    groups = given.worker_groups
    change = EnvironmentChange(
        name=given.name,
        config=given.config,
        description=given.description,
        worker_groups=None if groups is None else tuple(groups),
    )
    with key_trouble():
        changed = operations.change_environment(session, id, change, expected=needed(condition))
    return _tagged(changed, response)


def delete_environment(id: Id, session: Asked, condition: Condition = None) -> dict[str, Any]:  # noqa: A002
    """Delete an environment that is as you have read it and that nothing needs."""
    gone = operations.delete_environment(session, id, expected=needed(condition))
    return {"id": gone.id, "code": gone.code, "name": gone.name, "deleted": True}


def _tagged(environment: Environment, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{operations.environment_tag(environment.view)}"'
    return environment_row(environment)


ROUTES: Final[tuple[Route, ...]] = (
    get("/environments", list_environments, EnvironmentPage),
    post("/environments", create_environment, EnvironmentAnswer, status=201),
    get("/environments/{id}", show_environment, EnvironmentAnswer),
    patch("/environments/{id}", change_environment, EnvironmentAnswer, is_conditional=True),
    delete("/environments/{id}", delete_environment, DeletedEnvironment, is_conditional=True),
)
