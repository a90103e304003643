"""Users, tokens, and projects with their members: looked at, made, and steered."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import cursors
from api.console.rendering import rendered
from api.console.table import Serve, Visit, order, page, unknown
from api.policy import BASE, LIST, POLICIES, Policy
from common.clock import SystemClock
from common.model.rights import ROLES, Action
from common.store.people.rights import Thing
from operations.documents.projects import project_member_row, project_row
from operations.documents.users import token_row, user_row
from operations.errors import UsageError
from operations.projects import edit_project, project_detail, project_page
from operations.rights import may
from operations.tokens import LONGEST_LIFE, MadeToken, create_token, list_tokens, revoke_token
from operations.users import create_user, grant, list_users, set_enabled, user_detail

_LIMIT: Final = 50
_clock = SystemClock()


def show_users(visit: Visit) -> Response:
    """Show the users, with a form to make one."""
    after = cursors.read("users", visit.query.get("after")) or 0
    found = list_users(visit.session, after=after, limit=_LIMIT)
    return rendered(
        "users.html",
        zone=visit.session.zone,
        visit=visit,
        rows=[user_row(each) for each in found],
        next=cursors.next_of("users", [each.view.id for each in found], _LIMIT),
    )


def make_user(visit: Visit) -> Response:
    """Make a user; without a password one who can use tokens alone."""
    made = create_user(
        visit.session,
        visit.form.get("name", ""),
        is_admin="admin" in visit.form,
        password=visit.form.get("password") or None,
        tenant=None,
    )
    return RedirectResponse(f"/users/{made.view.id}", status_code=303)


def show_user(visit: Visit) -> Response:
    """Show a user with the roles in projects, and the tokens."""
    detail = user_detail(visit.session, visit.id)
    return rendered(
        "user.html",
        zone=visit.session.zone,
        visit=visit,
        user=user_row(detail),
        tokens=[token_row(each) for each in list_tokens(visit.session, user=detail.view.name)],
    )


def _enabled(*, wanted: bool) -> Serve:
    def serve(visit: Visit) -> Response:
        set_enabled(visit.session, visit.id, enabled=wanted, at=_clock.now())
        return RedirectResponse(f"/users/{visit.id}", status_code=303)

    return serve


def show_tokens(visit: Visit) -> Response:
    """Show one's tokens, and to administrators those of all, with a form to make one."""
    return _tokens(visit)


def make_token(visit: Visit) -> Response:
    """Make a token of one's own, and show its text, this once."""
    text = visit.form.get("days", "")
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= LONGEST_LIFE.days):
        raise UsageError(
            "days", visit.said("is a whole number from 1 to %(most)s", most=LONGEST_LIFE.days)
        )
    made = create_token(
        visit.session,
        visit.session.principal.user_name,
        name=visit.form.get("name", ""),
        role=visit.form.get("role", ""),
        projects=(),
        life=timedelta(days=int(text)),
        now=_clock.now(),
    )
    return _tokens(visit, made=made)


def _tokens(visit: Visit, *, made: MadeToken | None = None) -> Response:
    after = cursors.read("tokens", visit.query.get("after")) or 0
    found = list_tokens(visit.session, user=None, after=after, limit=_LIMIT)
    return rendered(
        "tokens.html",
        zone=visit.session.zone,
        visit=visit,
        rows=[token_row(each) for each in found],
        made=made,
        roles=list(ROLES),
        longest=LONGEST_LIFE.days,
        next=cursors.next_of("tokens", [each.id for each in found], _LIMIT),
    )


def revoke(visit: Visit) -> Response:
    """Delete a token: its next use is refused."""
    revoke_token(visit.session, visit.id)
    return RedirectResponse("/tokens", status_code=303)


def show_projects(visit: Visit) -> Response:
    """Show the projects that one sees."""
    after = cursors.read("projects", visit.query.get("after")) or 0
    found = project_page(visit.session, after=after, limit=_LIMIT)
    return rendered(
        "projects.html",
        zone=visit.session.zone,
        visit=visit,
        rows=[project_row(each) for each in found],
        next=cursors.next_of("projects", [each.id for each in found], _LIMIT),
    )


def show_project(visit: Visit) -> Response:
    """Show a project with the roles in it."""
    detail = project_detail(visit.session, visit.id)
    return rendered(
        "project.html",
        zone=visit.session.zone,
        visit=visit,
        project=project_row(detail.view),
        members=[project_member_row(each) for each in detail.members],
        roles=list(ROLES),
        may_grant=may(visit.session, Action.ADMIN, Thing.PROJECT, visit.id),
        may_author=may(visit.session, Action.AUTHOR, Thing.PROJECT, visit.id),
    )


def set_role(visit: Visit) -> Response:
    """Give a user a role in the project, or take it away."""
    user, role = visit.form.get("user", ""), visit.form.get("role", "")
    grant(visit.session, user, project=visit.id, role=role)
    return RedirectResponse(f"/projects/{visit.id}", status_code=303)


def _policy(method: str, path: str) -> Policy:
    return POLICIES[f"{method} {BASE}/{path}"]


def set_review(visit: Visit) -> Response:
    """Have a project ask for a review of its definitions, or for none."""
    wanted = visit.form.get("review", "")
    if wanted not in ("on", "off"):
        raise unknown(visit, "review", wanted, ("on", "off"))
    edit_project(
        visit.session,
        visit.id,
        name=None,
        description=None,
        review=wanted == "on",
        at=SystemClock().now(),
    )
    return RedirectResponse(f"/projects/{visit.id}", status_code=303)


PAGES: Final = (
    page("/users", _policy("GET", "users"), show_users),
    order("/users", _policy("POST", "users"), make_user),
    page("/users/{id}", _policy("GET", "users/{id}"), show_user),
    order("/users/{id}/enable", _policy("POST", "users/{id}/enable"), _enabled(wanted=True)),
    order("/users/{id}/disable", _policy("POST", "users/{id}/disable"), _enabled(wanted=False)),
    page("/tokens", _policy("GET", "tokens"), show_tokens),
    order("/tokens", _policy("POST", "tokens"), make_token),
    order("/tokens/{id}/revoke", _policy("POST", "tokens/{id}/revoke"), revoke),
    page("/projects", LIST, show_projects),
    page("/projects/{id}", _policy("GET", "projects/{id}"), show_project),
    order("/projects/{id}/review", _policy("PATCH", "projects/{id}"), set_review),
    order("/projects/{id}/members", _policy("POST", "projects/{id}/members"), set_role),
)
