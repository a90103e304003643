"""Codes of DolphinScheduler 2.x and 3.x, by which its clients name definitions and tasks. Pure.

An imported task keeps its code. The codes of other tasks are computed.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_OUR_CODES: Final = 2**52


def code_in(value: object) -> int | None:
    """Return a number that can be a code: 64 bits, more than 0."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, int):
        return value if 0 < value < 2**63 else None
    text = value.strip()
    number = int(text) if _DIGITS.fullmatch(text) else 0
    return number if 0 < number < 2**63 else None


def code_of_node(text: str) -> int | None:
    """Return the code in the JSON of an imported node; None if it does not contain a code."""
    if '"code"' not in text:
        return None  # This saves most nodes, which are not imported, from being read once more.
    try:
        node = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return code_in(node.get("code")) if isinstance(node, dict) else None


def task_code(definition_id: int, name: str) -> int:
    """Compute the code of a task that was not imported: a number that JavaScript can hold.

    It stays the same as long as the definition's id and the task's name do.
    """
    said = f"{definition_id}/{name}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(said, digest_size=6).digest()
    return _OUR_CODES + int.from_bytes(digest, "big")
