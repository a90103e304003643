"""Fires of schedules as the days of a calendar: marks, or numbers where there are many. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Final

from api.console.looks import Look

DAYS: Final = 7
_MOST_MARKS: Final = 8
_MOST_TIMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """A fire with its look; `run` is the id of its run."""

    at: datetime
    look: Look
    run: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A fire in a day: `time` is its time of the day, `is_told` if there is room for it."""

    time: str
    is_told: bool
    look: Look
    run: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A day of a schedule: its marks, or the numbers of its fires by their looks."""

    marks: tuple[Mark, ...]
    counts: tuple[tuple[Look, int], ...]


def monday_of(day: date) -> date:
    return day - timedelta(days=day.weekday())


def days_of(fires: Sequence[Fire], first: date, zone: tzinfo) -> tuple[Day, ...]:
    """Lay out fires, which are in order, as the seven days from `first` on, on the zone's wall."""
    days: list[list[Fire]] = [[] for _ in range(DAYS)]
    for each in fires:
        place = (each.at.astimezone(zone).date() - first).days
        if 0 <= place < DAYS:
            days[place].append(each)
    return tuple(_day(each, zone) for each in days)


def _day(fires: Sequence[Fire], zone: tzinfo) -> Day:
    if len(fires) > _MOST_MARKS:
        return Day(marks=(), counts=tuple(Counter(each.look for each in fires).most_common()))
    is_told = len(fires) <= _MOST_TIMES
    marks = [
        Mark(
            time=f"{each.at.astimezone(zone):%H:%M}",
            is_told=is_told,
            look=each.look,
            run=each.run,
        )
        for each in fires
    ]
    return Day(marks=tuple(marks), counts=())
