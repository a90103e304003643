"""The reason of an attempt that no worker has claimed in time, as the table keeps it.

Pure. `master.logic.assignment` writes it, and `api.druid` reads it, because Druid has its own text
for this failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

_BEGIN: Final = "no worker took it: "
_WITHIN: Final = re.compile(r" claimed it within ([0-9]{1,9}(?:\.[0-9]{1,9})?) s ")


def unclaimed_reason(workers: Iterable[str], timeout: timedelta) -> str:
    """Return the reason; `workers` had this long to claim the attempt."""
    return (
        f"{_BEGIN}none of {', '.join(dict.fromkeys(workers))} claimed it within"
        f" {timeout.total_seconds():g} s (master.task_assignment_timeout_seconds)"
    )


def timeout_of(reason: str | None) -> timedelta | None:
    """Return the time that each worker had; None for a failure of another kind."""
    if reason is None or not reason.startswith(_BEGIN):
        return None
    found = _WITHIN.search(reason)
    return None if found is None else timedelta(seconds=float(found[1]))
