"""A cron line and the wall times that it means, in no particular zone.

Pure. A *wall time* is a number of seconds since 1970-01-01 00:00:00 on some wall clock; which
instant it is belongs to `zones`. Searching goes by years, days and minutes that the line means,
never from second to second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from common.cron.days import DayRule, days, ever_fires
from common.cron.fields import CronError, Fields, numbers, read_fields, years
from common.cron.words import in_words

DAY = 86_400
_LAST_DAY = 2_932_896
"""31 December 9999."""
_DAYS_COMPARED = 1_500


@dataclass(frozen=True, slots=True)
class Cron:
    """A line that has been read and that fires at least once; two with the same text are equal."""

    text: str
    fields: Fields = field(compare=False, repr=False)
    _rule: DayRule = field(compare=False, repr=False)
    _years: Sequence[int] = field(compare=False, repr=False)
    # The minutes of a day as seconds since its midnight, and the seconds of each such minute.
    _minutes: tuple[int, ...] = field(compare=False, repr=False)
    _seconds: tuple[int, ...] = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read a line. Raises `CronError`, also for a line that never fires."""
        fields = read_fields(text)
        rule, meant = DayRule.of(fields), years(fields.years)
        if not ever_fires(rule, meant):
            name = "day-of-week" if rule.by_week else "day-of-month"
            raise CronError(
                fields.day_position,
                name,
                "the line never fires: no month and year that it allows has such a day",
            )
        hours = numbers(fields.hours, 0, 24)
        minutes = numbers(fields.minutes, 0, 60)
        return cls(
            text,
            fields,
            rule,
            meant,
            tuple(hour * 3600 + minute * 60 for hour in hours for minute in minutes),
            numbers(fields.seconds, 0, 60),
        )

    def describe(self) -> str:
        """The line in words, such as `at 02:30:00 on the last Friday of the month`."""
        return in_words(self.fields)

    @property
    def repeats_with_calendar(self) -> bool:
        """True if every year with fires has another 400 years later, up to the last year."""
        return isinstance(self._years, range) and 400 % self._years.step == 0

    @property
    def fires_at_most_daily(self) -> bool:
        """True if the line means one time of the day at most."""
        return len(self._minutes) == len(self._seconds) == 1

    @property
    def least_gap(self) -> int:
        """The shortest time between two fires, a day at most, in seconds of an even clock."""
        first, last = self._seconds[0], self._seconds[-1]
        gaps = [later - former for former, later in pairwise(self._seconds)]
        gaps += [later + first - former - last for former, later in pairwise(self._minutes)]
        # From the last fire of a day to the first of the next one that has any.
        over_night = DAY + self._minutes[0] + first - self._minutes[-1] - last
        shortest = min(gaps, default=DAY)
        if over_night < shortest:
            some = islice(self.days(0, _LAST_DAY), _DAYS_COMPARED)
            apart = min((later - former for former, later in pairwise(some)), default=1)
            shortest = min(shortest, over_night + (apart - 1) * DAY)
        return shortest

    def days(self, first: int, last: int, *, falling: bool = False) -> Iterator[int]:
        """The days with fires from `first` to `last`, counted from 1 January 1970 = 0."""
        return days(self._rule, self._years, first, last, falling=falling)

    def times(self, first: int, last: int, *, falling: bool = False) -> Iterator[int]:
        """The seconds of a day with fires, from `first` to `last`, both included."""
        begin = bisect_left(self._minutes, first - first % 60)
        end = bisect_left(self._minutes, last + 1)
        if not falling:
            for at in range(begin, end):
                minute = self._minutes[at]
                if first <= minute and minute + 59 <= last:
                    for second in self._seconds:
                        yield minute + second
                else:
                    for second in self._seconds:
                        if first <= minute + second <= last:
                            yield minute + second
            return
        for at in reversed(range(begin, end)):
            minute = self._minutes[at]
            for second in reversed(self._seconds):
                if first <= minute + second <= last:
                    yield minute + second

    def walls(self, first: int, last: int, *, falling: bool = False) -> Iterator[int]:
        """The wall times from `first` to `last`, both included."""
        for day in self.days(first // DAY, last // DAY, falling=falling):
            midnight = day * DAY
            low, high = max(first - midnight, 0), min(last - midnight, DAY - 1)
            for time in self.times(low, high, falling=falling):
                yield midnight + time
