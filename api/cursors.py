"""Cursors of lists: opaque to clients, and to the server an id or a name to go on behind."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, TypeAlias

from fastapi import Query

from operations.errors import UsageError

LARGEST_PAGE: Final = 500
_LARGEST_ID: Final = 2**31 - 1
LARGEST_BIG_ID: Final = 2**63 - 1

Limit: TypeAlias = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Items of one page.")]
After: TypeAlias = Annotated[
    str | None, Query(max_length=100, description="`next` of the page before.")
]
AfterName: TypeAlias = Annotated[
    str | None, Query(max_length=1000, description="`next` of the page before.")
]


def written(name: str, last: int) -> str:
    """Return the cursor behind this id, in the list of this name."""
    return base64.urlsafe_b64encode(f"{name}:{last}".encode()).decode().rstrip("=")


def read(name: str, cursor: str | None, *, largest: int = _LARGEST_ID) -> int | None:
    """Return the id of a cursor; None without one. Raises `UsageError` for what is none."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        kind, _, number = base64.urlsafe_b64decode(padded.encode()).decode().partition(":")
        last = int(number)
    except (ValueError, binascii.Error):
        raise UsageError("after", "is no cursor: take `next` of the page before") from None
    if kind != name or not 0 <= last <= largest:
        raise UsageError("after", "is a cursor of another list: take `next` of the page before")
    return last


def next_of(name: str, ids: list[int], limit: int) -> str | None:
    """Return the cursor to go on with; None if this page was not full."""
    return written(name, ids[-1]) if len(ids) == limit else None


def read_name(name: str, cursor: str | None) -> str:
    """Return the text behind which a list by names goes on; the empty one at its beginning."""
    if cursor is None:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        kind, _, last = base64.urlsafe_b64decode(padded.encode()).decode().partition(":")
    except (ValueError, binascii.Error):
        raise UsageError("after", "is no cursor: take `next` of the page before") from None
    if kind != name or "\0" in last:
        raise UsageError("after", "is a cursor of another list: take `next` of the page before")
    return last


def next_name(name: str, names: list[str], limit: int) -> str | None:
    """Return the cursor of a list by names to go on with; None if this page was not full."""
    if len(names) < limit:
        return None
    return base64.urlsafe_b64encode(f"{name}:{names[-1]}".encode()).decode().rstrip("=")
