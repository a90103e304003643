"""The place of an attempt in a trace: `traceparent` of the W3C's Trace Context.

Pure. A run is a trace and an attempt is a span of it, both worked out from their ids, so that
nothing has to be kept and a restarted daemon says the same. A run that was given a parameter
`traceparent` goes on with the trace of whoever started it. Whether anything listens is the task's
business: Orcaflow itself sends nothing.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final
from uuid import UUID

VARIABLE: Final = "TRACEPARENT"
PARAMETER: Final = "traceparent"

_FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = "01"


def traceparent(
    *, cluster: str, process_instance_id: int, task_instance_id: int, given: str
) -> str:
    """The attempt as the parent of what it does."""
    found = _FORM.fullmatch(given.strip().lower())
    is_trace = found is not None and set(found[1]) != {"0"}
    trace = found[1] if found and is_trace else _hex(cluster, "run", process_instance_id)[:32]
    flags = found[3] if found and is_trace else _SAMPLED
    return f"00-{trace}-{_hex(cluster, 'attempt', task_instance_id)[:16]}-{flags}"


def run_id(*, cluster: str, process_instance_id: int) -> UUID:
    """The run as systems of lineage know it."""
    return UUID(hex=_hex(cluster, "run", process_instance_id)[:32], version=5)


def attempt_id(*, cluster: str, task_instance_id: int) -> UUID:
    """The attempt as systems of lineage know it."""
    return UUID(hex=_hex(cluster, "attempt", task_instance_id)[:32], version=5)


@lru_cache(maxsize=500)
def _hex(cluster: str, kind: str, number: int) -> str:
    return hashlib.sha256(f"{cluster}/{kind}/{number}".encode()).hexdigest()
