"""`$[form]`: puts dates that are counted from a moment in a text.

A form is a date pattern with or without days to count (`yyyyMMdd-1`, `HH:mm-1/24`), one of the
functions in `_FUNCTIONS`, `year_week` or `timestamp`. What is no such form, has no letter that
stands for a part of the date, or still holds a `$` is left as it was written: it may be an array
or the arithmetic of a shell.

Counting is true to the calendar of the moment's zone: days, weeks and months keep the time of day
across clock changes, and so does an amount such as `24/24` that comes to whole days. Any other
amount is elapsed time in whole minutes, divided in integers (`5/7` of a day is 1028 minutes).
"""

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

from common.params.arithmetic import NotArithmeticError, evaluate
from common.params.date_pattern import DatePattern, PatternError, date_pattern, week_of_year
from common.params.enclosed import SQUARES, replace_enclosed
from common.params.errors import ParameterError
from common.params.moments import days_later, in_zone, minutes_later, on_wall, parse_compact

MAX_FORM_CHARS = 256
"""A longer text between the brackets is no form; it bounds what nesting can cost."""

_MINUTES_A_DAY = 24 * 60
_UTC = ZoneInfo("UTC")
_SOME_MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)


def replace_placeholders(text: str, *, moment: datetime, zone: ZoneInfo) -> str:
    """The text with every `$[form]` replaced; `ParameterError` only for an impossible moment."""
    local = in_zone(moment, zone)
    values: dict[str, str | None] = {}

    def value_of(form: str) -> str | None:
        if len(form) > MAX_FORM_CHARS or "$" in form:
            return None
        if form not in values:
            values[form] = _value(form, local, zone)
        return values[form]

    return replace_enclosed(text, SQUARES, value_of)


def with_some_date(text: str) -> str:
    """Return the text with every `$[form]` replaced for a fixed date, to check its form."""
    return replace_placeholders(text, moment=_SOME_MOMENT, zone=_UTC)


def unread_forms(text: str) -> tuple[str, ...]:
    """Return what stands in `$[…]` and is no form, so that it is left as it is written."""
    local = in_zone(_SOME_MOMENT, _UTC)
    found: dict[str, None] = {}

    def value_of(form: str) -> str | None:
        value = None
        # A parameter may still make a form of it.
        if len(form) <= MAX_FORM_CHARS and "$" not in form:
            value = _value(form, local, _UTC)
            if value is None:
                found[form] = None
        return value

    replace_enclosed(text, SQUARES, value_of)
    return tuple(found)


class _NoFormError(Exception):
    """The text between the brackets is nothing that this module replaces."""


_Shift: TypeAlias = Callable[[datetime, int], datetime]
"""Counts a number of its unit from a wall-clock time; the time of day stays."""


@dataclass(frozen=True, slots=True)
class _Function:
    shift: _Shift
    amounts: tuple[int, ...]
    """The number of amounts allowed behind the pattern."""


def _value(form: str, local: datetime, zone: ZoneInfo) -> str | None:
    try:
        name, arguments = _call(form)
        if name == "timestamp":
            return _timestamp(arguments, local, zone)
        if name == "year_week":
            return _year_week(arguments, local)
        when, pattern = _dated(form, local, zone)
        return pattern.print(when)
    except (_NoFormError, PatternError, NotArithmeticError):
        return None
    except (ParameterError, ValueError, OverflowError):
        return None  # A form, but of a date outside the years that there are.


def _call(form: str) -> tuple[str | None, str]:
    """The name of the function that a form begins with, and what its parentheses hold.

    A name decides: `week_end(` is also a sequence of date letters, yet never meant as one.
    """
    match = _CALL.match(form)
    if match is None or match[1] not in _NAMES:
        return None, ""
    if not form.endswith(")"):
        raise _NoFormError
    return match[1], form[match.end() : -1]


def _dated(form: str, local: datetime, zone: ZoneInfo) -> tuple[datetime, DatePattern]:
    """The moment that a form means and the pattern to print it by."""
    name, arguments = _call(form)
    if name is None:
        pattern, amount, sign = _plain(form)
        return _minutes_or_days_later(local, sign * _minutes(amount)), date_pattern(pattern)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise _NoFormError
    pattern, *amounts = arguments.split(",")
    if len(amounts) not in function.amounts:
        raise _NoFormError
    number = evaluate(amounts[0]) if amounts else 0
    wall = local.replace(tzinfo=None, fold=0)
    shifted = function.shift(wall, number)
    when = local if shifted == wall else on_wall(shifted, zone)
    return when, date_pattern(pattern)


def _plain(form: str) -> tuple[str, str, int]:
    """The pattern, the amount to count and its sign.

    A `+` anywhere hides every `-`, and only a digit behind the last one makes an amount; so
    `yyyy+MM-1` is a pattern as a whole, and `yyyyMMdd+1-1` counts `1-1` days.
    """
    symbol, sign = ("+", 1) if "+" in form else ("-", -1)
    pattern, found, amount = form.rpartition(symbol)
    if not found or not ("0" <= amount[:1] <= "9"):
        return form, "0", 1
    return pattern, amount, sign


def _minutes(amount: str) -> int:
    """An amount of days in minutes, multiplied before it is divided so that `1/24` is not 0."""
    days, slash, rest = amount.partition("/")
    if not slash:
        return _MINUTES_A_DAY * evaluate(amount)
    # By itself the left part must be an expression too: in `2*(3/24)` the slash is not the outer
    # operator, and dividing first would count nothing, silently.
    evaluate(days)
    return evaluate(f"{_MINUTES_A_DAY}*({days})/{rest}")


def _minutes_or_days_later(local: datetime, minutes: int) -> datetime:
    days, rest = divmod(minutes, _MINUTES_A_DAY)
    return minutes_later(local, minutes) if rest else days_later(local, days)


def _timestamp(form: str, local: datetime, zone: ZoneInfo) -> str:
    """Seconds since the epoch of what the form prints, which must be `yyyyMMddHHmmss`."""
    when, pattern = _dated(form, local, zone)
    printed = parse_compact(pattern.print(when), zone)
    if printed is None:
        raise _NoFormError
    exact = when.replace(microsecond=0)
    # Where the clock shows a time twice, the text alone cannot tell which; the moment can.
    same = printed.replace(tzinfo=None) == exact.replace(tzinfo=None)
    return str(int((exact if same else printed).timestamp()))


def _year_week(arguments: str, local: datetime) -> str:
    """The year and the number of its week; the year is the week's own, not the calendar's."""
    pattern, *weekdays = arguments.split(",")
    date_pattern(pattern)
    first_weekday = evaluate(weekdays[0]) if weekdays else 1
    if len(weekdays) > 1 or not 1 <= first_weekday <= 7:
        raise _NoFormError
    year, week = week_of_year(local, first_weekday)
    return f"{year}-{week:02}" if "-" in pattern else f"{year}{week}"


def _add_days(wall: datetime, days: int) -> datetime:
    return wall + timedelta(days=days)


def _add_weeks(wall: datetime, weeks: int) -> datetime:
    return wall + timedelta(weeks=weeks)


def _add_months(wall: datetime, months: int) -> datetime:
    """The same day of another month, or its last day if it is shorter."""
    year, month = divmod(wall.year * 12 + wall.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise _NoFormError
    day = min(wall.day, monthrange(year, month + 1)[1])
    return wall.replace(year=year, month=month + 1, day=day)


def _month_begin(wall: datetime) -> datetime:
    return wall.replace(day=1)


def _month_end(wall: datetime) -> datetime:
    return wall.replace(day=monthrange(wall.year, wall.month)[1])


def _week_begin(wall: datetime) -> datetime:
    return wall - timedelta(days=wall.weekday())


def _week_end(wall: datetime) -> datetime:
    return wall + timedelta(days=6 - wall.weekday())


_FUNCTIONS = {
    "add_months": _Function(_add_months, (1,)),
    "month_begin": _Function(lambda wall, days: _add_days(_month_begin(wall), days), (1,)),
    "month_end": _Function(lambda wall, days: _add_days(_month_end(wall), days), (1,)),
    "week_begin": _Function(lambda wall, days: _add_days(_week_begin(wall), days), (1,)),
    "week_end": _Function(lambda wall, days: _add_days(_week_end(wall), days), (1,)),
    "month_first_day": _Function(
        lambda wall, months: _month_begin(_add_months(wall, months)), (0, 1)
    ),
    "month_last_day": _Function(lambda wall, months: _month_end(_add_months(wall, months)), (0, 1)),
    "week_first_day": _Function(lambda wall, weeks: _add_weeks(_week_begin(wall), weeks), (0, 1)),
    "week_last_day": _Function(lambda wall, weeks: _add_weeks(_week_end(wall), weeks), (0, 1)),
    "this_day": _Function(lambda wall, _: wall, (0,)),
    "last_day": _Function(lambda wall, _: _add_days(wall, -1), (0,)),
}
_NAMES = _FUNCTIONS.keys() | {"timestamp", "year_week"}
_CALL = re.compile(r"([a-z_]{1,20})\(")
