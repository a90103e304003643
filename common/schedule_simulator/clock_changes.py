"""Dates on which a clock change shifts, skips or doubles fires of a schedule. Pure.

Compares the timetable with itself under another policy, at the very jumps of its zone, so that the
rules for clock changes are read in one place alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from common.cron import MissingTime, RepeatedTime, Timetable

_PROBE: Final = timedelta(hours=6)
_SECOND: Final = timedelta(seconds=1)


class ClockChangeKind(StrEnum):
    """The effect of a clock change on fires."""

    SHIFTED = "shifted"
    """Their time is missing that day; they fire as much later as the clock jumps."""
    SKIPPED = "skipped"
    """Their time is missing that day; they don't fire."""
    DOUBLED = "doubled"
    """Their time comes twice that day; they fire twice."""
    ONCE = "once"
    """Their time comes twice that day; they fire at one of the two only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """The effect on a number of fires of one date, on the wall clock."""

    kind: ClockChangeKind
    day: date
    fires: int


def clock_changes(timetable: Timetable, begin: datetime, end: datetime) -> tuple[ClockChange, ...]:
    """The clock changes from `begin` up to `end`, in order."""
    found: Counter[tuple[date, ClockChangeKind]] = Counter()
    for jump, before, after in _jumps(timetable.zone, begin, end):
        # Walls that are missing would be read by the offset before the jump; those that come
        # again are within the same span behind it.
        first, last = max(jump, begin), min(jump + abs(after - before), end) - _SECOND
        if after > before:
            kind = (
                ClockChangeKind.SHIFTED
                if timetable.missing is MissingTime.SHIFT
                else ClockChangeKind.SKIPPED
            )
            more = replace(timetable, missing=MissingTime.SHIFT)
            less = replace(timetable, missing=MissingTime.SKIP)
        else:
            kind = (
                ClockChangeKind.DOUBLED
                if timetable.repeated is RepeatedTime.BOTH
                else ClockChangeKind.ONCE
            )
            more = replace(timetable, repeated=RepeatedTime.BOTH)
            less = replace(timetable, repeated=RepeatedTime.FIRST)
        ordinary = frozenset(less.between(first, last))
        for fire in more.between(first, last):
            if fire not in ordinary:
                wall = fire + min(before, after)
                found[wall.date(), kind] += 1
    return tuple(
        ClockChange(kind=kind, day=day, fires=number)
        for (day, kind), number in sorted(found.items())
    )


def _jumps(
    zone: ZoneInfo, begin: datetime, end: datetime
) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """The instants at which the clock jumps, with the offsets from UTC before and after.

    Also the last jump before `begin`, if it may still matter then: none is wider than a day.
    """
    known = begin.astimezone(UTC).replace(microsecond=0) - timedelta(days=1)
    offset = _offset(known, zone)
    while known < end:
        probe = known + _PROBE
        there = _offset(probe, zone)
        if there != offset:
            jump, low = probe, known
            while jump - low > _SECOND:
                middle = low + (jump - low) // _SECOND // 2 * _SECOND
                if _offset(middle, zone) == offset:
                    low = middle
                else:
                    jump = middle
            yield jump, offset, there
        known, offset = probe, there


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()
