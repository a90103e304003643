"""Which parameters hold what must not be shown, by their names; one rule for logs and screens.

Pure. Nothing here knows a value to be secret: a name that sounds so is all there is to go by.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "******"
SHORTEST_MASKED: Final = 4
"""Shorter values are hidden by their names alone: replacing "1" everywhere would hide the rest."""

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|passw|pwd|secret|token|credential|private.?key|api.?key|access.?key",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a name sounds as if its value must not be shown."""
    return _SECRET_NAME.search(name) is not None
