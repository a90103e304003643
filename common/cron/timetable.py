"""The fires of a cron line: on the wall clock of a zone, by a policy for its jumps, in a window.

Pure. Fire times are whole seconds, aware, in UTC, and come in the order of instants, each once,
even where two wall times become one instant. All answers come from one generator, rising or
falling, so that `next`, `previous` and `between` can't disagree.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

from common.cron.line import Cron
from common.cron.zones import (
    DAY,
    EPOCH,
    FIRST_INSTANT,
    LAST_INSTANT,
    MissingTime,
    RepeatedTime,
    Storm,
    calm_offset,
    instant_day,
    storm,
)

_SECOND = timedelta(seconds=1)
# Wall clocks differ from UTC by less than a day, and jump by a day at most.
_MARGIN = 2
# The year 2200: no zone has rules for single years from here on, and no line begins later.
_SETTLED = (2200 - 1970) * 366 * DAY
# After 400 years, dates fall on the same days of the week again, and so do the jumps of clocks.
_CALENDAR = 401 * 366 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """A cron line on the wall clock of a zone; it fires from `first` to `last`, both included."""

    cron: Cron
    zone: ZoneInfo
    missing: MissingTime = MissingTime.SHIFT
    repeated: RepeatedTime = RepeatedTime.FIRST
    first: datetime | None = None
    last: datetime | None = None

    def __post_init__(self) -> None:
        for end in (self.first, self.last):
            if end is not None:
                _floor(end)

    def next(self, after: datetime) -> datetime | None:
        """The first fire strictly after an instant, or None if there are no more."""
        first = _floor(after) + 1
        last = LAST_INSTANT
        if self.cron.repeats_with_calendar:
            # A line whose every fire is in an hour that the clock skips, by the policy to skip
            # it, is found out after one round of the calendar instead of at the end of time.
            last = max(first, _SETTLED) + _CALENDAR
        return next(self._fires(first, last), None)

    def previous(self, before: datetime) -> datetime | None:
        """The last fire strictly before an instant, or None if there was none."""
        return next(self._fires(FIRST_INSTANT, _ceiling(before) - 1, falling=True), None)

    def between(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """The fires from `first` to `last`, both included, computed as they are taken."""
        return self._fires(_ceiling(first), _floor(last))

    def _fires(self, first: int, last: int, *, falling: bool = False) -> Iterator[datetime]:
        if self.first is not None:
            first = max(first, _ceiling(self.first))
        if self.last is not None:
            last = min(last, _floor(self.last))
        first, last = max(first, FIRST_INSTANT), min(last, LAST_INSTANT)
        for instant in self._instants(first, last, falling=falling):
            yield EPOCH + timedelta(seconds=instant)

    def _instants(self, first: int, last: int, *, falling: bool) -> Iterator[int]:
        if first > last:
            return
        begin = instant_day(self.zone, first) - _MARGIN
        end = instant_day(self.zone, last) + _MARGIN
        passed: Storm | None = None
        for day in self.cron.days(begin, end, falling=falling):
            if passed is not None and passed.first_day <= day <= passed.last_day:
                continue
            offset = calm_offset(self.zone, day)
            if offset is None:
                passed = storm(self.zone, day)
                yield from self._in_storm(passed, first, last, falling=falling)
                continue
            midnight = day * DAY - offset
            low, high = max(first - midnight, 0), min(last - midnight, DAY - 1)
            for time in self.cron.times(low, high, falling=falling):
                yield midnight + time

    def _in_storm(self, passed: Storm, first: int, last: int, *, falling: bool) -> Iterator[int]:
        stretches = passed.stretches
        for at in reversed(range(len(stretches))) if falling else range(len(stretches)):
            here = stretches[at]
            before = stretches[at - 1] if at > 0 else here
            behind = stretches[at + 1] if at + 1 < len(stretches) else here
            low, high = here.begin, here.end - 1
            if self.repeated is RepeatedTime.FIRST and before.offset > here.offset:
                low += before.offset - here.offset
            if self.repeated is RepeatedTime.SECOND and behind.offset < here.offset:
                high -= here.offset - behind.offset
            fires = self._shown(max(low, first), min(high, last), here.offset, falling=falling)
            if self.missing is MissingTime.SHIFT and before.offset < here.offset:
                # Walls that the jump skips are read by the offset before it, as if it came late.
                late = here.begin + here.offset - before.offset - 1
                shifted = self._shown(
                    max(here.begin, first), min(late, last), before.offset, falling=falling
                )
                fires = _unique(heapq.merge(fires, shifted, reverse=falling))
            yield from fires

    def _shown(self, first: int, last: int, offset: int, *, falling: bool) -> Iterator[int]:
        """Fires between two instants, for a wall that is so many seconds ahead."""
        for wall in self.cron.walls(first + offset, last + offset, falling=falling):
            yield wall - offset


def merged(timetables: Iterable[Timetable], first: datetime, last: datetime) -> Iterator[datetime]:
    """The fires of several timetables from `first` to `last`, each instant once, as taken."""
    return _unique(heapq.merge(*(timetable.between(first, last) for timetable in timetables)))


_Ordered = TypeVar("_Ordered", int, datetime)


def _unique(ordered: Iterable[_Ordered]) -> Iterator[_Ordered]:
    passed: _Ordered | None = None
    for one in ordered:
        if one != passed:
            yield one
        passed = one


def _floor(instant: datetime) -> int:
    """The whole second at or before an instant; a `ValueError` if it has no zone."""
    if instant.utcoffset() is None:
        raise ValueError(f"{instant} has no zone, and so is no instant")
    return (instant - EPOCH) // _SECOND


def _ceiling(instant: datetime) -> int:
    """The whole second at or after an instant."""
    return _floor(instant) + (instant.microsecond > 0)
