"""The topics of a stream: `instance:ID`, several of them, and `overview`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from operations.errors import UsageError

MOST_RUNS: Final = 50
_INSTANCE: Final = re.compile(r"instance:([1-9][0-9]{0,9})", re.ASCII)
_LARGEST_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The runs that a stream is about, and if it is about everything that goes on too."""

    runs: frozenset[int]
    overview: bool


def read_topics(text: str) -> Topics:
    """Read a list of topics; `UsageError` for what is none."""
    runs = set()
    overview = False
    for each in text.split(","):
        found = _INSTANCE.fullmatch(each)
        if each == "overview":
            overview = True
        elif found is not None and int(found.group(1)) <= _LARGEST_ID:
            runs.add(int(found.group(1)))
        else:
            raise UsageError(
                "topics", f"{each!r:.100} is no topic; known are instance:ID and overview"
            )
    if len(runs) > MOST_RUNS:
        raise UsageError("topics", f"names more than {MOST_RUNS} runs: open a stream for some")
    return Topics(runs=frozenset(runs), overview=overview)
