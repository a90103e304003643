"""Tags of objects: what two people who change one at once are told apart by.

Who changes an object names the tag of what was read, as `If-Match` does; another one now means that
somebody else was faster.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from operations.errors import ChangedMeanwhileError

if TYPE_CHECKING:
    from common.store.connect import Connection


def hashed(document: Mapping[str, object]) -> str:
    """Return 16 characters that stand for all of a document."""
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def names(expected: str, tag: str) -> bool:
    """Return True if a list of tags holds this one; `*` is whatever there is."""
    given = [each.strip() for each in expected.split(",")]
    return "*" in given or f'"{tag}"' in given


def changed_meanwhile(
    db: Connection,
    what: str,
    thing: str,
    object_id: int,
    *,
    actions: tuple[str, ...],
    update_time: datetime,
    tag: str,
) -> ChangedMeanwhileError:
    """Build the error that says who has changed it; `what` says what it is, and how it is now.

    It is found in the audit, among the lines of these actions.
    """
    from common.store.people import audit

    saved = audit.last_change(db, thing, object_id, actions=actions)
    by = "somebody" if saved is None else saved[0]
    at = update_time if saved is None else saved[1]
    return ChangedMeanwhileError(
        f"{what}, saved by {by} at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC; read it again, and"
        " send your change with its ETag",
        tag=tag,
    )
