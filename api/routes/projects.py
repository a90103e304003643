"""Projects and the roles in them: listed, shown, made, changed, granted and deleted."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cursors import After, Limit
from api.people_answers import (
    DeletedProject,
    MemberList,
    NewProject,
    NewRole,
    Project,
    ProjectChange,
    ProjectPage,
    User,
)
from api.policy import BASE
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, delete, get, patch, post
from common.clock import SystemClock
from common.store.people.projects import ProjectView
from operations import projects as operations
from operations.documents.projects import project_member_row, project_row
from operations.documents.users import user_row
from operations.users import grant

_clock = SystemClock()


def list_projects(
    session: Asked,
    name: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the projects that you may see by id, or the one of this name."""
    found = operations.project_page(
        session, name=name, after=cursors.read("projects", after) or 0, limit=limit
    )
    return {
        "items": [project_row(each) for each in found],
        "next": cursors.next_of("projects", [each.id for each in found], limit),
    }


def show_project(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
    """Show a project."""
    return _tagged(operations.project_detail(session, id).view, response)


def create_project(
    given: NewProject,
    session: Asked,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Make a project; a name that is taken is a 409."""
    made = operations.create_project(
        session,
        given.name,
        description=given.description,
        once=once_of(idempotency_key, "project", given),
    )
    response.headers["Location"] = f"{BASE}/projects/{made.id}"
    return _tagged(made, response)


def change_project(
    id: Id,  # noqa: A002  # The path's name.
    given: ProjectChange,
    session: Asked,
    response: Response,
    condition: Condition = None,
) -> dict[str, Any]:
    """Give a project that is as you have read it another name or description.

    With `review` its definitions change by proposals alone, which somebody else approves.
    """
    changed = operations.edit_project(
        session,
        id,
        name=given.name,
        description=given.description,
        review=given.review,
        at=_clock.now(),
        expected=needed(condition),
    )
    return _tagged(changed, response)


def delete_project(id: Id, session: Asked, condition: Condition = None) -> dict[str, Any]:  # noqa: A002
    """Delete a project that is as you have read it and has no definitions, for good."""
    gone = operations.delete_project(session, id, expected=needed(condition))
    return {**project_row(gone), "deleted": True}


def list_members(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """List the users who have a role in a project; administrators need none."""
    found = operations.project_detail(session, id)
    return {"items": [project_member_row(each) for each in found.members]}


def set_role(id: Id, given: NewRole, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Give a user a role in a project, in the place of any other, or take it away.

    You are shown the user's roles in other projects as an administrator alone.
    """
    return user_row(grant(session, given.user, project=id, role=given.role))


def _tagged(view: ProjectView, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{operations.project_tag(view)}"'
    return project_row(view)


ROUTES: Final[tuple[Route, ...]] = (
    get("/projects", list_projects, ProjectPage),
    post("/projects", create_project, Project, status=201),
    get("/projects/{id}", show_project, Project),
    patch("/projects/{id}", change_project, Project, is_conditional=True),
    delete("/projects/{id}", delete_project, DeletedProject, is_conditional=True),
    get("/projects/{id}/members", list_members, MemberList),
    post("/projects/{id}/members", set_role, User),
)
