"""The time for which claims and ends gather in a storm, to be written together.

A statement about ten attempts takes hardly longer than one about a single attempt. While attempts
that this worker has claimed wait for the start of others, whatever follows from an end, or comes
into a slot that has become free, would wait behind them: so it may as well gather so long.
"""

from __future__ import annotations

from typing import Final

_SHORTEST_SECONDS: Final = 0.01
_LONGEST_SECONDS: Final = 0.05
_SECONDS_A_START: Final = 0.002
"""No start of a process takes less on a computer that has much to do."""


def gathering_seconds(waiting: int) -> float:
    """Return the time between two statements while so many attempts wait for their start."""
    return min(max(_SHORTEST_SECONDS, _SECONDS_A_START * waiting), _LONGEST_SECONDS)
