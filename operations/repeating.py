"""Orders that are sent again: a key of the sender's makes the second one an echo of the first.

The key is written in the transaction that puts the command or makes the object, so that whoever
never got the answer may send the same request again. It is kept for a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.model.rights import Principal
from common.store.people import idempotency as store
from operations.errors import UsageError

if TYPE_CHECKING:
    from common.store.connect import Connection

LONGEST_KEY = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A request that is to be carried out once: its key, and the hash of all that it says."""

    key: str
    request_sha256: str


def first_answer(db: Connection, principal: Principal, once: Once) -> int | None:
    """Return what the first such request has made, by its id; None if this is the first.

    From here on, another request with the key waits for the end of this transaction.
    """
    if not 0 < len(once.key) <= LONGEST_KEY or not once.key.isprintable():
        raise UsageError("Idempotency-Key", f"is 1 to {LONGEST_KEY} printable characters")
    store.lock_key(db, principal.user_id, once.key)
    kept = store.find_answer(db, principal.user_id, once.key)
    if kept is None:
        return None
    if kept.request_sha256 != once.request_sha256:
        raise UsageError(
            "Idempotency-Key", "was used for another request within a day; take a new one"
        )
    return kept.made_id


def keep_answer(db: Connection, principal: Principal, once: Once, made_id: int) -> None:
    """Keep the answer of the first request."""
    store.keep_answer(
        db,
        principal.user_id,
        once.key,
        request_sha256=once.request_sha256,
        made_id=made_id,
    )
