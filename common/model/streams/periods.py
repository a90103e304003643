"""Lengths of time in specifications of streams: ISO 8601 durations, and granularities.

Pure. A *duration* is a fixed length, so `P1D` is 24 hours and `P1M` is refused, as Druid refuses it
where a length is needed. A *granularity* cuts time into chunks on the calendar of UTC; `NONE` keeps
milliseconds, `ALL` is one chunk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

FOREVER: Final = timedelta(days=730_000)
"""The longest length, 2,000 years: it can be added to the present time and subtracted from it."""
_DURATION: Final = re.compile(
    r"P(?=[0-9T])(?:(?P<weeks>[0-9]{1,10})W)?(?:(?P<days>[0-9]{1,10})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,10})H)?(?:(?P<minutes>[0-9]{1,10})M)?"
    r"(?:(?P<seconds>[0-9]{1,19}(?:\.[0-9]{1,3})?)S)?)?"
)
_UNITS: Final[Mapping[str, int]] = {
    "weeks": 604_800_000,
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
}
_MOST: Final = 2**31 - 1
_CALENDAR: Final = re.compile(r"P(?=[0-9])(?:(?P<years>[0-9]{1,4})Y)?(?:(?P<months>[0-9]{1,5})M)?")
_MONTH: Final = timedelta(days=30)
_KEYS: Final = ("type", "period", "timeZone", "origin", "duration")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
    """Read a fixed length such as `PT1H`, `P1D` or `PT0.5S`; none is longer than `FOREVER`.

    As in Joda-Time, a number is 2,147,483,647 at most. Seconds may be more, because that is how
    Druid prints long durations.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        if _CALENDAR.fullmatch(text):
            raise PeriodError("months and years have no fixed length; write days, as in P30D")
        raise PeriodError("write an ISO 8601 duration, as in PT1H, PT30S or P1D")
    milliseconds = 0
    for name, unit in _UNITS.items():
        whole, _, fraction = (found[name] or "0").partition(".")
        if name != "seconds" and int(whole) > _MOST:
            raise PeriodError(f"{whole} {name} are more than {_MOST}")
        milliseconds += int(whole) * unit + int(fraction.ljust(3, "0") or 0)
    return timedelta(milliseconds=min(milliseconds, FOREVER // timedelta(milliseconds=1)))


def read_granularity(value: Any) -> Granularity:
    """Read a name such as `HOUR`, or an object of type `period` or `duration`, in UTC."""
    if isinstance(value, str):
        named = _NAMED.get(value.upper())
        if named is not None:
            return named
        raise PeriodError(f"write one of {', '.join(_NAMED)}, or an object of type period")
    if not isinstance(value, Mapping):
        raise PeriodError("write a name such as HOUR, or an object of type period")
    unknown = [f"{key:.40}" for key in value if key not in _KEYS and value[key] is not None]
    if unknown:
        raise PeriodError(f"it has no key {unknown[0]}; it has {', '.join(_KEYS)}")
    match value.get("type"):
        case "all" | "none" as name:
            return _NAMED[str(name).upper()]
        case "duration":
            if not _is_epoch(value.get("origin")):
                raise PeriodError("an origin is not supported; leave it out")
            return _of_milliseconds(value.get("duration"))
        case "period":
            if value.get("timeZone") not in {None, "UTC", "Etc/UTC", "Z"}:
                raise PeriodError("chunks are cut in UTC; leave out timeZone")
            if value.get("origin") is not None:
                raise PeriodError("an origin is not supported; leave it out")
            return _of_period(value.get("period"))
        case _:
            raise PeriodError("its type must be period, duration, all or none")


def _is_epoch(origin: Any) -> bool:
    """Return True for the origin that Druid shows for a duration without one."""
    if origin is None:
        return True
    try:
        return datetime.fromisoformat(origin) == _EPOCH
    except (TypeError, ValueError):
        return False


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
    if read.length >= FOREVER:
        raise PeriodError("its period is longer than any chunk; write all")
    return _same_length(read)


def _same_length(read: Granularity) -> Granularity:
    """Return the named granularity of the same chunks, so that equal chunks are equal values."""
    chunks = (read.months, read.length)
    return next((each for each in _NAMED.values() if (each.months, each.length) == chunks), read)
