"""Reads and prints times by Joda's patterns, as columns of Spark.

`common.model.streams.joda` turns a pattern into one regular expression. Here that expression splits
a text into its fields, and arithmetic on whole numbers makes microseconds since 1970 of them. No
step raises for a text: a text that Joda refuses becomes null, as a time beyond the years from 0 to
10,000 does. The session has to be in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from common.model.streams.joda import DAYS, MONTHS, SHORT, SHORT_ZONES, Field, Part, TimeReader
from common.model.streams.zones import JODA_ZONES

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_LEAST_YEAR: Final = 0
_MOST_YEAR: Final = 10_000
_DEFAULT_YEAR: Final = 2000
"""Joda's year for a month or a day without a year."""
_LEAP_CYCLE: Final = 400
_FIRST_OF_1970: Final = 719_468 + 146_097
"""Days from the first of March of the year -400 to the first of January 1970."""
_WINDOW: Final = 80
"""The number of years between the first year that two digits can mean and the present year."""
_MILLIS_DIGITS: Final = 3
_PADDING: Final = r"[\x00-\x20]*+"
_UNREAD: Final = "(?s:.++)"


def micros_read(
    written: Column, reader: TimeReader, *, trimmed: bool, this_year: Column | None = None
) -> Column:
    """Return the time that a text stands for.

    `trimmed` allows spaces and quotes around the text. `this_year` is a parameter for tests.
    """
    split = _split(written, reader, trimmed=trimmed)
    return _with(split, lambda parts: _Read(parts, reader, this_year).micros())


def printed(micros: Column, parts: Sequence[Part]) -> Column:
    """Return the text of a time in UTC."""
    moment = f.timestamp_micros(micros)
    form: list[str] = []
    values: list[Column] = []
    for part in parts:
        if not part.letter:
            form.append(part.text.replace("%", "%%"))
            continue
        directive, value = _piece(moment, part)
        form.append(directive)
        values.append(value)
    # A format would print a missing time as the word null.
    return f.when(micros.isNotNull(), f.format_string("".join(form), *values))


def _split(written: Column, reader: TimeReader, *, trimmed: bool) -> Column:
    """Return the texts of the fields as a list; a field that the text does not have is empty.

    One replacement splits a text. A text that the expression does not match becomes separators
    alone, by the second branch.
    """
    expression, first = rf"\A(?:{reader.expression})\z", 1
    if trimmed:
        # Druid trims before Joda reads, so that the text itself does not end with a space.
        expression = (
            rf'\A{_PADDING}("?+){_PADDING}(?:{reader.expression})(?<![\x00-\x20]){_PADDING}'
            rf"\1{_PADDING}\z"
        )
        first = 2
    groups = "|".join(f"${first + index}" for index in range(len(reader.fields)))
    replaced = f.regexp_replace(written, f.lit(f"{expression}|{_UNREAD}"), f.lit(groups))
    return f.split(replaced, "[|]", -1)


def _with(value: Column, compute: Callable[[Column], Column]) -> Column:
    """Return what is computed of a value that is used often, and is computed once."""
    return f.get(f.transform(f.array(value), compute), 0)


class _Read:
    """The fields of a text as numbers. What `valid` holds has to be true of a time."""

    def __init__(self, parts: Column, reader: TimeReader, this_year: Column | None) -> None:
        self._texts = {
            field: f.when(f.get(parts, index) != "", f.get(parts, index))
            for index, field in enumerate(reader.fields)
        }
        self._this_year = f.year(f.current_timestamp()) if this_year is None else this_year
        self._valid: list[Column] = []

    def micros(self) -> Column:
        texts = self._texts
        date = [self._year(), self._month(), self._number(Field.DAY, default=1)]
        date += [
            self._number(Field.DAY_OF_YEAR, default=None),
            self._number(Field.WEEK, default=1),
            self._weekday(),
        ]
        clock = self._time_of_day()
        if Field.ZONE in texts:
            self._valid.append(_is_one_of(texts[Field.ZONE], JODA_ZONES))
        if Field.OFFSET in texts:
            clock -= self._offset()
        numbers = [*date, f.when(reduce(and_, self._valid), clock)]
        local = _with(f.array(*numbers), self._sum)
        if Field.OFFSET in texts:
            return local
        if Field.ZONE in texts:
            return _with(local, lambda wall: _in_zone(wall, texts[Field.ZONE]))
        if Field.SHORT_ZONE in texts:
            zone = _named_zone(texts[Field.SHORT_ZONE])
            return _with(local, lambda wall: _in_zone(wall, zone))
        return local

    def _sum(self, numbers: Column) -> Column:
        """Return the microseconds of a date and a clock."""
        year, month, day, ordinal, week, weekday, clock = (f.get(numbers, at) for at in range(7))
        in_years = year.between(_LEAST_YEAR, _MOST_YEAR)

        def of_week() -> Column:
            start = _week_start(year, week) + weekday - 1
            return f.when(in_years & _is_week(year, week), start)

        def of_year() -> Column:
            start = _days_of(year, f.lit(1), f.lit(1)) + ordinal - 1
            return f.when(in_years & _is_day_of_year(year, ordinal), start)

        def of_month() -> Column:
            return f.when(in_years & _is_day(year, month, day), _days_of(year, month, day))

        texts = self._texts
        if Field.WEEKYEAR in texts or Field.SHORT_WEEKYEAR in texts:
            return of_week() * _DAY + clock
        days = of_year() if Field.DAY_OF_YEAR in texts else of_month()
        if Field.WEEKDAY in texts or Field.WEEKDAY_NAME in texts:
            # Joda goes to the day of this name in the week of the date.
            days = _with(days, lambda date: date - _weekday_of(date) + weekday - 1)
        return days * _DAY + clock

    def _number(self, field: Field, *, default: int | None) -> Column:
        """Return the number of a field; the default if the pattern has no such field.

        A number of 32 bits keeps the arithmetic within 64 bits, beyond which it would raise.
        """
        if field not in self._texts:
            return f.lit(default).cast("bigint")
        return self._texts[field].try_cast("int").cast("bigint")

    def _bounded(self, field: Field, least: int, most: int) -> Column:
        number = self._number(field, default=least)
        self._valid.append(number.between(least, most))
        return number

    def _year(self) -> Column:
        texts = self._texts
        if Field.YEAR_OF_ERA in texts:
            if Field.ERA in texts:
                self._valid.append(f.lower(texts[Field.ERA]).isin("ad", "ce"))
            return self._bounded(Field.YEAR_OF_ERA, 1, _MOST_YEAR)
        if Field.SHORT_WEEKYEAR in texts:
            return self._short_year(Field.SHORT_WEEKYEAR, Field.WEEKYEAR)
        if Field.SHORT_YEAR in texts:
            return self._short_year(Field.SHORT_YEAR, Field.YEAR)
        if Field.WEEKYEAR in texts:
            return self._number(Field.WEEKYEAR, default=None)
        is_date = texts.keys() & {Field.MONTH, Field.MONTH_NAME, Field.DAY, Field.DAY_OF_YEAR}
        return self._number(Field.YEAR, default=_DEFAULT_YEAR if is_date else 1970)

    def _short_year(self, short: Field, whole: Field) -> Column:
        year = self._in_window(self._number(short, default=None))
        if whole in self._texts:
            year = f.coalesce(year, self._number(whole, default=None))
        return year

    def _month(self) -> Column:
        if Field.MONTH_NAME in self._texts:
            return _position(self._texts[Field.MONTH_NAME], MONTHS)
        return self._number(Field.MONTH, default=1)

    def _in_window(self, digits: Column) -> Column:
        first = self._this_year.cast("bigint") - _WINDOW
        return first + f.pmod(digits - first, f.lit(100))

    def _weekday(self) -> Column:
        if Field.WEEKDAY_NAME in self._texts:
            return _position(self._texts[Field.WEEKDAY_NAME], DAYS)
        return self._bounded(Field.WEEKDAY, 1, 7)

    def _time_of_day(self) -> Column:
        minute = self._bounded(Field.MINUTE, 0, 59)
        second = self._bounded(Field.SECOND, 0, 59)
        micros = self._hour() * _HOUR + minute * _MINUTE + second * _SECOND
        if Field.FRACTION in self._texts:
            micros += _digits(self._texts[Field.FRACTION], 3) * 1_000
        return micros

    def _hour(self) -> Column:
        texts = self._texts
        if Field.HOUR in texts:
            # Joda sets the hour last, and overwrites a half of the day.
            return self._bounded(Field.HOUR, 0, 23)
        if Field.CLOCK_HOUR in texts:
            return f.pmod(self._bounded(Field.CLOCK_HOUR, 1, 24), f.lit(24))
        hour = f.lit(0).cast("bigint")
        if Field.HALF_HOUR in texts:
            hour = self._bounded(Field.HALF_HOUR, 0, 11)
        elif Field.HALF_CLOCK_HOUR in texts:
            hour = f.pmod(self._bounded(Field.HALF_CLOCK_HOUR, 1, 12), f.lit(12))
        if Field.HALF in texts:
            hour += (f.lower(texts[Field.HALF]) == "pm").cast("bigint") * 12
        return hour

    def _offset(self) -> Column:
        """Return the microseconds of an offset; `Z` leaves its group empty."""
        written = f.coalesce(self._texts[Field.OFFSET], f.lit("+00"))
        digits = f.rpad(f.translate(written, "+-:.,", ""), 9, "0")

        def number(start: int, length: int) -> Column:
            return f.substring(digits, start, length).try_cast("bigint")

        micros = (
            number(1, 2) * _HOUR
            + number(3, 2) * _MINUTE
            + number(5, 2) * _SECOND
            + number(7, 3) * 1_000
        )
        return f.when(f.startswith(written, f.lit("-")), -micros).otherwise(micros)


def _in_zone(local: Column, zone: Column) -> Column:
    """Return the time of a wall clock; null for a wall time that the zone skips.

    A wall time that occurs twice is the first. A cast reads it, since Spark's conversions
    raise for a zone that its Java does not know.
    """
    wall = f.concat_ws(" ", f.timestamp_micros(local).cast("string"), zone)
    moment = f.when(local.isNotNull(), wall.try_cast("timestamp"))
    again = f.from_utc_timestamp(moment, zone)
    return f.when(f.unix_micros(again) == local, f.unix_micros(moment))


def _is_one_of(name: Column, names: Sequence[str]) -> Column:
    return f.find_in_set(name, f.lit(",".join(names))) > 0


def _named_zone(name: Column) -> Column:
    pairs = (f.lit(each) for pair in SHORT_ZONES.items() for each in pair)
    return f.element_at(f.create_map(*pairs), name)


def _position(name: Column, names: Sequence[str]) -> Column:
    """Return the place of a name by its first letters; the first place is 1."""
    joined = "".join(each[:SHORT] for each in names).lower()
    found = f.position(f.lower(f.substring(name, 1, SHORT)), f.lit(joined))
    return _div(found + (SHORT - 1), SHORT)


def _digits(text: Column, count: int) -> Column:
    """Return the first digits of a fraction as a number, filled up with zeros."""
    return f.rpad(f.substring(text, 1, count), count, "0").try_cast("bigint")


def _div(number: Column, divisor: int) -> Column:
    return f.call_function("div", number, f.lit(divisor))


def _days_of(year: Column, month: Column, day: Column) -> Column:
    """Return the days from 1970 to a date, by years that start in March and end with leap days."""
    early = (month <= 2).cast("bigint")
    years = year + _LEAP_CYCLE - early
    of_year = _div((month + early * 12 - 3) * 153 + 2, 5) + day - 1
    leaps = _div(years, 4) - _div(years, 100) + _div(years, 400)
    return years * 365 + leaps + of_year - _FIRST_OF_1970


def _is_leap(year: Column) -> Column:
    return (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))


def _is_day(year: Column, month: Column, day: Column) -> Column:
    length = (
        f.when(month == 2, 28 + _is_leap(year).cast("bigint"))
        .when(month.isin(4, 6, 9, 11), 30)
        .otherwise(31)
    )
    return month.between(1, 12) & (day >= 1) & (day <= length)


def _is_day_of_year(year: Column, day: Column) -> Column:
    return (day >= 1) & (day <= 365 + _is_leap(year).cast("bigint"))


def _weekday_of(days: Column) -> Column:
    """Return the days since Monday; the first day of 1970 was a Thursday."""
    return f.pmod(days + 3, f.lit(7))


def _week_start(year: Column, week: Column) -> Column:
    """Return the Monday of a week; the fourth of January is in the first week of its year."""
    fourth = _days_of(year, f.lit(1), f.lit(4))
    return fourth - _weekday_of(fourth) + (week - 1) * 7


def _is_week(year: Column, week: Column) -> Column:
    return (week >= 1) & (_week_start(year, week) < _week_start(year + 1, f.lit(1)))


def _piece(moment: Column, part: Part) -> tuple[str, Column]:
    """Return the directive of a format for a run of letters, with its value."""
    count = part.count
    if part.letter in _PRINTED:
        return f"%0{count}d", _PRINTED[part.letter](moment).cast("bigint")
    match part.letter:
        case "y" | "Y" | "x":
            day = _thursday(moment) if part.letter == "x" else moment
            year = f.year(day).cast("bigint")
            return f"%0{count}d", year % 100 if count == 2 else year
        case "M" if count < SHORT:
            return f"%0{count}d", f.month(moment).cast("bigint")
        case "M":
            return "%s", _name(MONTHS, f.month(moment) - 1, count)
        case "E":
            return "%s", _name(DAYS, f.weekday(moment), count)
        case "a":
            return "%s", f.when(f.hour(moment) < 12, "AM").otherwise("PM")
        case "S":
            millis = _div(f.pmod(f.unix_micros(moment), f.lit(_SECOND)), 1_000)
            lacking = count - _MILLIS_DIGITS
            return f"%0{count}d", millis * 10**lacking if lacking > 0 else _div(
                millis, 10**-lacking
            )
        case "Z":
            return "%s", f.lit({1: "+0000", 2: "+00:00"}.get(count, "UTC"))
        case "z":
            return "%s", f.lit("UTC" if count <= SHORT else "Coordinated Universal Time")
        case _:
            return "%s", f.lit("AD")


def _name(names: Sequence[str], place: Column, count: int) -> Column:
    shown = [each if count > SHORT else each[:SHORT] for each in names]
    return f.get(f.array(*map(f.lit, shown)), place)


def _thursday(moment: Column) -> Column:
    """Return the Thursday of a week, which is in the year of the week."""
    return f.date_add(f.to_date(moment), 3 - f.weekday(moment))


_PRINTED: Final[Mapping[str, Callable[[Column], Column]]] = {
    "C": lambda moment: _div(f.year(moment), 100),
    "w": f.weekofyear,
    "e": lambda moment: f.weekday(moment) + 1,
    "d": f.dayofmonth,
    "D": f.dayofyear,
    "H": f.hour,
    "k": lambda moment: f.pmod(f.hour(moment) - 1, f.lit(24)) + 1,
    "K": lambda moment: f.hour(moment) % 12,
    "h": lambda moment: f.pmod(f.hour(moment) - 1, f.lit(12)) + 1,
    "m": f.minute,
    "s": f.second,
}
"""The letters of plain numbers."""
