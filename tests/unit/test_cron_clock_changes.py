"""Fire times around every clock change of twelve zones, against the reference (C3, N1).

40 lines x 12 zones x 6 pairs of policies x 3 years = 8,640 cases. Each line is compared around every
change of the clock: for eight days on both sides if it fires at most once an hour, for half a day if
more often, for some minutes of the hour after it, its ends among them, if by the second. A line of
the first kind is compared over a whole year too, under one pair of policies, which differ at clock
changes alone; the pair is another one for the next line and zone. `bin/test --long` compares each of
the three years as a whole, and a normal run the first one.
"""

# ruff: noqa: DTZ001 - wall times are what a line means, before any zone applies.
from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from enum import Enum, auto
from functools import cache
from itertools import cycle, islice
from zoneinfo import ZoneInfo

import pytest

from common.cron import Cron, MissingTime, RepeatedTime, Timetable
from tests.reference.quartz import POLICIES, Quartz, WallClock

# Years in which the zone changes its clock, and its mind about that.
ZONES = {
    "America/New_York": 2024,
    "Europe/Berlin": 2024,
    "Europe/Dublin": 2024,  # Its winter time is the exception: a negative hour.
    "Australia/Lord_Howe": 2024,  # Half an hour.
    "Pacific/Apia": 2010,  # 30 December 2011 does not exist.
    "Asia/Tehran": 2020,  # At midnight, and no more from 2022 on.
    "Africa/Casablanca": 2023,  # Back for Ramadan.
    "America/Sao_Paulo": 2017,  # At midnight: the day begins at one.
    "Asia/Beirut": 2022,  # At midnight.
    "Asia/Kolkata": 2024,
    "America/St_Johns": 2010,  # At one minute past midnight: back into yesterday.
    "UTC": 2024,
}
LINES = (
    *("0 30 2 * * ?", "0 0 2 * * ?", "0 0 3 * * ? *", "0 59 1 * * ?", "0 30 1 * * ?"),
    *("0 0 0 * * ?", "0 1 0 * * ?", "0 30 0 * * ?", "0 15,45 1-3 * * ?", "0 0 3 ? * SUN"),
    *("59 59 1 * * ?", "59 59 23 * * ?", "30 30 23 ? * SAT-SUN", "0 0 12 * * ?", "0 0 * * * ?"),
    *("0 30 * * * ?", "0 0 2 L * ?", "0 30 2 ? * 1#2", "0 30 1 ? * SUNL", "0 0 12 30 12 ?"),
    *("0 0 0 30 12 ?", "15 15 1 ? 11 1#1", "0 0 1 ? 3,10 SUNL", "0 30 0 21-23 3,9 ?"),
    *("0 0 0-3 * * ?", "0 0 */2 * * ?", "0 45 1 1W * ?", "0 0 3 LW * ?", "0 0 2 29 2 ?"),
    *("0 10 2 ? 4,9,10 1#1", "0 5 2 * 3-4 ?", "0 45 0-23/3 15-5 * ?"),
    *("0 */30 * * * ?", "0 */5 * * * ?", "0 * * * * ?", "30 7/11 * * * ?"),
    *("*/10 * * * * ?", "* * * * * ?", "* * 1-3 * * ?", "0/20 */10 0-4 ? * SUN-MON"),
)
WHOLE_YEARS = 3 if "ORCAFLOW_REPEATS" in os.environ else 1
"""The years of a zone that are compared as a whole."""
DAY = timedelta(days=1)
A_WEEK = (datetime(2024, 3, 3), datetime(2024, 3, 9, 23, 59, 59))


class Density(Enum):
    """The rate at which a line fires at most."""

    HOURS = auto()
    MINUTES = auto()
    SECONDS = auto()


@cache
def density(line: str) -> Density:
    fires = len(list(islice(Quartz(line).walls(*A_WEEK), 7 * 24 * 60 + 1)))
    if fires <= 7 * 24:
        return Density.HOURS
    return Density.MINUTES if fires <= 7 * 24 * 60 else Density.SECONDS


@cache
def walls_around(line: str, year: int) -> list[datetime]:
    """The wall times of a year and of the days beside it."""
    first, last = datetime(year, 1, 1) - 2 * DAY, datetime(year, 12, 31) + 2 * DAY
    return list(Quartz(line).walls(first, last))


def whole(year: int) -> tuple[datetime, datetime]:
    return datetime(year, 1, 1, tzinfo=UTC), datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)


def windows(line: str, year: int, jumps: list[datetime]) -> Iterator[tuple[datetime, datetime]]:
    """The parts of a year that are compared under each pair of policies."""
    summer = datetime(year, 6, 15, 12, tzinfo=UTC)
    for jump in jumps or [summer]:
        if density(line) is Density.HOURS:
            first, last = whole(year)
            yield max(first, jump - 8 * DAY), min(last, jump + 8 * DAY)
        elif density(line) is Density.MINUTES:
            yield jump - DAY / 2, jump + DAY / 2
        else:
            yield jump - timedelta(minutes=3), jump + timedelta(minutes=63)


def parts(line: str, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The parts of a window that are compared: about its jump, half an hour later and an hour later."""
    if density(line) is not Density.SECONDS:
        yield first, last
        return
    while first < last:
        yield first, first + timedelta(minutes=6)
        first += timedelta(minutes=30)


def test_there_are_forty_lines() -> None:
    assert len(set(LINES)) == 40
    assert len(ZONES) == 12


@pytest.mark.parametrize("zone_name", ZONES)
def test_every_fire_around_a_clock_change_is_that_of_the_reference(zone_name: str) -> None:
    zone = ZoneInfo(zone_name)
    pairs = cycle(POLICIES[list(ZONES).index(zone_name) % len(POLICIES) :] + POLICIES)
    cases = 0
    for year in range(ZONES[zone_name], ZONES[zone_name] + 3):
        clock = WallClock(zone, date(year, 1, 1), date(year, 12, 31))
        jumps = [jump for jump in clock.jumps if jump.year == year]
        for line in LINES:
            timetables = {
                (missing, repeated): Timetable(
                    cron=Cron.parse(line),
                    zone=zone,
                    missing=MissingTime(missing),
                    repeated=RepeatedTime(repeated),
                )
                for missing, repeated in POLICIES
            }
            for first, last in windows(line, year, jumps):
                expected = clock.fires(walls_for(line, zone, first, last))
                for pair, timetable in timetables.items():
                    for begin, end in parts(line, first, last):
                        compare(timetable, expected[pair], begin, end, jumps)
            if density(line) is Density.HOURS and year < ZONES[zone_name] + WHOLE_YEARS:
                pair = next(pairs)
                expected = clock.fires(walls_around(line, year), [pair])
                compare(timetables[pair], expected[pair], *whole(year), jumps)
            cases += len(POLICIES)
    assert cases == 40 * 6 * 3


def walls_for(line: str, zone: ZoneInfo, first: datetime, last: datetime) -> Iterable[datetime]:
    """The wall times that may become instants between the two, and some more."""
    # Times that the clock skips lie between the two; the margin is for those that it repeats, which
    # are those of an hour at most.
    margin = timedelta(minutes=61)
    begin = first.astimezone(zone).replace(tzinfo=None) - margin
    end = last.astimezone(zone).replace(tzinfo=None) + margin
    if density(line) is Density.HOURS:
        known = walls_around(line, first.year)
        return known[bisect_left(known, begin) : bisect_left(known, end)]
    return Quartz(line).walls(begin, end)


def compare(
    timetable: Timetable,
    expected: list[datetime],
    first: datetime,
    last: datetime,
    jumps: list[datetime],
) -> None:
    fires = list(timetable.between(first, last))
    about = (timetable, first)
    within = expected[bisect_left(expected, first) : bisect_left(expected, last + DAY / 86_400)]
    assert fires == within, about
    # Step by step where the clock changes, and here and there.
    steps = set(range(1, len(fires), 397))
    for jump in jumps:
        at = bisect_left(fires, jump)
        steps.update(range(max(1, at - 3), min(len(fires), at + 4)))
    for step in sorted(steps):
        assert timetable.next(fires[step - 1]) == fires[step], about
        assert timetable.previous(fires[step]) == fires[step - 1], about
