"""Totals of many rows, kept for the moment in which a page is asked for again.

To count 100,000 rows takes as long as all the rest of a page. DolphinScheduler's front ends ask for
the same page each few seconds, and what they show of a large total is the number of pages.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from common.clock import Clock

_FROM: Final = 10_000
_SECONDS: Final = 5.0
_MOST: Final = 1_000


class KeptTotals:
    """Totals of at least ten thousand rows by what was asked for, for five seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, int]] = {}

    def find(self, asked: Hashable) -> int | None:
        """Return the total of a moment ago; None if it has to be counted."""
        until, total = self._kept.get(asked, (0.0, 0))
        return total if self._clock.monotonic() < until else None

    def keep(self, asked: Hashable, total: int) -> None:
        """Keep a total that has just been counted, if it is of many rows."""
        if total < _FROM:
            return
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[asked] = (self._clock.monotonic() + _SECONDS, total)
