"""Requests that may be sent again: their keys, and the hash by which a repetition is known."""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeAlias

from fastapi import Header

from api.answers import Shape
from operations.repeating import Once

IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        max_length=255,
        description="The same request with the same key is carried out once within a day.",
    ),
]


def once_of(
    key: str | None, word: str, said: Shape, *, leaves_out: str | None = None
) -> Once | None:
    """Return the key with the hash of what a request says; None without a key.

    A secret is left out: its hash would be one that a thief of the tables could try words against.
    """
    if key is None:
        return None
    text = said.model_dump_json(exclude=None if leaves_out is None else {leaves_out})
    digest = hashlib.sha256(f"{word} {text}".encode()).hexdigest()
    return Once(key=key, request_sha256=digest)
