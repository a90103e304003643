"""Cuts the intervals that a DEPENDENT item means at a moment (contract §10.2). Pure.

An *interval* is half-open, `[start, end)`, and its ends are instants in UTC. It is cut on the wall
clock of the zone: a day of the autumn change has 25 hours, and an hour that the clock shows twice
is one interval of two hours (T45). An hour or a day that a change of the clock leaves out is no
interval, and counting back passes over it. "Hour of t" and "day of t" are those that t lies in.

`last24Hours` is aligned to days, not to the moment: hour 01 of the day before up to and including
hour 00 of the moment's day (T88).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

from common.model.depend_items import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """All instants from `start` up to but not including `end`, both in UTC."""

    start: datetime
    end: datetime

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment < self.end


def intervals(item: Item, moment: datetime, zone: ZoneInfo) -> tuple[Interval, ...]:
    """Return the intervals that an item means at an aware moment, oldest first.

    There is none for an unknown date value, for a named day that the zone left out, and at the ends
    of the calendar.
    """
    if moment.utcoffset() is None:
        raise ValueError("the moment has no zone")
    cut = DATE_VALUES_CUT.get((item.cycle, item.date_value))
    if cut is None:
        return ()
    try:
        return tuple(cut(moment.astimezone(UTC), zone))
    except (OverflowError, ValueError):
        # The calendar ends with the years 1 and 9999.
        return ()


_Cut: TypeAlias = Callable[[datetime, ZoneInfo], Iterator[Interval]]

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_SECOND = timedelta(seconds=1)


def _instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant at which the zone's clock shows that time, or has just passed it."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    # The clock leaves this time out. Read with the offsets before and behind the change, it lies
    # on either side of the change, which is the first instant of the later offset.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    later = instant.astimezone(zone).utcoffset()
    low, high = 0, (instant - before) // _SECOND
    while low < high:
        middle = (low + high) // 2
        if (before + middle * _SECOND).astimezone(zone).utcoffset() == later:
            high = middle
        else:
            low = middle + 1
    return before + high * _SECOND


def _between(wall: datetime, step: timedelta, zone: ZoneInfo) -> Interval:
    """Return the interval from a time on the clock to one a step later; it may be empty."""
    return Interval(start=_instant(wall, zone), end=_instant(wall + step, zone))


def _wall_of(moment: datetime, step: timedelta, zone: ZoneInfo) -> datetime:
    """Return the beginning, on the clock, of the hour or day that the moment lies in.

    The clock's reading is only the starting point: just after midnight it may be set back into the
    day before, whose last minutes then belong to the day that has begun.
    """
    wall = moment.astimezone(zone).replace(tzinfo=None, fold=0, minute=0, second=0, microsecond=0)
    if step == _DAY:
        wall = wall.replace(hour=0)
    while _instant(wall, zone) > moment:
        wall -= step
    while _instant(wall + step, zone) <= moment:
        wall += step
    return wall


def _existing(walls: Iterator[datetime], step: timedelta, zone: ZoneInfo) -> Iterator[Interval]:
    for wall in walls:
        interval = _between(wall, step, zone)
        if interval.start < interval.end:
            yield interval


def _backwards(wall: datetime, step: timedelta) -> Iterator[datetime]:
    while True:
        wall -= step
        yield wall


def _days(first: date, last: date, zone: ZoneInfo) -> Iterator[Interval]:
    """Yield each day from the first to the last, both included."""
    count = (last - first).days + 1
    walls = (datetime.combine(first, time()) + number * _DAY for number in range(count))
    return _existing(walls, _DAY, zone)


def _day_of(moment: datetime, zone: ZoneInfo) -> date:
    return _wall_of(moment, _DAY, zone).date()


def _current(step: timedelta) -> _Cut:
    def cut(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
        yield _between(_wall_of(moment, step, zone), step, zone)

    return cut


def _last(count: int, step: timedelta) -> _Cut:
    """Cut this many full hours or days before the one of the moment."""

    def cut(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
        found = _existing(_backwards(_wall_of(moment, step, zone), step), step, zone)
        newest_first = [next(found) for _ in range(count)]
        return reversed(newest_first)

    return cut


def _last_24_hours(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    today = _wall_of(moment, _DAY, zone)
    yesterday = next(_existing(_backwards(today, _DAY), _DAY, zone))
    first = _wall_of(yesterday.start, _DAY, zone) + _HOUR
    count = (today - first) // _HOUR + 1
    return _existing((first + number * _HOUR for number in range(count)), _HOUR, zone)


def _this_week(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    day = _day_of(moment, zone)
    return _days(day - day.weekday() * _DAY, day, zone)


def _last_week(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    monday = _last_monday(moment, zone)
    return _days(monday, monday + 6 * _DAY, zone)


def _last_monday(moment: datetime, zone: ZoneInfo) -> date:
    day = _day_of(moment, zone)
    return day - (day.weekday() + 7) * _DAY


def _last_weekday(number: int) -> _Cut:
    """Cut one day of the week before; Monday is 0."""

    def cut(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
        day = _last_monday(moment, zone) + number * _DAY
        return _days(day, day, zone)

    return cut


def _this_month(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    day = _day_of(moment, zone)
    return _days(day.replace(day=1), day, zone)


def _this_month_begin(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    first = _day_of(moment, zone).replace(day=1)
    return _days(first, first, zone)


def _this_month_end(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    # The 28th and four days are in the next month, whichever the month (T44).
    next_month = _day_of(moment, zone).replace(day=28) + 4 * _DAY
    last = next_month.replace(day=1) - _DAY
    return _days(last, last, zone)


def _last_month(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    last = _last_day_of_last_month(moment, zone)
    return _days(last.replace(day=1), last, zone)


def _last_month_begin(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    first = _last_day_of_last_month(moment, zone).replace(day=1)
    return _days(first, first, zone)


def _last_month_end(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    last = _last_day_of_last_month(moment, zone)
    return _days(last, last, zone)


def _last_day_of_last_month(moment: datetime, zone: ZoneInfo) -> date:
    return _day_of(moment, zone).replace(day=1) - _DAY


DATE_VALUES_CUT: Mapping[tuple[str, str], _Cut] = {
    ("hour", "currentHour"): _current(_HOUR),
    ("hour", "last1Hour"): _last(1, _HOUR),
    ("hour", "last2Hours"): _last(2, _HOUR),
    ("hour", "last3Hours"): _last(3, _HOUR),
    ("hour", "last24Hours"): _last_24_hours,
    ("day", "today"): _current(_DAY),
    ("day", "last1Days"): _last(1, _DAY),
    ("day", "last2Days"): _last(2, _DAY),
    ("day", "last3Days"): _last(3, _DAY),
    ("day", "last7Days"): _last(7, _DAY),
    ("week", "thisWeek"): _this_week,
    ("week", "lastWeek"): _last_week,
    ("week", "lastMonday"): _last_weekday(0),
    ("week", "lastTuesday"): _last_weekday(1),
    ("week", "lastWednesday"): _last_weekday(2),
    ("week", "lastThursday"): _last_weekday(3),
    ("week", "lastFriday"): _last_weekday(4),
    ("week", "lastSaturday"): _last_weekday(5),
    ("week", "lastSunday"): _last_weekday(6),
    ("month", "thisMonth"): _this_month,
    ("month", "thisMonthBegin"): _this_month_begin,
    ("month", "thisMonthEnd"): _this_month_end,
    ("month", "lastMonth"): _last_month,
    ("month", "lastMonthBegin"): _last_month_begin,
    ("month", "lastMonthEnd"): _last_month_end,
}
