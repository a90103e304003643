"""The times that keep an attempt and its successor apart while a worker has no session.

Pure. A master that misses a worker in the registry first *marks* the worker's attempts in their
rows, and fails them over no sooner than `GRACE` later. A worker without a session lets its attempts
run until `LEASE` after the last moment at which none of them was marked, and kills them then. The
rest of the grace is for the kill. Both count by their own monotonic clocks and from a moment that
they chose themselves, so no clock is compared with another. The times are part of the protocol
between daemons and are therefore no settings.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

GRACE: Final = timedelta(seconds=5)
LEASE: Final = timedelta(seconds=3)


class Lease:
    """The right of a worker to let its attempts run. Times are readings of the monotonic clock."""

    def __init__(self) -> None:
        self._until = float("-inf")

    def renew(self, moment: float) -> None:
        """No attempt was marked at `moment`, which is when the question was sent."""
        self._until = max(self._until, moment + LEASE.total_seconds())

    def is_over(self, now: float) -> bool:
        """Return True if an attempt may be marked for so long that it must not run any more."""
        return now >= self._until
