"""Reads and prints times by Joda's patterns, as columns of Spark.

`common.model.streams.joda` turns a pattern into one regular expression, and into the text of ISO
8601 to replace a match by. Spark's cast reads that text. A mark in front of each text keeps it from
the cast if the expression does not match. No step raises for a text: a text that Joda refuses
becomes null, as a time beyond the years from 0 to 10,000 does. The session has to be in UTC.

All steps are in generated code. The functions of lists that take a lambda are not, and make a row
ten times as slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from common.model.streams.joda import DAYS, MONTHS, WINDOW, Part, TimeReader
from common.model.streams.time_tokens import SHORT

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_WEEK: Final = 7
_WINDOW: Final = 80
"""The number of years between the first year that two digits can mean and the present year."""
_MILLIS_DIGITS: Final = 3
_PADDING: Final = r"[\x00-\x20]*+"
_MARK: Final = "?"
_ISO: Final = re.compile(r"yyyy'-'MM'-'dd'[T ]'HH':'mm':'ss('\.'SSS)?('Z')?")
"""The patterns of ISO 8601; a cast reads it faster than the parser by pattern."""
_BETWEEN: Final = ";"
"""The sign between the parts of a replacement; no part has it."""


def micros_read(
    written: Column, reader: TimeReader, *, trimmed: bool, this_year: Column | None = None
) -> Column:
    """Return the time that a text stands for.

    `trimmed` allows spaces and quotes around the text. `this_year` is a parameter for tests.
    """
    micros = _rewritten_micros(written, reader, trimmed=trimmed, this_year=this_year)
    for usual in reversed(reader.usual):
        parsed = (
            written.try_cast("timestamp")
            if _ISO.fullmatch(usual.spark_pattern)
            else f.try_to_timestamp(written, f.lit(usual.spark_pattern))
        )
        is_usual = f.rlike(written, f.lit(rf"\A{usual.expression}\z"))
        micros = f.when(is_usual, f.unix_micros(parsed)).otherwise(micros)
    return micros


def _rewritten_micros(
    written: Column, reader: TimeReader, *, trimmed: bool, this_year: Column | None
) -> Column:
    rewritten = _rewriting(written, reader, trimmed=trimmed, this_year=this_year)
    if reader.date:
        return _moved(rewritten, reader)
    if reader.offset:
        return _with_offset(rewritten, reader)
    if reader.zone:
        local, zone = _parts(rewritten(f"{reader.moment}{_BETWEEN}{reader.zone}"), 2)
        return _in_zone(_micros(local), zone)
    return _micros(rewritten(reader.moment))


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


def _rewriting(
    written: Column, reader: TimeReader, *, trimmed: bool, this_year: Column | None
) -> Callable[[str], Column]:
    """Return a function that rewrites the text in a form of the reader."""
    expression = rf"()(?:{reader.expression})"
    if trimmed:
        # Druid trims before Joda reads, so that the text itself does not end with a space.
        expression = (
            rf'{_PADDING}("?+){_PADDING}(?:{reader.expression})(?<![\x00-\x20]){_PADDING}'
            rf"\1{_PADDING}"
        )
    table, length = [f.lit(f"{_MARK}{reader.table}")], len(reader.table) + 1
    if reader.has_window:
        year = f.year(f.current_timestamp()) if this_year is None else this_year
        table, length = [f.lit(_MARK), _window(year), f.lit(reader.table)], length + WINDOW
    elif not reader.table:
        table, length = [], 0
    whole = rf"\A\{_MARK}{expression}{reader.lookups}.{{{length}}}\z"
    marked = f.concat(f.lit(_MARK), written, *table)
    return lambda form: f.regexp_replace(marked, f.lit(whole), f.lit(form))


def _window(this_year: Column) -> Column:
    """Return the window of two-digit years; Spark computes it once, while it plans."""
    first = this_year - _WINDOW
    century, tens, ones = _div(first, 100), _div(first, 10) % 10, first % 10

    def digits(beginning: Column, width: int) -> Column:
        above = f.substring(f.lit("0123456789"), beginning.cast("int") + 1, f.lit(10))
        return f.rpad(above, width, "-")

    return f.concat(
        f.lpad(century.cast("string"), 2, "0"),
        f.lpad((century + 1).cast("string"), 2, "0"),
        *(f.lit(":"), digits(tens + 1, 9)),
        *(f.lit(":"), tens.cast("string")),
        *(f.lit(":"), digits(ones, 10), f.lit(":")),
    )


def _micros(moment: Column) -> Column:
    return f.unix_micros(moment.try_cast("timestamp"))


def _parts(rewritten: Column, count: int) -> tuple[Column, ...]:
    found = f.split(rewritten, _BETWEEN)
    return tuple(f.get(found, at) for at in range(count))


def _with_offset(rewritten: Callable[[str], Column], reader: TimeReader) -> Column:
    # Spark knows offsets of less than 18 hours, without fractions of seconds.
    local, offset = _parts(rewritten(f"{reader.moment}{_BETWEEN}{reader.offset}"), 2)
    return f.coalesce(
        _micros(rewritten(f"{reader.moment}{reader.offset}")), _micros(local) - _offset(offset)
    )


def _moved(rewritten: Callable[[str], Column], reader: TimeReader) -> Column:
    """Return the time of a date that is moved: to the day of a year or a week, or to a weekday.

    The parts are used in many places. Spark computes them once, because no condition surrounds
    them.
    """
    form = (
        *(reader.moment, reader.offset, reader.date),
        *(reader.ordinal, reader.week, reader.weekday, reader.zone),
    )
    moment, offset, day, *numbers, zone = _parts(rewritten(_BETWEEN.join(form)), len(form))
    date = day.try_cast("date")
    ordinal, week, weekday = (each.try_cast("int") for each in numbers)
    if reader.week:
        monday = f.date_add(date, (week - 1) * _WEEK - f.weekday(date))
        # The Thursday of a week is in the year of the week.
        is_day = f.year(f.date_add(monday, 3)) == f.year(date)
        moved = f.date_add(monday, weekday - 1)
    else:
        moved, is_day = date, date.isNotNull()
        if reader.ordinal:
            moved = f.date_add(date, ordinal - 1)
            is_day = ordinal.between(1, 366) & (f.year(moved) == f.year(date))
        if reader.weekday:
            # Joda goes to the day of this name in the week of the date.
            moved = f.date_add(moved, weekday - 1 - f.weekday(moved))
    local = _micros(moment) + f.unix_date(moved).cast("bigint") * f.when(is_day, f.lit(_DAY))
    if reader.offset:
        return local - _offset(offset)
    return _in_zone(local, zone) if reader.zone else local


def _offset(written: Column) -> Column:
    """Return the microseconds of an offset; `Z` leaves its group empty."""
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
    wall = f.concat(f.timestamp_micros(local).cast("string"), f.lit(" "), zone)
    moment = wall.try_cast("timestamp")
    again = f.from_utc_timestamp(moment, zone)
    return f.unix_micros(moment) * f.when(f.unix_micros(again) == local, f.lit(1))


def _div(number: Column, divisor: int) -> Column:
    return f.call_function("div", number, f.lit(divisor))


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
