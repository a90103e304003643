"""Fire times on the days on which the clock of a zone jumps, computed by hand (C3, N1)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from common.cron import Cron, MissingTime, RepeatedTime, Timetable

SHIFT, SKIP = MissingTime.SHIFT, MissingTime.SKIP
FIRST, SECOND, BOTH = RepeatedTime.FIRST, RepeatedTime.SECOND, RepeatedTime.BOTH
DAY = 86_400


def fires(
    line: str,
    zone: str,
    first: str,
    last: str,
    *,
    missing: MissingTime = SHIFT,
    repeated: RepeatedTime = FIRST,
) -> list[str]:
    """The fires between two instants, in UTC; forwards and backwards are one list."""
    timetable = Timetable(
        cron=Cron.parse(line), zone=ZoneInfo(zone), missing=missing, repeated=repeated
    )
    begin, end = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (first, last))
    found = list(timetable.between(begin, end))
    assert found == sorted(set(found))
    backwards = []
    before = timetable.previous(end + timedelta(microseconds=1))
    while before is not None and before >= begin:
        backwards.append(before)
        before = timetable.previous(before)
    assert backwards[::-1] == found
    return [f"{fire:%d %H:%M:%S}".removesuffix(":00") for fire in found]


NEW_YORK_SPRING = ("America/New_York", "2026-03-07 12:00", "2026-03-09 12:00")
NEW_YORK_AUTUMN = ("America/New_York", "2026-10-31 12:00", "2026-11-02 12:00")


def test_by_default_a_missing_time_is_shifted_and_a_repeated_one_fires_first() -> None:
    timetable = Timetable(cron=Cron.parse("0 30 2 * * ?"), zone=ZoneInfo("America/New_York"))
    assert timetable.missing is MissingTime.SHIFT
    assert timetable.repeated is RepeatedTime.FIRST


def test_a_missing_time_fires_as_much_later_as_the_clock_jumps() -> None:
    # 02:30 is 03:30 daylight time on the 8th.
    assert fires("0 30 2 * * ?", *NEW_YORK_SPRING) == ["08 07:30", "09 06:30"]


def test_a_missing_time_may_be_skipped() -> None:
    assert fires("0 30 2 * * ?", *NEW_YORK_SPRING, missing=SKIP) == ["09 06:30"]


def test_a_shifted_fire_that_meets_another_is_one_fire() -> None:
    # 02:00 is 03:00, and 03:00 is due as well.
    assert fires("0 0 2,3 * * ?", *NEW_YORK_SPRING) == ["08 07:00", "09 06:00", "09 07:00"]


def test_shifted_fires_stand_in_the_order_of_instants() -> None:
    # 02:59:50 comes after 03:10, which the clock shows first.
    assert fires("50 59 2,3 8 3 ?", *NEW_YORK_SPRING) == ["08 07:59:50"]
    assert fires("0 10,59 2-3 8 3 ?", *NEW_YORK_SPRING) == ["08 07:10", "08 07:59"]
    line = "0 50 2 8 3 ?", "0 10,55 3 8 3 ?"
    assert [fires(one, *NEW_YORK_SPRING) for one in line] == [
        ["08 07:50"],
        ["08 07:10", "08 07:55"],
    ]


def test_a_line_by_the_hour_fires_every_hour_of_the_short_day() -> None:
    for missing in MissingTime:
        found = fires("0 0 * * * ?", *NEW_YORK_SPRING, missing=missing)
        assert len(found) == 49


@pytest.mark.parametrize("years", ["", " 2008-2199", " 2008/4", " 2008/3", " 2008,2010"])
def test_a_line_that_only_ever_means_missing_times_never_fires_if_they_are_skipped(
    years: str,
) -> None:
    # The second Sunday of March is the one on which the clock skips 02:30, since 2007.
    timetable = Timetable(
        cron=Cron.parse(f"0 30 2 ? 3 1#2{years}"),
        zone=ZoneInfo("America/New_York"),
        missing=SKIP,
        first=datetime(2007, 1, 1, tzinfo=UTC),
    )
    assert timetable.next(datetime(2007, 1, 1, tzinfo=UTC)) is None
    assert timetable.previous(datetime(2100, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("repeated", "expected"),
    [(FIRST, ["01 05:30"]), (SECOND, ["01 06:30"]), (BOTH, ["01 05:30", "01 06:30"])],
)
def test_a_repeated_time_fires_first_second_or_both(
    repeated: RepeatedTime, expected: list[str]
) -> None:
    found = fires("0 30 1 * * ?", *NEW_YORK_AUTUMN, repeated=repeated)
    assert found == [*expected, "02 06:30"]


def test_a_line_by_the_hour_fires_in_the_repeated_hour_by_its_policy() -> None:
    first = fires("0 0 * * * ?", *NEW_YORK_AUTUMN)
    second = fires("0 0 * * * ?", *NEW_YORK_AUTUMN, repeated=SECOND)
    both = fires("0 0 * * * ?", *NEW_YORK_AUTUMN, repeated=BOTH)
    assert {*first, *second} == {*both}
    assert set(both) - set(first) == {"01 06:00"}
    assert set(both) - set(second) == {"01 05:00"}


def test_half_an_hour_goes_missing_and_comes_twice_on_lord_howe() -> None:
    spring = ("Australia/Lord_Howe", "2026-10-03 00:00", "2026-10-04 00:00")
    assert fires("0 15 2 * * ?", *spring) == ["03 15:45"]  # 02:45, by +11
    assert fires("0 15 2 * * ?", *spring, missing=SKIP) == []
    assert fires("0 30 2 * * ?", *spring) == ["03 15:30"]
    autumn = ("Australia/Lord_Howe", "2026-04-04 00:00", "2026-04-05 00:00")
    assert fires("0 45 1 * * ?", *autumn, repeated=BOTH) == ["04 14:45", "04 15:15"]
    assert fires("0 15 1 * * ?", *autumn, repeated=BOTH) == ["04 14:15"]


def test_the_day_that_samoa_skipped_fires_on_the_next_or_not_at_all() -> None:
    days = ("Pacific/Apia", "2011-12-29 00:00", "2012-01-01 00:00")
    # At noon of the 29th by -10, of the 31st (for the 30th and for itself) by +14.
    assert fires("0 0 12 * * ?", *days) == ["29 22:00", "30 22:00", "31 22:00"]
    assert fires("0 0 12 30 * ?", *days) == ["30 22:00"]
    assert fires("0 0 12 30 * ?", *days, missing=SKIP) == []
    # Asked on the 31st, the 30th is not forgotten, from either side.
    late = ("Pacific/Apia", "2011-12-30 12:00", "2011-12-31 03:00")
    assert fires("0 0 12 30 * ?", *late) == ["30 22:00"]
    assert fires("0 0 13 30,31 12 ?", *late) == ["30 23:00"]
    assert fires("0 30 11-13 30 12 ?", *late) == ["30 21:30", "30 22:30", "30 23:30"]
    # The 31st fires at nine; the fire that the 30th owes at ten comes after it.
    assert fires("0 0 9 31 * ?", *days) == ["30 19:00"]
    assert fires("0 0 9,10 30,31 12 ?", *days) == ["30 19:00", "30 20:00"]


def test_a_day_that_begins_at_one_has_its_midnight_at_one() -> None:
    sao_paulo = ("America/Sao_Paulo", "2018-11-03 12:00", "2018-11-05 00:00")
    assert fires("0 0 0 * * ?", *sao_paulo) == ["04 03:00"]
    assert fires("0 0 0 * * ?", *sao_paulo, missing=SKIP) == []
    beirut = ("Asia/Beirut", "2024-03-30 12:00", "2024-03-31 12:00")
    assert fires("0 0 0 * * ?", *beirut) == ["30 22:00"]
    tehran = ("Asia/Tehran", "2021-03-21 12:00", "2021-03-22 12:00")
    assert fires("0 30 0 * * ?", *tehran) == ["21 21:00"]


def test_a_night_that_turns_back_into_yesterday_fires_yesterday_again() -> None:
    # At 00:01 of 7 November 2010 it became 23:01 of the 6th.
    night = ("America/St_Johns", "2010-11-07 00:00", "2010-11-07 12:00")
    assert fires("0 30 23 * * ?", *night) == ["07 02:00"]
    assert fires("0 30 23 * * ?", *night, repeated=SECOND) == ["07 03:00"]
    # Midnight is shown twice too, and its first showing is before the second 23:30.
    line = "0 0,30 0,23 6-7 11 ?"
    assert fires(line, *night, repeated=BOTH) == [
        *("07 01:30", "07 02:00", "07 02:30", "07 03:00", "07 03:30", "07 04:00")
    ]
    assert fires(line, *night, repeated=FIRST) == ["07 01:30", "07 02:00", "07 02:30", "07 04:00"]
    assert fires(line, *night, repeated=SECOND) == ["07 01:30", "07 03:00", "07 03:30", "07 04:00"]


def test_a_winter_time_that_is_the_exception_is_still_the_repeated_hour() -> None:
    dublin = ("Europe/Dublin", "2026-10-25 00:00", "2026-10-25 12:00")
    assert fires("0 30 1 * * ?", *dublin, repeated=BOTH) == ["25 00:30", "25 01:30"]
    spring = ("Europe/Dublin", "2026-03-29 00:00", "2026-03-29 12:00")
    assert fires("0 30 1 * * ?", *spring) == ["29 01:30"]


def test_an_offset_of_odd_seconds_is_kept_to_the_second() -> None:
    # Monrovia was 44 minutes and 30 seconds behind until 7 January 1972 began.
    days = ("Africa/Monrovia", "1972-01-05 12:00", "1972-01-08 12:00")
    assert fires("0 0 1 * * ?", *days) == ["06 01:44:30", "07 01:00", "08 01:00"]
    assert fires("0 30 0 * * ?", *days) == ["06 01:14:30", "07 01:14:30", "08 00:30"]
    assert fires("0 30 0 * * ?", *days, missing=SKIP) == ["06 01:14:30", "08 00:30"]


def test_a_jump_for_good_is_a_jump_like_any_other() -> None:
    # Caracas went from -04:30 to -04 on 1 May 2016 at 02:30.
    days = ("America/Caracas", "2016-04-30 12:00", "2016-05-02 12:00")
    assert fires("0 45 2 * * ?", *days) == ["01 07:15", "02 06:45"]


def jumps(zone: str) -> list[tuple[int, int]]:
    """The instants of all jumps in the file of a zone, with their widths."""
    content = (files("tzdata") / "zoneinfo" / zone).read_bytes()
    header = ">4sc15x6I"
    # The second part holds what the first does, with 64 bits for an instant.
    _, _, is_utc, is_standard, leaps, times, types, letters = struct.unpack_from(header, content)
    begin = struct.calcsize(header)
    begin += times * 5 + types * 6 + letters + leaps * 8 + is_standard + is_utc
    _, _, _, _, _, times, types, _ = struct.unpack_from(header, content, begin)
    begin += struct.calcsize(header)
    instants = struct.unpack_from(f">{times}q", content, begin)
    kinds = struct.unpack_from(f">{times}B", content, begin + times * 8)
    offsets = [
        struct.unpack_from(">i", content, begin + times * 9 + kind * 6)[0] for kind in range(types)
    ]
    return [
        (instant, offsets[kind] - offsets[earlier])
        for instant, (earlier, kind) in zip(instants[1:], pairwise(kinds), strict=True)
        if offsets[kind] != offsets[earlier]
    ]


def test_no_zone_jumps_twice_within_days_or_farther_than_a_day() -> None:
    # The assumption of `common.cron.zones`, which reads the clock a few times a day.
    checked = 0
    for zone in sorted(available_timezones()):
        if not (files("tzdata") / "zoneinfo" / zone).is_file():
            continue
        since_1970 = [jump for jump in jumps(zone) if jump[0] > -2 * DAY]
        assert all(abs(width) <= DAY for _, width in since_1970), zone
        assert all(two - one >= 5 * DAY for (one, _), (two, _) in pairwise(since_1970)), zone
        checked += len(since_1970)
    assert checked > 10_000
