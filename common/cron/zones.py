"""The jumps of a zone's clock, and the instants of its wall times.

Pure. Instants and wall times are whole seconds since 1970-01-01 00:00:00, in UTC and on the wall.
A *calm* day is one around which the clock does not jump: all its wall times are off by the same
number. The other days come in *storms* of a few days, which are cut at the very second of each
jump into *stretches* of a constant offset; what is missing or repeated is decided there, by
trimming the stretches, so that fires come out in the order of instants even where the order of
wall times differs.

Rests on what a test checks for all zones: two jumps of a zone since 1970 lie days apart, and none
is wider than a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = EPOCH.toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH_DAY
LAST_INSTANT = (_LAST_DAY + 1) * DAY - 1
# The wall of a zone may show 1 January 1970 before UTC does.
FIRST_INSTANT = -2 * DAY
_PROBE = DAY // 4


class MissingTime(StrEnum):
    """The policy for a fire whose wall time the clock skips, as in spring."""

    SHIFT = "shift"
    """It fires as much later as the clock jumps: 02:30 becomes 03:30."""
    SKIP = "skip"
    """It does not fire."""


class RepeatedTime(StrEnum):
    """The policy for a fire whose wall time the clock shows twice, as in autumn."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instants from `begin` up to `end`, not included, in which walls are `offset` ahead."""

    begin: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class Storm:
    """Days, from `first_day` to `last_day`, around jumps; the stretches follow each other."""

    first_day: int
    last_day: int
    stretches: tuple[Stretch, ...]


def calm_offset(zone: ZoneInfo, day: int) -> int | None:
    """The offset of a day's walls from UTC, or None if the clock jumps near that day.

    Near is the day before, whose late fires may run into this one, and a jump across midnight.
    """
    offset = _midnight(zone, day)
    if offset is None:
        return None
    if _midnight(zone, day - 1) != offset or _midnight(zone, day + 1) != offset:
        return None
    return offset


def instant_day(zone: ZoneInfo, instant: int) -> int:
    """The day that the wall shows at an instant."""
    return (instant + _offset(zone, instant)) // DAY


@lru_cache(maxsize=512)
def storm(zone: ZoneInfo, day: int) -> Storm:
    """The days around a day that is not calm, up to the nearest calm ones."""
    first = last = day
    while calm_offset(zone, first - 1) is None:
        first -= 1
    while last < _LAST_DAY and calm_offset(zone, last + 1) is None:
        last += 1
    # The days before and after are calm: their common midnight with the storm is no jump.
    begin = first * DAY - (_midnight(zone, first) or 0)
    end = (last + 1) * DAY - (_midnight(zone, last + 1) or 0)
    stretches: list[Stretch] = []
    offset = _offset(zone, begin)
    since = known = begin
    while known < end:
        probe = min(known + _PROBE, end)
        there = _offset(zone, probe)
        if there != offset:
            jump = _jump(zone, known, probe)
            stretches.append(Stretch(since, jump, offset))
            since, offset = jump, there
        known = probe
    stretches.append(Stretch(since, end, offset))
    return Storm(first, last, tuple(stretches))


def _jump(zone: ZoneInfo, before: int, after: int) -> int:
    """The first instant of the new offset, between two instants whose offsets differ."""
    old = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


@lru_cache(maxsize=8192)
def _midnight(zone: ZoneInfo, day: int) -> int | None:
    """The offset at the beginning of a day, or None if that is skipped or comes twice."""
    at = datetime.fromordinal(_EPOCH_DAY + min(day, _LAST_DAY)).replace(tzinfo=zone)
    offset = at.utcoffset()
    return None if offset != at.replace(fold=1).utcoffset() else _seconds(offset)


def _offset(zone: ZoneInfo, instant: int) -> int:
    """The offset of the wall at an instant."""
    # At the very end of the calendar, the wall may be beyond it; no zone jumps on its last day.
    at = EPOCH + timedelta(seconds=min(instant, LAST_INSTANT - DAY))
    return _seconds(at.astimezone(zone).utcoffset())


def _seconds(offset: timedelta | None) -> int:
    # Zones always know their offset; only other kinds of time-zone objects may not.
    return 0 if offset is None else offset.days * DAY + offset.seconds
