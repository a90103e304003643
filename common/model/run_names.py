"""The names of runs, which say what they are of: `flights-7-1357027200000`. Pure."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"-(\d{1,10})-\d{12,16}\Z", re.ASCII)
_LARGEST: Final = 2**31 - 1


def run_name(definition: str, version: int, milliseconds: int) -> str:
    """Return the name of a run: its definition, the version of that, and when it began."""
    return f"{definition}-{version}-{milliseconds}"


def definition_in(name: str) -> str:
    """Return the name of the definition of a run; a name that a user typed is returned whole."""
    return _NAME.sub("", name)


def version_in(name: str) -> int | None:
    """Return the version of the definition that a run has; None for a name that somebody typed."""
    found = _NAME.search(name)
    return int(found[1]) if found is not None and 0 < int(found[1]) <= _LARGEST else None
