"""Cuts time into the chunks of a granularity, on the calendar of UTC.

Pure. Chunks of months are counted from January 1970, whole weeks from a Monday, all other lengths
from the beginning of 1970. `worker.spark.streaming.times` does the same with Spark's columns.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from common.model.intervals import Interval
from common.model.streams.periods import Granularity

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MONDAY: Final = datetime(1970, 1, 5, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
MICROSECOND: Final = timedelta(microseconds=1)
_WEEK: Final = timedelta(weeks=1)
_MONTHS_A_YEAR: Final = 12
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


def origin_of(granularity: Granularity) -> datetime:
    """Return a moment at which a chunk begins."""
    return FIRST_MONDAY if granularity.length and not granularity.length % _WEEK else EPOCH


def length_of(granularity: Granularity) -> timedelta:
    """Return the fixed length of chunks; that of NONE is a millisecond, the least that is kept."""
    return granularity.length or MILLISECOND


def chunk_of(moment: datetime, granularity: Granularity) -> Interval:
    """Return the chunk with a moment; `OverflowError` if it leaves the years from 1 to 9999."""
    if granularity.months:
        months = (moment.year - EPOCH.year) * _MONTHS_A_YEAR + moment.month - 1
        first = months - months % granularity.months
        return Interval(_month(first), _month(first + granularity.months))
    origin, length = origin_of(granularity), length_of(granularity)
    start = moment - (moment - origin) % length
    return Interval(start, start + length)


def usable_times(granularity: Granularity) -> Interval:
    """Return the time of which every chunk lies in the years from 1 to 9999."""
    try:
        start = chunk_of(_FIRST, granularity).start
    except OverflowError:
        # The chunk before it leaves the calendar, and ends where the first whole one begins.
        start = _next(_FIRST, granularity)
    end = _LAST
    while True:
        try:
            return Interval(start, chunk_of(end, granularity).end)
        except OverflowError:
            end = _before(end, granularity)


def microseconds(moment: datetime) -> int:
    """Return the microseconds from 1970 to a moment."""
    return (moment - EPOCH) // MICROSECOND


def moment_at(micros: int) -> datetime:
    """Return the moment so many microseconds after 1970."""
    return EPOCH + micros * MICROSECOND


def _month(count: int) -> datetime:
    years, month = divmod(count, _MONTHS_A_YEAR)
    year = EPOCH.year + years
    if not _FIRST.year <= year <= _LAST.year:
        raise OverflowError(f"the year {year} is beyond the calendar")
    return datetime(year, month + 1, 1, tzinfo=UTC)


def _next(moment: datetime, granularity: Granularity) -> datetime:
    """Return a chunk's end of which the chunk's start is beyond the calendar."""
    if granularity.months:
        months = (moment.year - EPOCH.year) * _MONTHS_A_YEAR + moment.month - 1
        return _month(months - months % granularity.months + granularity.months)
    length = length_of(granularity)
    return moment + (length - (moment - origin_of(granularity)) % length)


def _before(moment: datetime, granularity: Granularity) -> datetime:
    """Return a moment in the chunk before."""
    if granularity.months:
        months = (moment.year - EPOCH.year) * _MONTHS_A_YEAR + moment.month - 1
        return _month(months - months % granularity.months) - MICROSECOND
    length = length_of(granularity)
    return moment - (moment - origin_of(granularity)) % length - MICROSECOND
