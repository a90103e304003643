"""The names by which providers of log-ins know users, and the log-ins there that were used.

Each function works within a transaction of its caller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.store.tables import session, user, user_identity

_ENABLED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownUser:
    """The user whom an identity belongs to."""

    user_id: int
    user_name: str
    is_enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityView:
    """An identity of a user: who says so, and the name that it says it by."""

    issuer: str
    subject: str


def known_user(db: Connection, issuer: str, subject: str) -> KnownUser | None:
    """Lock the user of an identity and return it; None if it is nobody's."""
    row = db.execute(
        select(user.c.id, user.c.user_name, user.c.state)
        .join_from(user_identity, user, user.c.id == user_identity.c.user_id)
        .where(user_identity.c.issuer == issuer)
        .where(user_identity.c.subject == subject)
        .with_for_update(of=user)
    ).first()
    if row is None:
        return None
    return KnownUser(user_id=row.id, user_name=row.user_name, is_enabled=row.state == _ENABLED)


def add_identity(db: Connection, issuer: str, subject: str, user_id: int) -> bool:
    """Insert an identity; False if it is somebody's already."""
    made = db.execute(
        pg_insert(user_identity)
        .values(issuer=issuer, subject=subject, user_id=user_id)
        .on_conflict_do_nothing()
    )
    return made.rowcount == 1


def remove_identities(db: Connection, user_id: int) -> int:
    """Delete all identities of a user; return their number."""
    return db.execute(delete(user_identity).where(user_identity.c.user_id == user_id)).rowcount


def identities_of(db: Connection, user_ids: Collection[int]) -> dict[int, list[IdentityView]]:
    """List identities of users."""
    rows = db.execute(
        select(user_identity.c.user_id, user_identity.c.issuer, user_identity.c.subject)
        .where(user_identity.c.user_id.in_(user_ids))
        .order_by(user_identity.c.issuer, user_identity.c.subject)
    )
    found: dict[int, list[IdentityView]] = {each: [] for each in user_ids}
    for row in rows:
        found[row.user_id].append(IdentityView(issuer=row.issuer, subject=row.subject))
    return found


def use_once(db: Connection, used_hash: str, *, kept_for: timedelta) -> bool:
    """Note that a log-in was used; False if it was so before.

    The note is a row of the sessions which is nobody's, and is deleted with those that expire.
    """
    made = db.execute(
        pg_insert(session)
        .values(id=used_hash, expire_time=func.now() + kept_for)
        .on_conflict_do_nothing()
    )
    return made.rowcount == 1
