"""Time that only the simulator advances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class VirtualClock:
    """A `Clock` whose wall-clock and monotonic time move together, until the former is set.

    `wrong_by` is how far the wall clock is from what it should be.
    """

    def __init__(self) -> None:
        self.elapsed = timedelta()
        self.wrong_by = timedelta()

    def now(self) -> datetime:
        return START + self.elapsed + self.wrong_by

    def true_now(self) -> datetime:
        """The wall-clock time if it had never been set."""
        return START + self.elapsed

    def monotonic(self) -> float:
        return self.elapsed.total_seconds()

    def move_to(self, elapsed: timedelta) -> None:
        """Move forward, never backwards."""
        self.elapsed = max(self.elapsed, elapsed)
