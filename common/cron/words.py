"""A cron line in words, such as `at 02:30:00 on the last Friday of the month`.

Pure. The words mean the wall clock of the schedule's zone; the caller adds the zone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from common.cron.fields import (
    FIRST_YEAR,
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

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH = ("first", "second", "third", "fourth", "fifth")
# More times of day than these are described by a rule instead.
_MAX_TIMES = 6


def in_words(fields: Fields) -> str:
    """The fires of a line in words."""
    times, day = _times(fields), _days(fields)
    words = [times]
    if day != "every day" or not _is_even(fields.hours, 24):
        words.append(day)
    if not _is_all(fields.months, 1, 12):
        words.append("in " + _list([_span(part, _month, "month", 1, 12) for part in fields.months]))
    if not _is_all(fields.years, FIRST_YEAR, LAST_YEAR):
        words.append(
            "in " + _list([_span(part, str, "year", FIRST_YEAR, 0) for part in fields.years])
        )
    return " ".join(words)


def _times(fields: Fields) -> str:
    seconds = numbers(fields.seconds, 0, 60)
    minutes = numbers(fields.minutes, 0, 60)
    hours = numbers(fields.hours, 0, 24)
    if len(seconds) * len(minutes) * len(hours) <= _MAX_TIMES:
        return "at " + _list(
            [
                f"{hour:02}:{minute:02}:{second:02}"
                for hour in hours
                for minute in minutes
                for second in seconds
            ]
        )
    pieces: list[tuple[str, Sequence[Span], int]] = []
    if seconds != (0,):
        pieces.append(("second", fields.seconds, 60))
    if pieces or minutes != (0,) or not _is_even(fields.hours, 24):
        pieces.append(("minute", fields.minutes, 60))
    pieces.append(("hour", fields.hours, 24))
    text, recurs = "", False
    for unit, spans, circle in pieces:
        text, recurs = _within(text, unit, spans, circle, recurs=recurs)
    return text


def _within(
    text: str, unit: str, spans: Sequence[Span], circle: int, *, recurs: bool
) -> tuple[str, bool]:
    """The text of the smaller units within a larger one, and whether it ends in `every …`.

    `recurs` says that of the smaller units: `every second` needs no `of every minute`.
    """
    if _is_all(spans, 0, circle - 1):
        if recurs:
            return text, True
        return (f"{text} of every {unit}" if text else f"every {unit}"), True
    if _is_even(spans, circle):
        every = f"every {spans[0].step} {unit}s"
        return (f"{text}, {every}" if text else every), True
    if len(spans) == 1 and spans[0].step > 1 and len(numbers(spans, 0, circle)) > _MAX_TIMES:
        every = _span(spans[0], str, unit, 0, circle)
        return (f"{text}, {every}" if text else every), False
    several = "s" if len(numbers(spans, 0, circle)) > 1 else ""
    preposition = "at " if not text else " in " if recurs else " of "
    counted = _list([_span(span, str, unit, 0, circle) for span in spans])
    return f"{text}{preposition}{unit}{several} {counted}", False


def _is_even(spans: Sequence[Span], circle: int) -> bool:
    """True if the field comes round in even steps, from hour to hour or from day to day."""
    if len(spans) != 1:
        return False
    (span,) = spans
    return span.low == 0 and span.high == circle - 1 and circle % span.step == 0


def _is_all(spans: Sequence[Part], first: int, last: int) -> bool:
    return any(
        isinstance(span, Span) and span.step == 1 and (span.low, span.high) == (first, last)
        for span in spans
    )


def _days(fields: Fields) -> str:
    if fields.days_of_month is not None:
        if _is_all(fields.days_of_month, 1, 31):
            return "every day"
        return "on " + _list([_day_of_month(part) for part in fields.days_of_month])
    parts = fields.days_of_week or ()
    return (
        "every day" if _is_all(parts, 1, 7) else "on " + _list([_of_week(part) for part in parts])
    )


def _day_of_month(part: Part) -> str:
    match part:
        case Span():
            return _span(part, lambda day: f"the {_ordinal(day)}", "day", 1, 31)
        case NearestWeekday():
            return f"the weekday nearest the {_ordinal(part.day)}"
        case LastDay(before=0):
            return f"the last {'weekday' if part.to_weekday else 'day'} of the month"
        case LastDay():
            days = f"{part.before} day{'s' if part.before > 1 else ''}"
            text = f"the day {days} before the last day of the month"
            return f"the weekday nearest {text}" if part.to_weekday else text
        case _:
            raise AssertionError(part)


def _of_week(part: Part) -> str:
    match part:
        case Span():
            return _span(part, _day, "day", 1, 7)
        case LastOf():
            return f"the last {_day(part.day_of_week)} of the month"
        case NthOf():
            return f"the {_NTH[part.nth - 1]} {_day(part.day_of_week)} of the month"
        case _:
            raise AssertionError(part)


def _span(span: Span, named: Callable[[int], str], unit: str, first: int, circle: int) -> str:
    if span.step > 1:
        if circle and len(values := list(span.values(first, circle))) <= _MAX_TIMES:
            return _list([named(value) for value in values])
        return f"every {_ordinal(span.step)} {unit} from {named(span.low)} to {named(span.high)}"
    if span.low == span.high:
        return named(span.low)
    return f"{named(span.low)} to {named(span.high)}"


def _month(month: int) -> str:
    return _MONTHS[month - 1]


def _day(day_of_week: int) -> str:
    return _DAYS[day_of_week - 1]


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _list(said: Sequence[str]) -> str:
    *others, last = said
    return f"{', '.join(others)} and {last}" if others else last
