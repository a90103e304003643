"""Lengths of time in specifications of streams: ISO 8601 durations, and granularities.

Pure. A *duration* is a fixed length, so `P1D` is 24 hours and `P1M` is refused, as Druid refuses it
where a length is needed. A *granularity* cuts time into chunks on the calendar of UTC; `NONE` keeps
milliseconds, `ALL` is one chunk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

_DURATION: Final = re.compile(
    r"P(?=[0-9T])(?:(?P<weeks>[0-9]{1,6})W)?(?:(?P<days>[0-9]{1,7})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,8})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,10}(?:\.[0-9]{1,3})?)S)?)?"
)
_CALENDAR: Final = re.compile(r"P(?=[0-9])(?:(?P<years>[0-9]{1,4})Y)?(?:(?P<months>[0-9]{1,5})M)?")
_MONTH: Final = timedelta(days=30)


class PeriodError(ValueError):
    """A text that is no duration or granularity; the message names the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granularity:
    """The chunks of time of `granularitySpec`: `months` of the calendar, or a fixed `length`.

    Both are nothing for NONE and ALL, which `name` tells apart.
    """

    name: str
    months: int = 0
    length: timedelta = timedelta()

    @property
    def rough_length(self) -> timedelta:
        """The length for comparisons, a month as 30 days; ALL is longest, NONE shortest."""
        if self.name == "ALL":
            return timedelta.max
        return self.months * _MONTH + self.length


_NAMED: Final[Mapping[str, Granularity]] = {
    each.name: each
    for each in (
        Granularity(name="NONE"),
        Granularity(name="ALL"),
        Granularity(name="SECOND", length=timedelta(seconds=1)),
        Granularity(name="MINUTE", length=timedelta(minutes=1)),
        Granularity(name="FIVE_MINUTE", length=timedelta(minutes=5)),
        Granularity(name="TEN_MINUTE", length=timedelta(minutes=10)),
        Granularity(name="FIFTEEN_MINUTE", length=timedelta(minutes=15)),
        Granularity(name="THIRTY_MINUTE", length=timedelta(minutes=30)),
        Granularity(name="HOUR", length=timedelta(hours=1)),
        Granularity(name="SIX_HOUR", length=timedelta(hours=6)),
        Granularity(name="EIGHT_HOUR", length=timedelta(hours=8)),
        Granularity(name="DAY", length=timedelta(days=1)),
        Granularity(name="WEEK", length=timedelta(weeks=1)),
        Granularity(name="MONTH", months=1),
        Granularity(name="QUARTER", months=3),
        Granularity(name="YEAR", months=12),
    )
}


def read_duration(text: str) -> timedelta:
    """Read a fixed length such as `PT1H`, `P1D` or `PT0.5S`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        if _CALENDAR.fullmatch(text):
            raise PeriodError("months and years have no fixed length; write days, as in P30D")
        raise PeriodError("write an ISO 8601 duration, as in PT1H, PT30S or P1D")
    try:
        return timedelta(**{name: float(part or 0) for name, part in found.groupdict().items()})
    except OverflowError as error:
        raise PeriodError("it is longer than any time") from error


def read_granularity(value: Any) -> Granularity:
    """Read a name such as `HOUR`, or an object of type `period` or `duration`, in UTC."""
    if isinstance(value, str):
        named = _NAMED.get(value.upper())
        if named is not None:
            return named
        raise PeriodError(f"write one of {', '.join(_NAMED)}, or an object of type period")
    if not isinstance(value, Mapping):
        raise PeriodError("write a name such as HOUR, or an object of type period")
    match value.get("type"):
        case "all" | "none" as name:
            return _NAMED[str(name).upper()]
        case "duration":
            return _of_milliseconds(value.get("duration"))
        case "period":
            if value.get("timeZone") not in {None, "UTC", "Etc/UTC", "Z"}:
                raise PeriodError("chunks are cut in UTC; leave out timeZone")
            if value.get("origin") is not None:
                raise PeriodError("an origin is not supported; leave it out")
            return _of_period(value.get("period"))
        case _:
            raise PeriodError("its type must be period, duration, all or none")


def _of_milliseconds(value: Any) -> Granularity:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 10**13:
        raise PeriodError("its duration must be a number of milliseconds, 1 or more")
    length = timedelta(milliseconds=value)
    return _same_length(Granularity(name=f"PT{length.total_seconds():g}S", length=length))


def _of_period(value: Any) -> Granularity:
    if not isinstance(value, str):
        raise PeriodError("its period must be a text such as PT1H or P1M")
    found = _CALENDAR.fullmatch(value)
    if found is not None:
        months = int(found["years"] or 0) * 12 + int(found["months"] or 0)
        read = Granularity(name=value, months=months)
    else:
        read = Granularity(name=value, length=read_duration(value))
    if not read.rough_length:
        raise PeriodError("its period must be longer than nothing")
    return _same_length(read)


def _same_length(read: Granularity) -> Granularity:
    """Return the named granularity of the same chunks, so that equal chunks are equal values."""
    chunks = (read.months, read.length)
    return next((each for each in _NAMED.values() if (each.months, each.length) == chunks), read)
