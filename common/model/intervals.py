"""Intervals of time, as datasets and locks name them: `2026-11-20/P1D`, or a start and an end.

Pure. An *interval* holds its start and not its end; both are in UTC. A *period* is ISO 8601's
`P1D` or `PT1H`: its years and months are counted on the calendar, days as 24 hours, since UTC
changes no clock.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

LONGEST_TEXT: Final = 100
_PERIOD: Final = re.compile(
    r"P(?=[0-9T])(?:(?P<years>[0-9]{1,4})Y)?(?:(?P<months>[0-9]{1,5})M)?(?:(?P<weeks>[0-9]{1,6})W)?"
    r"(?:(?P<days>[0-9]{1,7})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,8})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,10})S)?)?"
)
_MONTHS_A_YEAR: Final = 12


class IntervalError(ValueError):
    """A text that is no interval; the message names the mistake and the cure."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The time from `start` up to but not including `end`, both in UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise IntervalError("an interval needs times with a zone")
        object.__setattr__(self, "start", self.start.astimezone(UTC))
        object.__setattr__(self, "end", self.end.astimezone(UTC))
        if not self.start < self.end:
            raise IntervalError(f"the interval {self} is empty: its end must be after its start")

    def __str__(self) -> str:
        return f"{instant_text(self.start)}/{instant_text(self.end)}"

    def overlaps(self, other: Interval) -> bool:
        """Return True if some moment is in both."""
        return self.start < other.end and other.start < self.end

    def contains(self, other: Interval) -> bool:
        """Return True if every moment of the other is in this one."""
        return self.start <= other.start and other.end <= self.end


def instant_text(moment: datetime) -> str:
    """Return `2026-11-20T04:00:00.000Z`; texts of this shape sort as their times do."""
    utc = moment.astimezone(UTC)
    # By hand: `strftime` leaves out the zeros of years before 1000.
    return f"{utc.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def read_interval(text: str) -> Interval:
    """Read `start/end`, `start/period` or `period/end`; a time without a zone is in UTC."""
    shown = repr(text[:LONGEST_TEXT])
    parts = [part.strip() for part in text.split("/")]
    if len(text) > LONGEST_TEXT or len(parts) != 2:
        raise IntervalError(
            f"{shown} is no interval; write a start and an end or a period, as in"
            " 2026-11-20/P1D or 2026-11-20T04:00/2026-11-20T05:00"
        )
    first, second = parts
    try:
        if first.startswith("P"):
            end = read_instant(second)
            return Interval(shifted(end, first, -1), end)
        start = read_instant(first)
        is_period = second.startswith("P")
        return Interval(start, shifted(start, second, 1) if is_period else read_instant(second))
    except IntervalError as error:
        raise IntervalError(f"{shown} is no interval: {error}") from error
    except (ValueError, OverflowError) as error:
        raise IntervalError(
            f"{shown} is no interval: it leaves the years from 1 to 9999"
        ) from error


def read_instant(text: str) -> datetime:
    """Read an ISO 8601 date or time; without a zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise IntervalError(
            f"{text[:LONGEST_TEXT]!r} is no time; write 2026-11-20, 2026-11-20T04:00 or"
            " 2026-11-20T04:00:00Z"
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def shifted(moment: datetime, period: str, times: int) -> datetime:
    """Return the moment so many periods later. A day that its month lacks becomes the last."""
    found = _PERIOD.fullmatch(period)
    if found is None:
        raise IntervalError(f"{period[:LONGEST_TEXT]!r} is no period; write P1D, PT1H or P1M")
    part = {name: int(number or 0) * times for name, number in found.groupdict().items()}
    months = part["years"] * _MONTHS_A_YEAR + part["months"]
    return _months_later(moment, months) + timedelta(
        weeks=part["weeks"],
        days=part["days"],
        hours=part["hours"],
        minutes=part["minutes"],
        seconds=part["seconds"],
    )


def _months_later(moment: datetime, months: int) -> datetime:
    if not months:
        return moment
    year, month = divmod(moment.year * _MONTHS_A_YEAR + moment.month - 1 + months, _MONTHS_A_YEAR)
    if not 1 <= year <= 9999:
        raise OverflowError(year)
    last = monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))
