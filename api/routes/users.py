"""Users: listed, made, changed, enabled and disabled by administrators; and your password."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cursors import After, Limit
from api.people_answers import (
    EnabledUser,
    LinkedUser,
    NewIdentity,
    NewPassword,
    NewUser,
    OwnPassword,
    PasswordSet,
    UnlinkedUser,
    User,
    UserChange,
    UserPage,
)
from api.policy import BASE
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, get, patch, post
from common.clock import SystemClock
from operations import identities
from operations import users as operations
from operations.documents.users import user_row
from operations.log_ins import change_own_password
from operations.session import Session
from operations.users import UserDetail

_clock = SystemClock()


def list_users(
    session: Asked,
    name: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the users by id, or the one of this name."""
    found = operations.list_users(
        session, name=name, after=cursors.read("users", after) or 0, limit=limit
    )
    return {
        "items": [user_row(each) for each in found],
        "next": cursors.next_of("users", [each.view.id for each in found], limit),
    }


def show_user(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
    """Show a user with the roles in projects."""
    return _tagged(operations.user_detail(session, id), response)


def create_user(
    given: NewUser,
    session: Asked,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Make a user, who has no right before a grant gives one; a name that is taken is a 409."""
    made = operations.create_user(
        session,
        given.name,
        is_admin=given.admin,
        password=given.password,
        tenant=given.tenant,
        once=once_of(idempotency_key, "user", given, leaves_out="password"),
    )
    response.headers["Location"] = f"{BASE}/users/{made.view.id}"
    return _tagged(made, response)


def change_user(
    id: Id,  # noqa: A002  # The path's name.
    given: UserChange,
    session: Asked,
    response: Response,
    condition: Condition = None,
) -> dict[str, Any]:
    """Make a user an administrator or none, or give another tenant.

    The last administrator who is enabled stays one (409).
    """
    changed = operations.edit_user(
        session,
        id,
        is_admin=given.admin,
        tenant=given.tenant,
        at=_clock.now(),
        expected=needed(condition),
    )
    return _tagged(changed, response)


def enable_user(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let a disabled user in again, with the tokens of before."""
    return _enabled(session, id, enabled=True)


def disable_user(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Refuse a user's tokens and sessions from now on; what the user has begun goes on.

    The last administrator who is enabled stays so (409).
    """
    return _enabled(session, id, enabled=False)


def link_user(id: Id, given: NewIdentity, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let somebody whom an OpenID provider knows by this subject log in as this user."""
    linked = identities.link(session, id, issuer=given.issuer, subject=given.subject)
    return {**user_row(linked.detail), "issuer": linked.issuer}


def unlink_user(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Take a user's identities at OpenID providers away; the user's sessions end."""
    return {"id": id, "removed": identities.unlink(session, id)}


def set_password(id: Id, given: NewPassword, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Set a user's password, of 12 characters or more; the user's sessions end."""
    operations.set_password(session, id, password=given.password, at=_clock.now())
    return {"changed": True}


def set_own_password(given: OwnPassword, session: Asked) -> dict[str, Any]:
    """Set your password, by the one of before; your other sessions end.

    A wrong one counts as a log-in that failed (429 after five).
    """
    change_own_password(session, old=given.old, new=given.new, at=_clock.now())
    return {"changed": True}


def _tagged(detail: UserDetail, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{detail.tag}"'
    return user_row(detail)


def _enabled(session: Session, number: int, *, enabled: bool) -> dict[str, Any]:
    found = operations.set_enabled(session, number, enabled=enabled, at=_clock.now())
    return {"id": number, "name": found.name, "enabled": enabled, "changed": found.changed}


ROUTES: Final[tuple[Route, ...]] = (
    post("/me/password", set_own_password, PasswordSet),
    get("/users", list_users, UserPage),
    post("/users", create_user, User, status=201),
    get("/users/{id}", show_user, User),
    patch("/users/{id}", change_user, User, is_conditional=True),
    post("/users/{id}/enable", enable_user, EnabledUser),
    post("/users/{id}/disable", disable_user, EnabledUser),
    post("/users/{id}/link", link_user, LinkedUser),
    post("/users/{id}/unlink", unlink_user, UnlinkedUser),
    post("/users/{id}/password", set_password, PasswordSet),
)
