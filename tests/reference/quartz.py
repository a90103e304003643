"""A second opinion on Quartz cron lines, by looking at every day, hour, minute and second.

It shares no code and no idea with `common.cron`: a line is a predicate that is applied to one wall
time after the other (`Quartz.matches`), days are tested by their neighbours, and instants are found
by going through UTC and reading the clock of the zone (`WallClock`). It reads correct lines only;
the unit tests cover refusals.
"""

# ruff: noqa: DTZ001 - wall times are what a line means, before any zone applies.
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEK = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

POLICIES = tuple(
    (missing, repeated) for missing in ("shift", "skip") for repeated in ("first", "second", "both")
)


class Quartz:
    """One line; each field is kept as the text it is."""

    def __init__(self, line: str) -> None:
        words = line.upper().split()
        self._seconds = _counted(words[0], 0, 59)
        self._minutes = _counted(words[1], 0, 59)
        self._minutes_and_seconds = [
            (minute, second)
            for minute in range(60)
            if minute in self._minutes
            for second in range(60)
            if second in self._seconds
        ]
        self._hours = _counted(words[2], 0, 23)
        self._of_month = words[3]
        self._months = _counted(_numbered(words[4], _MONTHS), 1, 12)
        self._of_week = _numbered(words[5], _WEEK)
        self._years = words[6] if len(words) == 7 else "*"
        self._known_days: dict[date, bool] = {}

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self._seconds
            and wall.minute in self._minutes
            and wall.hour in self._hours
            and self.matches_day(wall.date())
        )

    def matches_day(self, day: date) -> bool:
        known = self._known_days.get(day)
        if known is None:
            known = (
                day.month in self._months
                and _is_year_of(self._years, day.year)
                and self._is_day_of_month(day)
                and self._is_day_of_week(day)
            )
            self._known_days[day] = known
        return known

    def walls(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """The wall times from `first` to `last`, both included, found by testing each."""
        day = first.date()
        while day <= last.date():
            if self.matches_day(day):
                # Hours that are out of bounds need no test.
                begin = first.hour if day == first.date() else 0
                end = last.hour if day == last.date() else 23
                for wall in self._walls_of(day, begin, end):
                    if first <= wall <= last:
                        yield wall
            if day == date.max:
                return
            day += _DAY

    def _walls_of(self, day: date, first_hour: int, last_hour: int) -> Iterator[datetime]:
        for hour in range(first_hour, last_hour + 1):
            if hour not in self._hours:
                continue
            for minute, second in self._minutes_and_seconds:
                yield datetime(day.year, day.month, day.day, hour, minute, second)

    def _is_day_of_month(self, day: date) -> bool:
        return self._of_month == "?" or any(
            _is_this_day(part, day) for part in self._of_month.split(",")
        )

    def _is_day_of_week(self, day: date) -> bool:
        text = self._of_week
        weekday = day.isoweekday() % 7 + 1
        if text == "?":
            return True
        if text == "L":
            return weekday == 7
        if text.endswith("L"):
            return weekday == int(text[:-1]) and (day + 7 * _DAY).month != day.month
        if "#" in text:
            wanted, nth = text.split("#")
            return weekday == int(wanted) and (day.day + 6) // 7 == int(nth)
        return weekday in _counted(text, 1, 7)


def _is_this_day(part: str, day: date) -> bool:
    """True if a day matches one part of the day-of-month field."""
    month = _month_around(day)
    if part.startswith("L"):
        offset = part[1:].removesuffix("W").removeprefix("-")
        wanted = len(month) - int(offset or 0)
    elif part.endswith("W"):
        wanted = int(part[:-1])
    else:
        return day.day in _counted(part, 1, 31)
    if not 1 <= wanted <= len(month):
        return False
    if not part.endswith("W"):
        return day.day == wanted
    working = [other for other in month if other.isoweekday() < 6]
    return day == min(working, key=lambda other: abs(other.day - wanted))


_known_months: dict[tuple[int, int], list[date]] = {}


def _month_around(day: date) -> list[date]:
    """All days of the month of a day."""
    key = (day.year, day.month)
    if key not in _known_months:
        possible = (date(day.year, day.month, 1).toordinal() + more for more in range(31))
        dates = (date.fromordinal(min(at, date.max.toordinal())) for at in possible)
        _known_months[key] = sorted({other for other in dates if other.month == day.month})
    return _known_months[key]


def _numbered(text: str, names: tuple[str, ...]) -> str:
    for number, name in enumerate(names, 1):
        text = text.replace(name, str(number))
    return text


@cache
def _counted(text: str, low: int, high: int) -> frozenset[int]:
    """The numbers of a field, found by stepping around it."""
    found: set[int] = set()
    for part in text.split(","):
        where, _, step = part.partition("/")
        if where in ("*", ""):
            begin, end = low, high
        elif "-" in where:
            begin, end = (int(one) for one in where.split("-"))
        else:
            begin = int(where)
            end = high if step else begin
        finger, paces = begin, 0
        while True:
            if paces % int(step or 1) == 0:
                found.add(finger)
            if finger == end:
                break
            finger = low if finger == high else finger + 1
            paces += 1
    return frozenset(found)


def _is_year_of(text: str, year: int) -> bool:
    for part in text.split(","):
        where, _, step = part.partition("/")
        begin, _, end = where.partition("-")
        since = 1970 if begin in ("*", "") else int(begin)
        until = int(end) if end else since if begin.isdigit() and not step else 9999
        if since <= year <= until and (year - since) % int(step or 1) == 0:
            return True
    return False


class WallClock:
    """The wall-clock times of a zone, read hour by hour, and by the minute around jumps."""

    def __init__(self, zone: ZoneInfo, first: date, last: date) -> None:
        self._zone = zone
        self._times: dict[datetime, list[datetime]] = {}
        self._shown_before: dict[datetime, datetime] = {}
        self.jumps: list[datetime] = []
        """The minutes at which it jumps."""
        instant = datetime(first.year, first.month, first.day, tzinfo=UTC) - 3 * _DAY
        end = datetime(last.year, last.month, last.day, tzinfo=UTC) + 4 * _DAY
        ahead = {self._ahead(instant)}
        while instant < end:
            if self._ahead(instant) != self._ahead(instant + _HOUR):
                minutes = (instant + more * _MINUTE for more in range(60))
                self.jumps.extend(
                    minute + _MINUTE
                    for minute in minutes
                    if self._ahead(minute) != self._ahead(minute + _MINUTE)
                )
            instant += _HOUR
            ahead.add(self._ahead(instant))
        self._all_ahead = sorted(ahead)

    def _ahead(self, instant: datetime) -> timedelta:
        return instant.astimezone(self._zone).replace(tzinfo=UTC) - instant

    def times(self, minute: datetime) -> list[datetime]:
        """The instants at which the clock shows a minute: none, one or two."""
        known = self._times.get(minute)
        if known is None:
            shown = minute.replace(tzinfo=UTC)
            guesses = (shown - ahead for ahead in self._all_ahead)
            known = sorted(
                at for at in guesses if at.astimezone(self._zone).replace(tzinfo=None) == minute
            )
            self._times[minute] = known
        return known

    def _last_shown(self, minute: datetime) -> datetime:
        """The last minute that the clock shows before one that it skips."""
        skipped = []
        while minute not in self._shown_before:
            skipped.append(minute)
            minute -= _MINUTE
            if self.times(minute):
                break
        # A whole day may be missing: the way back is gone once for all of its minutes.
        shown = self._shown_before.get(minute, minute)
        self._shown_before.update(dict.fromkeys(skipped, shown))
        return shown

    def _late(self, minute: datetime) -> datetime:
        """The instant of a minute that the clock skips, if it comes as late as the jump makes it."""
        # Wait on the wall from the last minute that it showed, for as long as is missing.
        shown = self._last_shown(minute)
        return self.times(shown)[-1] + (minute - shown)

    def fires(
        self, walls: Iterable[datetime], pairs: Sequence[tuple[str, str]] = POLICIES
    ) -> dict[tuple[str, str], list[datetime]]:
        """All fires of some wall times, by each of these pairs of policies, in the order of instants."""
        certain: list[datetime] = []
        shifted: list[datetime] = []
        first: list[datetime] = []
        second: list[datetime] = []
        minute: datetime | None = None
        times: list[datetime] = []
        for wall in walls:
            within = timedelta(seconds=wall.second)
            if wall - within != minute:
                minute = wall - within
                times = self.times(minute)
                late = None if times else self._late(minute)
            if late is not None:
                shifted.append(late + within)
            elif len(times) == 1:
                # Shown once, so the policies agree.
                certain.append(times[0] + within)
            else:
                first.append(times[0] + within)
                second.append(times[-1] + within)
        if not (shifted or first):
            return dict.fromkeys(pairs, certain)
        by_missing = {"shift": shifted, "skip": []}
        by_repeated = {"first": first, "second": second, "both": first + second}
        return {
            # Nearly in order, which a set would undo.
            pair: sorted(dict.fromkeys(certain + by_missing[pair[0]] + by_repeated[pair[1]]))
            for pair in pairs
        }
