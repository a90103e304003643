"""What may not be shown: the values of parameters whose names sound secret, control characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|passw|pwd|secret|token|credential|private.?key|api.?key|access.?key",
    re.IGNORECASE,
)
MASK: Final = "******"
_SHORTEST_MASKED = 4


def is_secret(name: str) -> bool:
    """Whether a name sounds as if its value must not be shown."""
    return _SECRET_NAME.search(name) is not None


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
        if len(secret) >= _SHORTEST_MASKED:
            text = text.replace(printable(secret), MASK)
    return text
