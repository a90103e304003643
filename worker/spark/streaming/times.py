"""Times of rows as columns: microseconds since 1970, read by a `timestampSpec`, cut into chunks.

A time is a number while rows are read, since Spark's casts of numbers to times raise where a number
is too large. What can't be read is null, and so is what lies beyond the years that chunks can have.
The session has to be in UTC (`worker.spark.streaming.rows.SETTINGS`).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from common.model.streams.chunks import EPOCH, length_of, microseconds, origin_of, usable_times
from common.model.streams.periods import Granularity
from common.model.streams.spec import TimestampSpec
from worker.spark.streaming import joda

MILLI: Final = 1_000
SECOND: Final = 1_000_000
_MONTHS_A_YEAR: Final = 12
_NUMBER: Final = r"^[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?$"
_YEAR_LENGTH: Final = 4
_TO_MINUTES: Final = r"^([0-9-]{10}[T ][0-9]{2}:[0-9]{2})(Z|[+-][0-9:]+)?$"
_TO_HOURS: Final = r"^([0-9-]{10}[T ][0-9]{2})(Z|[+-][0-9:]+)?$"


def micros_of(written: Column, spec: TimestampSpec) -> Column:
    """Return the time that a text stands for; null for none, and for a text that is no time.

    `missing_value` is not for texts that are no times, but for rows without one.
    """
    if spec.pattern is not None:
        found = joda.micros_read(written, spec.pattern, trimmed=True)
    else:
        found = _named(written, spec.format)
    if spec.missing_value is None:
        return found
    missing = f.lit(microseconds(spec.missing_value)).cast("bigint")
    return f.when(written.isNull(), missing).otherwise(found)


def iso_micros(written: Column) -> Column:
    """Return the time of an ISO 8601 text; without a zone it is in UTC."""
    trimmed = f.trim(written)
    # Spark would read a time without a date as one of today.
    is_year = (f.length(trimmed) == _YEAR_LENGTH) & ~f.contains(trimmed, f.lit(":"))
    has_date = (_behind_year(trimmed) == "-") | is_year
    # Nor does it read a time of hours and minutes, or of hours alone.
    read = f.coalesce(
        trimmed.try_cast("timestamp"),
        f.regexp_replace(trimmed, _TO_MINUTES, "$1:00$2").try_cast("timestamp"),
        f.regexp_replace(trimmed, _TO_HOURS, "$1:00:00$2").try_cast("timestamp"),
    )
    return f.when(has_date, f.unix_micros(read))


def usable(micros: Column, granularity: Granularity) -> Column:
    """Return the time, null if its chunk would leave the years from 1 to 9999."""
    bounds = usable_times(granularity)
    inside = (micros >= microseconds(bounds.start)) & (micros < microseconds(bounds.end))
    return f.when(inside, micros)


def chunk_start(micros: Column, granularity: Granularity) -> Column:
    """Return the start of the chunk with a time that is usable."""
    if not granularity.months:
        length = length_micros(granularity)
        return micros - f.pmod(micros - microseconds(origin_of(granularity)), f.lit(length))
    moment = f.timestamp_micros(micros)
    months = (f.year(moment) - EPOCH.year) * _MONTHS_A_YEAR + f.month(moment) - 1
    first = months - f.pmod(months, f.lit(granularity.months))
    return month_start(first)


def month_start(months: Column) -> Column:
    """Return the first moment of the month so many after January 1970."""
    year = f.floor(months / _MONTHS_A_YEAR).cast("int") + EPOCH.year
    month = f.pmod(months, f.lit(_MONTHS_A_YEAR)).cast("int") + 1
    return f.unix_micros(f.make_date(year, month, f.lit(1)).cast("timestamp"))


def chunk_end(start: Column, granularity: Granularity) -> Column:
    """Return the end of the chunk with this start."""
    if not granularity.months:
        return start + length_micros(granularity)
    moment = f.timestamp_micros(start)
    months = (f.year(moment) - EPOCH.year) * _MONTHS_A_YEAR + f.month(moment) - 1
    return month_start(months + granularity.months)


def length_micros(granularity: Granularity) -> int:
    """Return the fixed length of chunks in microseconds."""
    return microseconds(EPOCH + length_of(granularity))


def _named(written: Column, format_: str) -> Column:
    match format_:
        case "iso":
            return iso_micros(written)
        case "posix":
            return _scaled(written, SECOND)
        case "millis":
            return _scaled(written, MILLI)
        case "micro":
            return _scaled(written, 1)
        case "nano":
            nanos = _whole(written)
            return f.call_function("div", nanos - f.pmod(nanos, f.lit(MILLI)), f.lit(MILLI))
        case "ruby":
            return (written.try_cast("double") * MILLI).try_cast("bigint") * MILLI
        case _:
            # Dates are most of them, and need no regular expression to be told from numbers, which
            # have their `-` in front or behind an `e`.
            trimmed = f.trim(written)
            last_of_year = f.substring(trimmed, _YEAR_LENGTH, 1)
            is_date = last_of_year.between("0", "9") & (_behind_year(trimmed) == "-")
            millis = ~is_date & f.regexp_like(written, f.lit(_NUMBER))
            return f.when(millis, _scaled(written, MILLI)).otherwise(iso_micros(written))


def _behind_year(trimmed: Column) -> Column:
    return f.substring(trimmed, _YEAR_LENGTH + 1, 1)


def _scaled(written: Column, factor: int) -> Column:
    exact = f.try_multiply(written.try_cast("bigint"), f.lit(factor).cast("bigint"))
    # As in Druid, a number with a fraction counts as its whole part.
    whole = written.try_cast("double").try_cast("bigint")
    return f.coalesce(exact, f.try_multiply(whole, f.lit(factor).cast("bigint")))


def _whole(written: Column) -> Column:
    return f.coalesce(written.try_cast("bigint"), written.try_cast("double").try_cast("bigint"))
