"""The days of a year that a line means, whatever the time of day and the zone.

Pure. A calendar year is one of fourteen *shapes*: it is a leap year or not, and begins on one of
seven days of the week. What a line means by its day fields is worked out once for a shape, so that
a search through a thousand years is a thousand look-ups.

Days are counted from 1 January 1970 (day 0), days of the week from Sunday = 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from common.cron.fields import (
    LAST_YEAR,
    Fields,
    LastDay,
    LastOf,
    NearestWeekday,
    NthOf,
    Part,
    Span,
    numbers,
)

_EPOCH = date(1970, 1, 1).toordinal()
_SATURDAY = 6
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
LAST_DAY = date(LAST_YEAR, 12, 31).toordinal() - _EPOCH


@dataclass(frozen=True, slots=True)
class DayRule:
    """The day fields and the month field of a line."""

    months: tuple[int, ...]
    parts: tuple[Part, ...]
    by_week: bool

    @classmethod
    def of(cls, fields: Fields) -> DayRule:
        by_week = fields.days_of_month is None
        parts = fields.days_of_week if by_week else fields.days_of_month
        return cls(numbers(fields.months, 1, 12), parts or (), by_week)


def ever_fires(rule: DayRule, years: Sequence[int]) -> bool:
    """True if any of the years has a day of the rule."""
    # Most lines fire in their first years; only for the others is each shape looked at once.
    return any(_days_of_shape(rule, *_shape(year)) for year in years[:40]) or any(
        _days_of_shape(rule, *shape) for shape in sorted({_shape(year) for year in years[40:]})
    )


def days(
    rule: DayRule, years: Sequence[int], first: int, last: int, *, falling: bool = False
) -> Iterator[int]:
    """The days of the rule from `first` to `last`, both included, rising or falling."""
    first, last = max(first, 0), min(last, LAST_DAY)
    if first > last:
        return
    begin = bisect_left(years, date.fromordinal(_EPOCH + first).year)
    end = bisect_left(years, date.fromordinal(_EPOCH + last).year + 1)
    for year in reversed(years[begin:end]) if falling else years[begin:end]:
        new_year = date(year, 1, 1).toordinal() - _EPOCH
        of_year = _days_of_shape(rule, *_shape(year))
        if first <= new_year and new_year + 366 <= last:
            for day in reversed(of_year) if falling else of_year:
                yield new_year + day
            continue
        low = bisect_left(of_year, first - new_year)
        high = bisect_left(of_year, last - new_year + 1)
        for day in reversed(of_year[low:high]) if falling else of_year[low:high]:
            yield new_year + day


def _shape(year: int) -> tuple[bool, int]:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return is_leap, date(year, 1, 1).isoweekday() % 7


@lru_cache(maxsize=2048)
def _days_of_shape(rule: DayRule, is_leap: bool, first_weekday: int) -> tuple[int, ...]:
    """The days of the rule in such a year, rising, counted from 0 on New Year's Day."""
    found: list[int] = []
    new_month = 0
    for month, ordinary in enumerate(_LENGTHS, 1):
        length = ordinary + (is_leap and month == 2)
        if month in rule.months:
            weekday = (first_weekday + new_month) % 7
            found.extend(new_month + day - 1 for day in _days_of_month(rule, length, weekday))
        new_month += length
    return tuple(found)


def _days_of_month(rule: DayRule, length: int, first_weekday: int) -> list[int]:
    meant: set[int] = set()
    for part in rule.parts:
        if rule.by_week:
            meant.update(_by_week(part, length, first_weekday))
        else:
            meant.update(_by_month(part, length, first_weekday))
    return sorted(meant)


def _by_week(part: Part, length: int, first_weekday: int) -> Iterator[int]:
    match part:
        case Span():
            for day_of_week in part.values(1, 7):
                yield from range(_first_such(day_of_week, first_weekday), length + 1, 7)
        case LastOf():
            first = _first_such(part.day_of_week, first_weekday)
            yield first + (length - first) // 7 * 7
        case NthOf():
            day = _first_such(part.day_of_week, first_weekday) + (part.nth - 1) * 7
            if day <= length:
                yield day
        case _:
            raise AssertionError(part)


def _by_month(part: Part, length: int, first_weekday: int) -> Iterator[int]:
    match part:
        case Span():
            yield from (day for day in part.values(1, 31) if day <= length)
        case LastDay():
            day = length - part.before
            if day >= 1:
                yield _nearest(day, length, first_weekday) if part.to_weekday else day
        case NearestWeekday():
            if part.day <= length:
                yield _nearest(part.day, length, first_weekday)
        case _:
            raise AssertionError(part)


def _first_such(day_of_week: int, first_weekday: int) -> int:
    """The first day of the month that is such a day of the week; Sunday is 1, as in the line."""
    return (day_of_week - 1 - first_weekday) % 7 + 1


def _nearest(day: int, length: int, first_weekday: int) -> int:
    """The day from Monday to Friday nearest to a day, without leaving the month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else 3
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
