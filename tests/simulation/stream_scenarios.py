"""The scenarios in which each record of a stream has to be published once, told by a history.

A history is the words of a world's log, and of its alerts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

SCENARIOS: Final[Mapping[str, str]] = {
    "a crash before the commit of a publication": r"before the commit of publish",
    "a crash after the commit of a publication": r"after the commit of publish",
    "a task dies before it hears of its publication": r"dies before it hears",
    "an exact cut": r"\d published$",
    "a cut on the way": r"published a checkpoint",
    "two replicas publish the same": r"found published",
    "a stale task": r"refused: Conflict\(reason='partition",
    "a revoked lock": r"refused: LockLost",
    "a worker is killed three times": r"(?s)(w\d:1 is killed.*){3}",
    "a master is killed three times": r"(?s)(m\d:1 is killed.*){3}",
    "a master is held up before its step": r"m\d:1 is held up before apply_step",
    "a worker is held up before a publication": r"is held up before publish",
    "a standby takes over": r"\d has work$",
    "a standby is not needed": r"fails: the supervisor has stopped the standby",
    "PostgreSQL is restarted between two statements": r"restarted between",
    "PostgreSQL is restarted at a commit": r"restarted (before|after) the commit",
    "the broker is away": r"the broker is away for (2|10|30) s",
    "the broker is away for a minute": r"the broker is away for 60 s",
    "partitions are added": r"is added$",
    "records expire": r"begins at \d+ now",
    "an offset expires under its task": r"fails: .* is gone",
    "an expired offset is reset automatically": r"reset because of resetOffsetAutomatically",
    "an expired offset is reset by a person": r"a person resets",
}
"""The traces of each in a history, as a regular expression."""


def scenarios_in(history: str) -> frozenset[str]:
    """Return the scenarios that a history has."""
    return frozenset(
        name for name, seen in SCENARIOS.items() if re.search(seen, history, re.MULTILINE)
    )
