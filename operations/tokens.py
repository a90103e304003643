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

from common.errors import NotFoundError
from common.model.rights import ROLES, Action, Principal, role_of
from common.store.people import users as store
from common.store.people.users import TokenView
from operations.errors import UsageError
from operations.rights import change, check_administrator
from operations.users import projects_named, user_named

if TYPE_CHECKING:
    from common.store.connect import Engine
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


def create_token(
    session: Session,
    user: str,
    *,
    name: str,
    role: str,
    projects: Sequence[str],
    life: timedelta,
    now: datetime,
) -> MadeToken:
    """Make a token of a user, good for `life`, for at most this role in these projects.

    Without projects it is good for all in which the user has rights; it never adds a right.
    """
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise UsageError("name", f"is 1 to {_LONGEST_NAME} printable characters")
    if role not in ROLES:
        raise UsageError("role", f"{role!r} is no role; known are {', '.join(ROLES)}")
    if not timedelta() < life <= LONGEST_LIFE:
        raise UsageError("expires", f"a token lives {LONGEST_LIFE.days} days at most")
    text = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    with change(session, "token.create", "token", object_name=name) as made:
        check_administrator(made.db, session.principal)
        holder = user_named(made.db, user)
        token_id = store.create_token(
            made.db,
            holder.id,
            name=name,
            token_hash=_hash(text),
            scopes=ROLES[role],
            projects=projects_named(made.db, projects) if projects else None,
            expire_time=now + life,
        )
        made.object_id = token_id
        made.detail = f"of user {holder.name}"
        (view,) = store.tokens(made.db, token_id=token_id)
    return MadeToken(view=view, text=text)


def list_tokens(session: Session, *, user: str | None) -> list[TokenView]:
    """All tokens, or those of a user, by id; expired ones too."""
    with session.engine.connect() as db:
        check_administrator(db, session.principal)
        return store.tokens(db, user_id=None if user is None else user_named(db, user).id)


def revoke_token(session: Session, token_id: int) -> TokenView:
    """Delete a token: its next use is refused."""
    with change(session, "token.revoke", "token", object_id=token_id) as made:
        check_administrator(made.db, session.principal)
        found = store.tokens(made.db, token_id=token_id) if 0 < token_id < 2**31 else []
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


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
