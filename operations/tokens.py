"""API tokens: made, listed, revoked, and recognized when one is presented.

A token is 256 random bits behind `of_`, by which scanners of secrets know it. It is shown once; the
table holds its SHA-256, which is enough for a secret that nobody can guess.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import ROLES, Action, Principal, role_of
from common.store.people import users as store
from common.store.people.rights import is_administrator
from common.store.people.users import TokenView, UserView
from operations.errors import ForbiddenError, UsageError
from operations.projects import project_given
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import change, check_administrator, limits_nothing
from operations.session import operation
from operations.users import user_given

if TYPE_CHECKING:
    from common.store.connect import Connection, Engine
    from operations.session import Session

PREFIX: Final = "of_"
LONGEST_LIFE: Final = timedelta(days=365)
_FORM: Final = re.compile(r"of_[A-Za-z0-9_-]{43}")
_RANDOM_BYTES: Final = 32
_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeToken:
    """A token that was made, with its text, which is nowhere else."""

    view: TokenView
    text: str = field(repr=False)


@operation
def create_token(
    session: Session,
    user: str,
    *,
    name: str,
    role: str,
    projects: Sequence[str],
    life: timedelta,
    now: datetime,
    once: Once | None = None,
) -> MadeToken:
    """Make a token of a user, good for `life`, for at most this role in these projects.

    Without projects it is good for all in which the user has rights; it never adds a right.
    Administrators make them for everybody, others for themselves, and none that is good for more
    or for longer than the token by which they ask.
    """
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise UsageError("name", f"is 1 to {_LONGEST_NAME} printable characters")
    if role not in ROLES:
        raise UsageError("role", f"{role!r} is no role; known are {', '.join(ROLES)}")
    if not timedelta() < life <= LONGEST_LIFE:
        raise UsageError("expires", f"a token lives {LONGEST_LIFE.days} days at most")
    text = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    with change(session, "token.create", "token", object_name=name) as made:
        holder = _holder(made.db, session.principal, user)
        if once is not None:
            answered = first_answer(made.db, session.principal, once)
            if answered is not None:
                raise NotAllowedError(
                    f"the first request with this Idempotency-Key has made token {answered}, whose"
                    " text is not shown again; revoke it, and make another one:"
                    f" orcaflow token revoke {answered}"
                )
        numbers = (
            [project_given(made.db, session.principal, Action.VIEW, each) for each in projects]
            if projects
            else None
        )
        _check_limits(
            made.db,
            session.principal,
            scope=ROLES[role],
            projects=numbers,
            expire_time=now + life,
        )
        token_id = store.create_token(
            made.db,
            holder.id,
            name=name,
            token_hash=_hash(text),
            scopes=ROLES[role],
            projects=numbers,
            expire_time=now + life,
        )
        if once is not None:
            keep_answer(made.db, session.principal, once, token_id)
        made.object_id = token_id
        made.detail = f"of user {holder.name}"
        (view,) = store.tokens(made.db, token_id=token_id)
    return MadeToken(view=view, text=text)


@operation
def list_tokens(
    session: Session, *, user: str | None, after: int = 0, limit: int | None = None
) -> list[TokenView]:
    """Tokens by id, expired ones too, those behind an id, or those of a user.

    Administrators see those of everybody, others their own.
    """
    who = session.principal
    with session.engine.connect() as db:
        user_id = None
        if user is not None:
            user_id = _holder(db, who, user).id
        elif not is_administrator(db, who):
            user_id = who.user_id
        return store.tokens(db, user_id=user_id, after=after, limit=limit)


@operation
def revoke_token(session: Session, token_id: int) -> TokenView:
    """Delete a token: its next use is refused.

    Administrators delete everybody's; others their own, and by a token with limits that one alone.
    """
    who = session.principal
    with change(session, "token.revoke", "token", object_id=token_id) as made:
        found = store.tokens(made.db, token_id=token_id) if 0 < token_id < 2**31 else []
        if not is_administrator(made.db, who):
            found = [each for each in found if each.user_id == who.user_id]
            if found and not limits_nothing(who) and token_id != who.token_id:
                raise ForbiddenError("a token with limits revokes itself alone")
        if not found or not store.delete_token(made.db, token_id):
            raise NotFoundError(f"there is no token {token_id}; see `orcaflow token list`")
        made.object_name = found[0].name
        made.detail = f"of user {found[0].user_name}"
    return found[0]


def principal_of(
    engine: Engine, token: str, *, address: str | None, request: str | None
) -> Principal | None:
    """The principal of a presented token; None if it is unknown, expired, or of a disabled user."""
    if not _FORM.fullmatch(token):
        return None
    with engine.connect() as db:
        holder = store.holder_of(db, _hash(token))
    if holder is None:
        return None
    if holder.is_use_due:
        with engine.begin() as db:
            store.note_use(db, holder.token_id)
    return Principal(
        user_id=holder.user_id,
        user_name=holder.user_name,
        scope=Action(holder.scopes),
        projects=holder.projects,
        token_id=holder.token_id,
        address=address,
        request=request,
    )


def scope_word(view: TokenView) -> str:
    """The role that a token allows at most."""
    return role_of(view.scopes) or "none"


def _holder(db: Connection, principal: Principal, user: str) -> UserView:
    """The user whose tokens they are: oneself, or for administrators anybody."""
    if principal.owns_database or user != principal.user_name:
        check_administrator(db, principal)
        return user_given(db, user)
    return user_given(db, principal.user_id)


def _check_limits(
    db: Connection,
    principal: Principal,
    *,
    scope: Action,
    projects: Sequence[int] | None,
    expire_time: datetime,
) -> None:
    """Refuse a token that is good for more, or for longer, than the one by which it is made."""
    if is_administrator(db, principal):
        return
    if scope & ~principal.scope:
        raise ForbiddenError(
            f"your token allows {role_of(principal.scope) or 'nothing'}; it makes none for more:"
            " name a role"
        )
    if principal.projects is not None and (
        projects is None or not set(projects) <= set(principal.projects)
    ):
        raise ForbiddenError("your token is for some projects; it makes none for others: name them")
    if principal.token_id is not None:
        (own,) = store.tokens(db, token_id=principal.token_id)
        if own.expire_time is None or expire_time > own.expire_time:
            raise UsageError("expires", "no token makes one that outlives it: take a shorter time")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
