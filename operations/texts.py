"""Numbers and spans of time in the words of messages for people; no layout, no terminal."""

from __future__ import annotations

from datetime import timedelta


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
