"""Tags of rows that few people change: what two who save at once are told apart by.

A tag is a hash of what an answer shows. Who saves names the tag of what was read; another one now
means that somebody else was faster.
"""

from __future__ import annotations

import hashlib
import json

from operations.errors import ChangedMeanwhileError


def row_tag(*shown: object) -> str:
    """The tag of an object that shows these values."""
    text = json.dumps(shown, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_row_tag(now: str, expected: str | None, thing: str) -> None:
    """Refuse a change of what has changed since it was read.

    `*` is whatever there is, and so is None. The caller holds a lock of the row.
    """
    if expected is None:
        return
    given = [each.strip() for each in expected.split(",")]
    if "*" not in given and f'"{now}"' not in given:
        raise ChangedMeanwhileError(
            f"{thing} has changed since you read it; read it again, and send your change with its"
            " ETag",
            tag=now,
        )
