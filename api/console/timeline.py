"""The attempts of a run along time: when each was queued, ran and ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from api.console.looks import Look, of_task

SCALE: Final = 1000
_LEAST: Final = 4
"""The width of a bar at least, on the scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt at a task; what has not come about yet has no time."""

    name: str
    number: int
    state: int
    submit_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """An attempt: on a scale of 1,000, queued from `queued` to `x`, and running for `width`."""

    attempt: Attempt
    look: Look
    queued: int
    x: int
    width: int
    span: timedelta | None


def bars_of(attempts: Sequence[Attempt], *, start: datetime, end: datetime) -> tuple[Bar, ...]:
    """Lay out attempts between the start of their run and its end, or now."""
    whole = max((end - start).total_seconds(), 0.001)

    def at(moment: datetime | None) -> int:
        seconds = (moment - start).total_seconds() if moment else 0.0
        return max(0, min(SCALE - _LEAST, round(seconds / whole * SCALE)))

    bars = []
    for each in attempts:
        began = each.start_time or each.submit_time
        if began is None:
            continue
        until = each.end_time or end
        x = at(began)
        width = max(_LEAST, round((until - began).total_seconds() / whole * SCALE))
        has_run = each.start_time is not None
        bars.append(
            Bar(
                attempt=each,
                look=of_task(each.state),
                queued=min(x, at(each.submit_time)) if each.submit_time else x,
                x=x,
                width=min(width, SCALE - x) if has_run else 0,
                span=max(timedelta(), until - began) if has_run else None,
            )
        )
    return tuple(bars)
