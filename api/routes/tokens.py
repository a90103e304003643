"""API tokens: your own, and as an administrator everybody's: listed, made and revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Query

from api import cursors
from api.asking import Asked
from api.cursors import After, Limit
from api.people_answers import MadeToken, NewToken, RevokedToken, TokenPage
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, get, post
from common.clock import SystemClock
from operations import tokens as operations
from operations.documents.users import token_row

_clock = SystemClock()


def list_tokens(
    session: Asked,
    user: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List tokens by id, expired ones too: yours, and as an administrator all or a user's."""
    found = operations.list_tokens(
        session, user=user, after=cursors.read("tokens", after) or 0, limit=limit
    )
    return {
        "items": [token_row(each) for each in found],
        "next": cursors.next_of("tokens", [each.id for each in found], limit),
    }


def create_token(
    given: NewToken, session: Asked, idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """Make a token, and show its text, this once: the database has its hash alone.

    It never adds a right to those of its user, and none is good for more or for longer than the
    token by which it is made, but for administrators. A request that is sent again with its
    `Idempotency-Key` makes no second one: it is told of the first (409).
    """
    made = operations.create_token(
        session,
        session.principal.user_name if given.user is None else given.user,
        name=given.name,
        role=given.role,
        projects=given.projects,
        life=timedelta(seconds=given.expires),
        now=_clock.now(),
        once=once_of(idempotency_key, "token", given),
    )
    return {**token_row(made.view), "token": made.text}


def revoke_token(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Delete a token, whose next use is refused."""
    gone = operations.revoke_token(session, id)
    return {**token_row(gone), "revoked": True}


ROUTES: Final[tuple[Route, ...]] = (
    get("/tokens", list_tokens, TokenPage),
    post("/tokens", create_token, MadeToken, status=201),
    post("/tokens/{id}/revoke", revoke_token, RevokedToken),
)
