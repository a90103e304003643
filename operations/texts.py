"""Numbers and spans of time in the words of messages for people; no layout, no terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 task`, `2 tasks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(span: timedelta) -> str:
    """A span of time, with tenths while it is short."""
    seconds = max(0.0, span.total_seconds())
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m{rest:02d}s" if hours else f"{minutes}m{rest:02d}s"


def size(number: int) -> str:
    """A number of bytes with three digits or so, in powers of 1,000."""
    amount = float(number)
    for unit in _UNITS[:-1]:
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} {_UNITS[-1]}"
