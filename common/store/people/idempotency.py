"""The keys of requests that may be repeated, each with what the first one has made.

That is a command, or another object: the hash of the request tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from common.store.tables import idempotency_key

_KEPT: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """The answer to a request: the command that it put, or the object that it made."""

    request_sha256: str
    made_id: int


def lock_key(db: Connection, user_id: int, key: str) -> None:
    """Serialize the requests with a key, until the end of the transaction."""
    name = f"orcaflow idempotency {user_id} {key}"
    db.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def find_answer(db: Connection, user_id: int, key: str) -> KeptAnswer | None:
    """Read the answer to the request with this key; None if there is none of the last day."""
    row = db.execute(
        select(idempotency_key.c.request_sha256, idempotency_key.c.command_id)
        .where(idempotency_key.c.user_id == user_id)
        .where(idempotency_key.c.idempotency_key == key)
        .where(idempotency_key.c.create_time > func.now() - _KEPT)
    ).first()
    if row is None:
        return None
    return KeptAnswer(request_sha256=row.request_sha256, made_id=row.command_id)


def keep_answer(
    db: Connection, user_id: int, key: str, *, request_sha256: str, made_id: int
) -> None:
    """Keep an answer for a day, and forget the user's older ones."""
    db.execute(
        delete(idempotency_key)
        .where(idempotency_key.c.user_id == user_id)
        .where(idempotency_key.c.create_time <= func.now() - _KEPT)
    )
    db.execute(
        insert(idempotency_key).values(
            user_id=user_id,
            idempotency_key=key,
            request_sha256=request_sha256,
            command_id=made_id,
        )
    )
