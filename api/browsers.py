"""Distinguishes a person's browser from a program, for answers that a person reads as a page.

Pure. The paths for programs always answer with JSON; `Accept` does not matter there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROGRAMS: Final = frozenset(
    {"api", "dolphinscheduler", "druid", "livez", "readyz", "metrics", "problems"}
)
"""The first parts of the paths that programs use."""
_PAGE: Final = "text/html"
_LONGEST: Final = 1000


def reads_page(path: str, headers: Mapping[str, str]) -> bool:
    """Return whether an answer of this path is read in a browser: its `Accept` names HTML."""
    if path.lstrip("/").partition("/")[0] in PROGRAMS:
        return False
    accepted = headers.get("accept", "")[:_LONGEST].lower().split(",")
    return any(_accepts(each) for each in accepted)


def _accepts(text: str) -> bool:
    kind, *parameters = (each.strip() for each in text.split(";"))
    weights = {each.replace(" ", "") for each in parameters}
    return kind == _PAGE and not weights & {"q=0", "q=0.0", "q=0.00", "q=0.000"}
