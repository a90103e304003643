"""Sessions of people who log in, one-time links that begin one, and the failures of who guesses.

Both stand in `t_ds_session`, by the SHA-256 of their secret: a link has no `last_login_time`, which
in a session is the moment of its last use. All times are the database's own, so that several
api-servers and the command line agree. Each function works within a transaction of its caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.store.fixed_statement import FixedRead
from common.store.people.users import HASH_PREFIX
from common.store.tables import login_failure, session, user

IDLE: Final = timedelta(hours=12)
"""A session ends after so long without a request."""
LONGEST: Final = timedelta(days=7)
"""And so long after its begin in any case."""
_ENABLED: Final = 1
_ADMINISTRATOR: Final = 0
_NOTED_EVERY: Final = timedelta(minutes=1)
_FAILURES_COUNT_FOR: Final = timedelta(days=1)
_KEY_CHARACTERS: Final = 16
_ADDRESS_CHARACTERS: Final = 45


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordHolder:
    """An enabled user with the hash of the password."""

    user_id: int
    user_name: str
    password_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHolder:
    """The user of a session or a link."""

    user_id: int
    user_name: str
    is_due: bool = False
    """True if the use of the session is to be noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session for its user. `key` names it and opens nothing."""

    key: str
    address: str | None
    last_used: datetime
    expire_time: datetime


def password_of(db: Connection, name: str) -> PasswordHolder | None:
    """Read the hash of an enabled user who has a password."""
    row = db.execute(
        select(user.c.id, user.c.user_name, user.c.user_password)
        .where(user.c.user_name == name)
        .where(user.c.state == _ENABLED)
        # Anything else takes no time to compare, by which one would know that there is a user.
        .where(func.starts_with(user.c.user_password, HASH_PREFIX))
    ).first()
    if row is None:
        return None
    return PasswordHolder(user_id=row.id, user_name=row.user_name, password_hash=row.user_password)


def is_unchanged(db: Connection, holder: PasswordHolder) -> bool:
    """Lock the user; False with another password by now, or if disabled."""
    found = db.scalar(
        select(user.c.id)
        .where(user.c.id == holder.user_id)
        .where(user.c.user_password == holder.password_hash)
        .where(user.c.state == _ENABLED)
        .with_for_update()
    )
    return found is not None


def rehash(db: Connection, user_id: int, password_hash: str) -> None:
    """Store another hash of the same password."""
    db.execute(update(user).where(user.c.id == user_id).values(user_password=password_hash))


def begin_session(
    db: Connection,
    session_hash: str,
    user_id: int,
    *,
    address: str | None,
    longest: timedelta = LONGEST,
) -> None:
    """Insert a session, and delete what has expired."""
    db.execute(delete(session).where(session.c.expire_time < func.now()))
    db.execute(
        insert(session).values(
            id=session_hash,
            user_id=user_id,
            ip=None if address is None else address[:_ADDRESS_CHARACTERS],
            last_login_time=func.now(),
            expire_time=func.now() + longest,
        )
    )


def end_session(db: Connection, session_hash: str) -> bool:
    """Delete a session; False if there is none."""
    return db.execute(delete(session).where(session.c.id == session_hash)).rowcount == 1


def end_session_of(db: Connection, user_id: int, key: str) -> bool:
    """Delete the session of this user with this key; False if there is none."""
    ended = db.execute(
        delete(session)
        .where(session.c.user_id == user_id)
        .where(func.left(session.c.id, _KEY_CHARACTERS) == key)
        .where(session.c.last_login_time.is_not(None))
    )
    return ended.rowcount > 0


def sessions_of(db: Connection, user_id: int) -> list[SessionView]:
    """List the user's sessions that have not expired, the last used first."""
    rows = db.execute(
        select(session)
        .where(session.c.user_id == user_id)
        .where(_is_good())
        .order_by(session.c.last_login_time.desc(), session.c.id)
    )
    return [
        SessionView(
            key=row.id[:_KEY_CHARACTERS],
            address=row.ip,
            last_used=row.last_login_time,
            expire_time=row.expire_time,
        )
        for row in rows
    ]


def key_of(session_hash: str) -> str:
    return session_hash[:_KEY_CHARACTERS]


def session_with_key(db: Connection, user_id: int, key: str) -> str | None:
    """Read the hash of the user's session with this key, if it has not expired."""
    found = db.scalars(
        select(session.c.id)
        .where(session.c.user_id == user_id)
        .where(func.left(session.c.id, _KEY_CHARACTERS) == key)
        .where(_is_good())
    ).all()
    return found[0] if len(found) == 1 else None


def holder_of_session(db: Connection, session_hash: str) -> SessionHolder | None:
    """Read the enabled user of a session that has not expired."""
    for row in _holder().rows(db, {"session_hash": session_hash}):
        return SessionHolder(user_id=row.id, user_name=row.user_name, is_due=row.is_due)
    return None


def is_logged_in(db: Connection, name: str, address: str) -> bool:
    """Return True if a session of this user was started at this address and has not expired."""
    found = (
        select(session.c.id)
        .join_from(session, user, user.c.id == session.c.user_id)
        .where(user.c.user_name == name)
        .where(session.c.ip == address[:_ADDRESS_CHARACTERS])
        .where(_is_good())
        .where(user.c.state == _ENABLED)
    )
    return bool(db.scalar(select(found.exists())))


def note_use(db: Connection, session_hash: str) -> None:
    """Note that a session is used, once a minute."""
    db.execute(
        update(session)
        .where(session.c.id == session_hash)
        .where(_is_due())
        .values(last_login_time=func.now())
    )


@cache
def _holder() -> FixedRead:
    return FixedRead(
        select(user.c.id, user.c.user_name, _is_due().label("is_due"))
        .join_from(session, user, user.c.id == session.c.user_id)
        .where(session.c.id == bindparam("session_hash", type_=String))
        .where(_is_good())
        .where(user.c.state == _ENABLED)
    )


def _is_due() -> ColumnElement[bool]:
    return session.c.last_login_time < func.now() - _NOTED_EVERY


def is_good_session(session_hash: str) -> ColumnElement[bool]:
    """Build the condition that this session exists and has not expired."""
    return select(session.c.id).where(session.c.id == session_hash).where(_is_good()).exists()


def first_administrator(db: Connection) -> SessionHolder | None:
    """Read the enabled administrator with the smallest id."""
    row = db.execute(
        select(user.c.id, user.c.user_name)
        .where(user.c.user_type == _ADMINISTRATOR)
        .where(user.c.state == _ENABLED)
        .order_by(user.c.id)
        .limit(1)
    ).first()
    return None if row is None else SessionHolder(user_id=row.id, user_name=row.user_name)


def add_link(db: Connection, link_hash: str, user_id: int, *, good_for: timedelta) -> None:
    """Insert a link that begins one session of this user."""
    db.execute(
        insert(session).values(
            id=link_hash, user_id=user_id, expire_time=func.clock_timestamp() + good_for
        )
    )


def take_link(db: Connection, link_hash: str) -> SessionHolder | None:
    """Delete a link that has not expired and return its enabled user.

    None if there is none: of two who take it at once the row goes to one.
    """
    taken: int | None = db.scalar(
        delete(session)
        .where(session.c.id == link_hash)
        .where(session.c.last_login_time.is_(None))
        .where(session.c.expire_time > func.clock_timestamp())
        .returning(session.c.user_id)
    )
    if taken is None:
        return None
    row = db.execute(
        select(user.c.id, user.c.user_name)
        .where(user.c.id == taken)
        .where(user.c.state == _ENABLED)
    ).first()
    return None if row is None else SessionHolder(user_id=row.id, user_name=row.user_name)


def charge(
    db: Connection, subject: str, *, free: int, first_block: timedelta, longest_block: timedelta
) -> timedelta | None:
    """Count a try, before anybody knows if it is right, and block the next from the `free`th on.

    While a block lasts, nothing is counted: return the time that is left of it. A block doubles
    with each try. Tries of a subject are serial by the lock of its row.
    """
    db.execute(
        delete(login_failure).where(login_failure.c.update_time < func.now() - _FAILURES_COUNT_FOR)
    )
    db.execute(
        pg_insert(login_failure).values(subject=subject, failures=0).on_conflict_do_nothing()
    )
    row = db.execute(
        select(
            login_failure.c.failures,
            (login_failure.c.blocked_until - func.clock_timestamp()).label("left"),
        )
        .where(login_failure.c.subject == subject)
        .with_for_update()
    ).first()
    if row is None:
        # Deleted by a success in this moment, which nothing is held against.
        return None
    left: timedelta | None = row.left
    if left is not None and left > timedelta():
        return left
    failures = row.failures + 1
    block = min(first_block * 2 ** min(max(failures - free, 0), 20), longest_block)
    db.execute(
        update(login_failure)
        .where(login_failure.c.subject == subject)
        .values(
            failures=failures,
            update_time=func.clock_timestamp(),
            blocked_until=func.clock_timestamp() + block if failures >= free else None,
        )
    )
    return None


def uncharge(db: Connection, subject: str, *, free: int) -> None:
    """Take back one try that was right; those before it count on."""
    left = login_failure.c.failures - 1
    db.execute(
        update(login_failure)
        .where(login_failure.c.subject == subject)
        .where(login_failure.c.failures > 0)
        .values(
            failures=left,
            blocked_until=case((left < free, None), else_=func.clock_timestamp()),
        )
    )


def forget_failures(db: Connection, subjects: Sequence[str]) -> None:
    db.execute(delete(login_failure).where(login_failure.c.subject.in_(subjects)))


def _is_good() -> Any:
    return and_(session.c.expire_time > func.now(), session.c.last_login_time > func.now() - IDLE)
