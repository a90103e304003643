"""What may not be shown: the values of parameters whose names sound secret, control characters."""

from __future__ import annotations

from collections.abc import Sequence

from common.masking import MASK, SHORTEST_MASKED


def printable(text: str) -> str:
    """On one line and without control characters, which could forge lines or command a terminal."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text
    )


def masked(text: str, secrets: Sequence[str]) -> str:
    """A printable text without these values.

    A very short value is hidden by name only: replacing "1" everywhere would hide the rest too.
    """
    # Longer ones first: one that begins with another would else be shown from there on.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_MASKED:
            text = text.replace(printable(secret), MASK)
    return text
