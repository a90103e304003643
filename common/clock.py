"""The time, as an argument: the only module that asks the system for it.

The core is given `now`; loops and services are given a `Clock`, so that tests and the simulator
move it by hand. Wall-clock time is for rows and people; deadlines use `monotonic`, which never
jumps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time; nothing else in Orcaflow does."""

    def now(self) -> datetime:
        """The present instant, aware and in UTC."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, from a start that means nothing."""


class SystemClock:
    """The clock of this computer."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def processor_seconds(thread: int) -> float:
    """Return the processor time of a thread of this process, which must be alive."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
