"""Prints a wall-clock time by a pattern of letters, as `java.time.format.DateTimeFormatter` does.

Only what a local date and time can answer: zone letters are illegal, and so is any other letter
that is not in the table below. Text forms are English. Weeks are those of ISO 8601 (Monday first,
the first has at least four days of the year), whatever the locale of the machine: the same
definition must print the same text everywhere, and agree with `week_begin` and `year_week`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

_Print: TypeAlias = Callable[[datetime], str]


class PatternError(Exception):
    """The text is not a pattern."""


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A checked pattern; it has at least one letter that stands for a part of the date."""

    parts: tuple[_Print, ...]

    def print(self, wall: datetime) -> str:
        return "".join(part(wall) for part in self.parts)


@lru_cache(maxsize=512)
def date_pattern(text: str) -> DatePattern:
    """The pattern a text is, or `PatternError`."""
    parts: list[_Print] = []
    fields = 0
    position = 0
    while position < len(text):
        symbol = text[position]
        if symbol == "'":
            literal, position = _quoted(text, position + 1)
            parts.append(_literal(literal))
        elif symbol.isascii() and symbol.isalpha():
            count = _run_length(text, position)
            parts.append(_field(symbol, count))
            fields += 1
            position += count
        elif symbol in _RESERVED:
            raise PatternError(f"{symbol} is reserved")
        else:
            parts.append(_literal(symbol))
            position += 1
    if not fields:
        raise PatternError("no letter stands for a part of the date")
    return DatePattern(tuple(parts))


# Braces and # are reserved in Java. Square brackets would be optional sections there; here they
# are far more likely the index of a shell array, which is to be left alone.
_RESERVED = "{}#[]"


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The literal whose text begins at `start`, and where the pattern goes on behind it."""
    position = start
    while True:
        end = text.find("'", position)
        if end < 0:
            raise PatternError("a quote is not closed")
        if text[end + 1 : end + 2] != "'":
            break
        position = end + 2
    # An empty literal is how a single quote is written outside of one.
    return text[start:end].replace("''", "'") or "'", end + 1


def _run_length(text: str, start: int) -> int:
    end = start
    while end < len(text) and text[end] == text[start]:
        end += 1
    return end - start


def _literal(text: str) -> _Print:
    return lambda _: text


def _field(letter: str, count: int) -> _Print:
    form = _FIELDS.get(letter)
    if form is None:
        raise PatternError(f"{letter} stands for nothing")
    part = form(count)
    if part is None:
        raise PatternError(f"{letter} cannot be written {count} times")
    return part


_Form: TypeAlias = Callable[[int], _Print | None]
"""The rendering of a letter by its number of repetitions; `None`: not allowed."""

_Number: TypeAlias = Callable[[datetime], int]


def _number(value: _Number, most: int) -> _Form:
    def form(count: int) -> _Print | None:
        return (lambda wall: f"{value(wall):0{count}}") if count <= most else None

    return form


def _year(value: _Number) -> _Form:
    def form(count: int) -> _Print | None:
        if count == 2:
            return lambda wall: f"{value(wall) % 100:02}"
        return _number(value, 19)(count)

    return form


def _text(value: Callable[[datetime], str], short: int) -> _Form:
    """Up to three letters print a short name, four the whole name, five its first letter."""

    def form(count: int) -> _Print | None:
        if count <= 3:
            return lambda wall: value(wall)[:short]
        if count == 4:
            return value
        return (lambda wall: value(wall)[:1]) if count == 5 else None

    return form


def _number_or(number: _Form, text: _Form) -> _Form:
    return lambda count: number(count) if count <= 2 else text(count)


def _fraction(count: int) -> _Print | None:
    return (lambda wall: f"{wall.microsecond:06}000"[:count]) if count <= 9 else None


def _half_of_day(count: int) -> _Print | None:
    return (lambda wall: "AM" if wall.hour < 12 else "PM") if count == 1 else None


def _era(count: int) -> _Print | None:
    names = ("AD", "AD", "AD", "Anno Domini", "A")
    return _literal(names[count - 1]) if count <= len(names) else None


def _quarter_text(count: int) -> _Print | None:
    match count:
        case 3:
            return lambda wall: f"Q{_quarter(wall)}"
        case 4:
            ordinals = ("1st", "2nd", "3rd", "4th")
            return lambda wall: f"{ordinals[_quarter(wall) - 1]} quarter"
        case 5:
            return lambda wall: f"{_quarter(wall)}"
        case _:
            return None


def _quarter(wall: datetime) -> int:
    return (wall.month + 2) // 3


def _day_of_year(wall: datetime) -> int:
    return wall.timetuple().tm_yday


def week_of_year(wall: datetime, first_weekday: int = 1) -> tuple[int, int]:
    """The week-based year and the number of the week; a week begins on `first_weekday` (1 Monday).

    A week belongs to the year that has at least four of its days.
    """
    begin = wall - timedelta(days=(wall.isoweekday() - first_weekday) % 7)
    middle = begin + timedelta(days=3)
    return middle.year, (_day_of_year(middle) - 1) // 7 + 1


def _week_of_month(wall: datetime) -> int:
    """Days before the first week that has at least four days of the month are in week 0."""
    days_before_first_monday = (wall.day - wall.isoweekday()) % 7
    first_week_counts = days_before_first_monday >= 4
    return (wall.day - 1 - days_before_first_monday) // 7 + 1 + first_week_counts


# Written out: the names that the standard library knows follow the locale of the process.
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_MONTH_TEXT = _text(lambda wall: _MONTHS[wall.month - 1], 3)
_WEEKDAY_TEXT = _text(lambda wall: _WEEKDAYS[wall.weekday()], 3)
_MONTH = _number_or(_number(lambda wall: wall.month, 2), _MONTH_TEXT)

_FIELDS: dict[str, _Form] = {
    "G": _era,
    "y": _year(lambda wall: wall.year),
    "u": _year(lambda wall: wall.year),
    "Y": _year(lambda wall: week_of_year(wall)[0]),
    "Q": _number_or(_number(_quarter, 2), _quarter_text),
    "M": _MONTH,
    "L": _MONTH,
    "w": _number(lambda wall: week_of_year(wall)[1], 2),
    "W": _number(_week_of_month, 1),
    "D": _number(_day_of_year, 3),
    "d": _number(lambda wall: wall.day, 2),
    "E": _WEEKDAY_TEXT,
    "e": _number_or(_number(lambda wall: wall.isoweekday(), 2), _WEEKDAY_TEXT),
    "a": _half_of_day,
    "H": _number(lambda wall: wall.hour, 2),
    "k": _number(lambda wall: wall.hour or 24, 2),
    "K": _number(lambda wall: wall.hour % 12, 2),
    "h": _number(lambda wall: wall.hour % 12 or 12, 2),
    "m": _number(lambda wall: wall.minute, 2),
    "s": _number(lambda wall: wall.second, 2),
    "S": _fraction,
    "n": _number(lambda wall: wall.microsecond * 1000, 19),
}
