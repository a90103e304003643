"""The tokens that replace secrets in JSON texts, and the cheap checks for tokens and secrets. Pure.

Every process that reads rows imports this module. `common.sealing`, which finds the secrets of a
document, is imported only for a text that may hold one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from common.masking import CONSUMER_PROPERTIES

TOKEN: Final = re.compile(
    r"""(?P<open>\\*")?sealed:(?P<key>[0-9a-f]{8}):(?P<text>[\w-]+)(?P<end>[.#])(?P<close>\\*")?"""
)
"""An encrypted piece of a document. A token with the end `#` replaces a number, quotes included."""
MARK: Final = "sealed:"
"""The first characters of every token."""

DOCUMENT_BEGINS: Final = frozenset("{[ \n\t\r")
"""The possible first characters of a JSON document."""

HINTS: Final = (
    *("pass", "pw", "secret", "token", "credential", "key", "psk", "sig"),
    *("authorization", "cookie", "digest"),
    *(CONSUMER_PROPERTIES.lower(), "@", "\\u00"),
)
"""Every document with a secret contains one of these; an escape may hide the others."""


def may_hold_secrets(text: str) -> bool:
    """Return False if a text certainly holds no secret: a cheap check before all others."""
    lower = text.lower()
    return any(hint in lower for hint in HINTS)


def unsealed(text: str, reveal: Callable[[str, str], str | None]) -> str:
    """Replace tokens by their pieces; a token stays where `reveal` returns None."""

    def put(found: re.Match[str]) -> str:
        piece = reveal(found["key"], found["text"])
        if piece is None:
            return found[0]
        if found["end"] == "#":
            return piece
        return f"{found['open'] or ''}{piece}{found['close'] or ''}"

    return TOKEN.sub(put, text)


def key_of(text: str) -> str | None:
    """Return the key id of the first encrypted secret in a text; None without one."""
    found = TOKEN.search(text) if MARK in text else None
    return None if found is None else found["key"]
