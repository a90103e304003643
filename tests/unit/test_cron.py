"""Cron lines: refusals with a place, descriptions in words, and fire times (C1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from common.cron import (
    MAX_LENGTH,
    Cron,
    CronError,
    Cycle,
    Timetable,
    max_cycle,
    merged,
    min_cycle,
)

UTC_ZONE = ZoneInfo("UTC")
NEW_YORK = ZoneInfo("America/New_York")
LAST = datetime.max.replace(tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_timetable(
    line: str,
    *,
    zone: ZoneInfo = UTC_ZONE,
    first: datetime | None = None,
    last: datetime | None = None,
) -> Timetable:
    return Timetable(cron=Cron.parse(line), zone=zone, first=first, last=last)


def fires(timetable: Timetable, first: str, last: str) -> list[str]:
    return [f"{fire:%Y-%m-%d %H:%M:%S}" for fire in timetable.between(at(first), at(last))]


@pytest.mark.parametrize(
    ("line", "position", "field"),
    [
        ("60 * * * * ?", 1, "seconds"),
        ("-1 * * * * ?", 1, "seconds"),
        ("0 60 * * * ?", 3, "minutes"),
        ("0 0 24 * * ?", 5, "hours"),
        ("0 0 1,2,24 * * ?", 9, "hours"),
        ("0 0 8-24 * * ?", 7, "hours"),
        ("0 0 0 0 * ?", 7, "day-of-month"),
        ("0 0 0 32 * ?", 7, "day-of-month"),
        ("0 0 0 1 0 ?", 9, "month"),
        ("0 0 0 1 13 ?", 9, "month"),
        ("0 0 0 1 FOO ?", 9, "month"),
        ("0 0 0 1 JAN-FOO ?", 13, "month"),
        ("0 0 0 1 JANUARY ?", 9, "month"),
        ("0 0 0 1 JAN-3 ?", 13, "month"),
        ("0 0 0 ? * 0", 11, "day-of-week"),
        ("0 0 0 ? * 8", 11, "day-of-week"),
        ("0 0 0 ? * MONDAY", 11, "day-of-week"),
        ("0 0 0 ? * 2-FRI", 13, "day-of-week"),
        ("0 0 0 ? * MON-FRI/2", 18, "day-of-week"),
        ("0 0 0 ? * MON/2", 14, "day-of-week"),
        ("0 0 0 ? * 6#6", 13, "day-of-week"),
        ("0 0 0 ? * 6#0", 13, "day-of-week"),
        ("0 0 0 ? * 6#", 13, "day-of-week"),
        ("0 0 0 ? * 8#1", 11, "day-of-week"),
        ("0 0 0 ? * 6#3,2", 11, "day-of-week"),
        ("0 0 0 ? * 2#1,6#3", 11, "day-of-week"),
        ("0 0 0 ? * MON,L", 15, "day-of-week"),
        ("0 0 0 ? * 6L,2", 11, "day-of-week"),
        ("0 0 0 ? * LW", 11, "day-of-week"),
        ("0 0 0 ? * 15W", 11, "day-of-week"),
        ("0 0 0 L-99 * ?", 9, "day-of-month"),
        ("0 0 0 L-31 * ?", 9, "day-of-month"),
        ("0 0 0 L- * ?", 9, "day-of-month"),
        ("0 0 0 L3 * ?", 8, "day-of-month"),
        ("0 0 0 32W * ?", 7, "day-of-month"),
        ("0 0 0 W * ?", 7, "day-of-month"),
        ("0 0 0 1-5W * ?", 10, "day-of-month"),
        ("0 0 0 15W-20 * ?", 10, "day-of-month"),
        ("0 0 0 6#3 * ?", 8, "day-of-month"),
        ("0 0 L * * ?", 5, "hours"),
        ("0 0 5W * * ?", 6, "hours"),
        ("*/60 * * * * ?", 3, "seconds"),
        ("*/0 * * * * ?", 3, "seconds"),
        ("0 */x * * * ?", 5, "minutes"),
        ("/ * * * * ?", 2, "seconds"),
        ("0 0 0/24 * * ?", 7, "hours"),
        ("0 0 0 1/32 * ?", 9, "day-of-month"),
        ("0 0 0 1 1/13 ?", 11, "month"),
        ("0 0 0 ? * 1/8", 13, "day-of-week"),
        ("*5 * * * * ?", 2, "seconds"),
        ("*-5 * * * * ?", 2, "seconds"),
        ("1,,2 * * * * ?", 3, "seconds"),
        (",1 * * * * ?", 1, "seconds"),
        ("1, * * * * ?", 3, "seconds"),
        ("1- * * * * ?", 3, "seconds"),
        ("1-2-3 * * * * ?", 4, "seconds"),
        ("1/2/3 * * * * ?", 4, "seconds"),
        ("? * * * * ?", 1, "seconds"),
        ("0 0 0 ?,1 * ?", 7, "day-of-month"),
        ("0 0 0 1,? * ?", 9, "day-of-month"),
        ("0 0 0 1 ? ?", 9, "month"),
        ("0 0 0 1 * 2", 11, "day-of-week"),
        ("0 0 0 * * *", 11, "day-of-week"),
        ("* * * * * *", 11, "day-of-week"),
        ("0 0 0 4 * *", 11, "day-of-week"),
        ("0 0 0 ? * ?", 11, "day-of-week"),
        ("0 0 0 1 1 ? 1969", 13, "year"),
        ("0 0 0 1 1 ? 2200", 13, "year"),
        ("0 0 0 1 1 ? 20250", 13, "year"),
        ("0 0 0 1 1 ? 2030-2020", 13, "year"),
        ("0 0 0 1 1 ? 2025 x", 18, "line"),
        ("0 0 0 1 1", 10, "line"),
        ("", 1, "line"),
        (" \t\n", 1, "line"),
        ("x y z", 6, "line"),
        ("0 0 0 31 2 ?", 7, "day-of-month"),
        ("0 0 0 30 2 ?", 7, "day-of-month"),
        ("0 0 0 31 4,6,9,11 ? *", 7, "day-of-month"),
        ("0 0 0 29 2 ? 2097-2099", 7, "day-of-month"),
        ("0 0 0 29W 2 ? 2025", 7, "day-of-month"),
        ("0 0 0 L-29 2 ?", 7, "day-of-month"),
        ("0 0 0 ? 2 2#5 2025-2043", 11, "day-of-week"),
        ("0\t 0 25 * * ?", 6, "hours"),
        ("0 0 0 \u0663 * ?", 7, "day-of-month"),
        ("0 0 \uff11 * * ?", 5, "hours"),
        ("0 0 9999999999999 * * ?", 5, "hours"),
        ("0 0 0 1 1 ? '; DROP TABLE", 16, "line"),
        ("0 0 \x00 * * ?", 5, "hours"),
    ],
)
def test_a_wrong_line_is_refused_at_its_field_and_position(
    line: str, position: int, field: str
) -> None:
    with pytest.raises(CronError) as refusal:
        Cron.parse(line)
    assert (refusal.value.position, refusal.value.field) == (position, field)
    assert str(refusal.value).startswith(f"position {position}, {field}: ")
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 250


def test_a_line_longer_than_its_column_is_refused_unread() -> None:
    with pytest.raises(CronError, match="position 257, line: the line has 10,000 characters"):
        Cron.parse("0 " * 5_000)


def test_a_line_as_long_as_its_column_is_read() -> None:
    line = "0 0 3 * * ?"
    assert Cron.parse(line + " " * (MAX_LENGTH - len(line))).describe() == "at 03:00:00 every day"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("30 2 * * *", "0 30 2 * * ?"),
        ("30 2 * * 1-5", "0 30 2 ? * 2-6"),
        ("0 9 * * 0", "0 0 9 ? * 1"),
        ("0 9 * * 7", "0 0 9 ? * 1"),
        ("0 9 * 1-3 MON,FRI", "0 0 9 ? 1-3 2,6"),
        ("*/5 8-17 1 * *", "0 */5 8-17 1 * ?"),
        ("@daily", "0 0 0 * * ?"),
        ("@hourly", "0 0 * * * ?"),
        ("@weekly", "0 0 0 ? * 1"),
        ("@yearly", "0 0 0 1 1 ?"),
    ],
)
def test_a_unix_line_is_refused_with_the_same_line_in_quartz(line: str, meant: str) -> None:
    with pytest.raises(CronError) as refusal:
        Cron.parse(line)
    assert str(refusal.value).endswith(f"did you mean {meant!r}?")
    ours = a_timetable(meant).between(at("2026-01-01 00:00:01"), at("2027-01-01"))
    unix = croniter(line, at("2026-01-01 00:00:00"))
    assert all(fire == unix.get_next(datetime) for fire in islice(ours, 40))


@pytest.mark.parametrize("line", ["0 5 1 * MON", "99 * * * *", "a b c d e", "@reboot", "H H * * *"])
def test_a_unix_line_without_an_equal_is_refused_without_advice(line: str) -> None:
    with pytest.raises(CronError) as refusal:
        Cron.parse(line)
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 0 3 * * ? *", "at 03:00:00 every day"),
        ("0 0 3 ? * *", "at 03:00:00 every day"),
        ("0 30 2 ? * 6L", "at 02:30:00 on the last Friday of the month"),
        ("0 0 8,12 ? * MON-FRI", "at 08:00:00 and 12:00:00 on Monday to Friday"),
        ("0 0 8 ? * TUE,SAT,SUN", "at 08:00:00 on Tuesday, Saturday and Sunday"),
        ("0 0 8 ? * 2/2", "at 08:00:00 on Monday, Wednesday and Friday"),
        ("0 0 0 ? * FRI#3", "at 00:00:00 on the third Friday of the month"),
        ("0 0 0 ? * L", "at 00:00:00 on Saturday"),
        ("0 0 0 1,15,LW * ?", "at 00:00:00 on the 1st, the 15th and the last weekday of the month"),
        ("0 0 0 L * ?", "at 00:00:00 on the last day of the month"),
        ("0 0 0 L-1 * ?", "at 00:00:00 on the day 1 day before the last day of the month"),
        (
            "0 0 0 L-3W * ?",
            "at 00:00:00 on the weekday nearest the day 3 days before the last day of the month",
        ),
        ("0 0 0 15W * ?", "at 00:00:00 on the weekday nearest the 15th"),
        ("0 0 0 2-11,22,23 * ?", "at 00:00:00 on the 2nd to the 11th, the 22nd and the 23rd"),
        ("0 0 0 */10 * ?", "at 00:00:00 on the 1st, the 11th, the 21st and the 31st"),
        ("0 0 0 1/5 * ?", "at 00:00:00 on every 5th day from the 1st to the 31st"),
        ("0 0 0 1 1,NOV-DEC ?", "at 00:00:00 on the 1st in January and November to December"),
        (
            "0 0 0 1 1 ? 2025-2027,2030",
            "at 00:00:00 on the 1st in January in 2025 to 2027 and 2030",
        ),
        ("* * * * * ?", "every second"),
        ("*/10 * * * * ?", "every 10 seconds"),
        ("0 * * * * ?", "every minute"),
        ("0 0/5 * * * ?", "every 5 minutes"),
        ("0 0 * * * ?", "every hour"),
        ("0 0 */2 * * ?", "every 2 hours"),
        ("0 0 */2 ? * SUN", "every 2 hours on Sunday"),
        ("0 30 * * * ?", "at minute 30 of every hour"),
        ("0 30 */2 * * ?", "at minute 30, every 2 hours"),
        ("5,35 * * * * ?", "at seconds 5 and 35 of every minute"),
        ("*/7 * * * * ?", "every 7th second from 0 to 59 of every minute"),
        ("* 5 * * * ?", "every second in minute 5 of every hour"),
        ("0 */15 8-17 ? * MON-FRI", "every 15 minutes in hours 8 to 17 on Monday to Friday"),
        ("0 0 8-17 * * ?", "at minute 0 of hours 8 to 17 every day"),
    ],
)
def test_a_line_is_said_in_words(line: str, words: str) -> None:
    assert Cron.parse(line).describe() == words


def test_white_space_of_any_kind_and_the_case_of_letters_do_not_matter() -> None:
    plain = a_timetable("0 30 2 ? JAN-MAR 6L")
    spread = a_timetable("\n0\t30   2 ? jan-Mar\r\n6l ")
    window = ("2026-01-01", "2027-01-01")
    assert fires(spread, *window) == fires(plain, *window)
    assert len(fires(plain, *window)) == 3


def test_lines_with_the_same_text_are_equal_and_hash_alike() -> None:
    assert Cron.parse("0 0 3 * * ?") == Cron.parse("0 0 3 * * ?")
    assert (
        len({Cron.parse("0 0 3 * * ?"), Cron.parse("0 0 3 * * ?"), Cron.parse("1 0 3 * * ?")}) == 2
    )
    assert Cron.parse(" 0 0 3 * * ?").text == " 0 0 3 * * ?"


def test_next_is_strictly_after_and_previous_strictly_before() -> None:
    timetable = a_timetable("0 0 3 * * ?")
    fire = at("2026-05-05 03:00:00")
    assert timetable.next(fire) == fire + timedelta(days=1)
    assert timetable.previous(fire) == fire - timedelta(days=1)
    assert timetable.next(fire - timedelta(microseconds=1)) == fire
    assert timetable.next(fire + timedelta(microseconds=1)) == fire + timedelta(days=1)
    assert timetable.previous(fire + timedelta(microseconds=1)) == fire
    assert timetable.previous(fire - timedelta(microseconds=1)) == fire - timedelta(days=1)


def test_between_includes_both_ends_to_the_microsecond() -> None:
    timetable = a_timetable("0 0 * * * ?")
    one, two = at("2026-05-05 03:00:00"), at("2026-05-05 04:00:00")
    tick = timedelta(microseconds=1)
    assert list(timetable.between(one, two)) == [one, two]
    assert list(timetable.between(one + tick, two)) == [two]
    assert list(timetable.between(one, two - tick)) == [one]
    assert list(timetable.between(one, one)) == [one]
    assert list(timetable.between(one + tick, one + tick)) == []
    assert list(timetable.between(two, one)) == []


def test_fires_by_the_second_end_in_the_midst_of_a_minute_a_day_and_a_year() -> None:
    every_second = a_timetable("* * * * * ?")
    assert len(fires(every_second, "2026-05-05 03:00:00", "2026-05-05 03:00:02")) == 3
    assert len(fires(every_second, "2026-05-05 23:59:58", "2026-05-06 00:01:01")) == 64
    every_day = a_timetable("0 0 0 * * ?")
    assert len(fires(every_day, "2025-12-31", "2026-11-15")) == 320
    assert len(fires(every_day, "2026-01-01", "2028-12-30")) == 365 + 365 + 365


def test_the_window_includes_both_ends() -> None:
    first, last = at("2026-05-05 03:00:00"), at("2026-05-07 03:00:00")
    timetable = a_timetable("0 0 3 * * ?", first=first, last=last)
    assert timetable.next(at("2020-01-01")) == first
    assert timetable.previous(at("2030-01-01")) == last
    assert timetable.next(last) is None
    assert timetable.previous(first) is None
    assert len(list(timetable.between(at("2020-01-01"), at("2030-01-01")))) == 3


def test_fire_times_are_aware_and_in_utc_whatever_zone_they_are_asked_in() -> None:
    timetable = a_timetable("0 0 3 * * ?", zone=NEW_YORK)
    fire = timetable.next(datetime(2026, 1, 1, 17, tzinfo=timezone(timedelta(hours=14))))
    assert fire == at("2026-01-01 08:00:00")
    assert fire.tzinfo is UTC


def test_a_time_without_a_zone_is_refused() -> None:
    zoneless = at("2026-01-01").replace(tzinfo=None)
    with pytest.raises(ValueError, match="no zone"):
        a_timetable("0 0 3 * * ?").next(zoneless)
    with pytest.raises(ValueError, match="no zone"):
        a_timetable("0 0 3 * * ?", first=zoneless)


def test_a_line_of_the_past_has_fired_and_fires_no_more() -> None:
    timetable = a_timetable("0 0 0 1 1 ? 1970")
    assert timetable.next(at("1971-01-01")) is None
    assert timetable.previous(at("2026-01-01")) == at("1970-01-01")
    assert timetable.previous(at("1970-01-01")) is None


def test_the_first_day_of_1970_begins_earlier_in_the_east() -> None:
    timetable = a_timetable("0 0 0 1 1 ?", zone=ZoneInfo("Asia/Tokyo"))
    assert timetable.next(datetime.min.replace(tzinfo=UTC)) == at("1969-12-31 15:00:00")
    assert timetable.previous(at("1970-01-01")) == at("1969-12-31 15:00:00")


def test_the_calendar_ends_with_the_year_9999_in_every_zone() -> None:
    east, west = ZoneInfo("Pacific/Kiritimati"), ZoneInfo("Pacific/Pago_Pago")
    line = "59 59 23 31 12 ?"
    assert a_timetable(line, zone=east).previous(LAST) == at("9999-12-31 09:59:59")
    assert a_timetable(line, zone=UTC_ZONE).previous(LAST) == at("9999-12-31 23:59:59")
    # There it is the next year already, which no datetime can say.
    assert a_timetable(line, zone=west).previous(LAST) == at("9999-01-01 10:59:59")
    for zone in (east, west, UTC_ZONE, NEW_YORK):
        assert a_timetable(line, zone=zone).next(LAST) is None
        assert len(list(a_timetable(line, zone=zone).between(at("9990-06-01"), LAST))) in (9, 10)


def test_a_thousand_years_of_a_yearly_line_are_a_thousand_fires() -> None:
    timetable = a_timetable("0 30 2 1 1 ?", zone=NEW_YORK)
    found = list(timetable.between(at("2026-06-01"), at("3026-06-01")))
    assert len(found) == 1_000
    assert found[-1] == at("3026-01-01 07:30:00")


def test_a_rare_line_is_found_far_away_in_both_directions() -> None:
    fifth_monday = a_timetable("0 0 0 ? 2 2#5")
    assert fifth_monday.next(at("2072-03-01")) == at("2112-02-29")
    assert fifth_monday.previous(at("2112-02-29")) == at("2072-02-29")
    # Its years have no cycle of 400 years, so no single cycle can be checked.
    rare = a_timetable("0 0 0 ? 2 2#5 2018/155")
    assert rare.next(at("1970-01-01")) == rare.previous(LAST) == at("9768-02-29")
    one_day = a_timetable("0 0 0 29 2 ? 2196")
    assert one_day.next(at("1970-01-01")) == at("2196-02-29")
    assert one_day.previous(LAST) == at("2196-02-29")


def test_fires_are_made_as_they_are_asked_for() -> None:
    endless = a_timetable("* * * * * ?").between(at("2026-01-01"), LAST)
    assert len(list(islice(endless, 100_000))) == 100_000


def test_several_timetables_are_merged_in_order_and_each_instant_comes_once() -> None:
    hourly, half_past = a_timetable("0 0 * * * ?"), a_timetable("0 0/30 * * * ?")
    found = list(merged([hourly, half_past, hourly], at("2026-01-01"), at("2026-01-01 02:00:00")))
    assert found == [at("2026-01-01") + timedelta(minutes=30 * more) for more in range(5)]
    assert list(merged([], at("2026-01-01"), at("2026-01-02"))) == []


@pytest.mark.parametrize(
    ("line", "unix"),
    [
        ("0 30 1 * * ?", "30 1 * * *"),
        ("0 */7 * * * ?", "*/7 * * * *"),
        ("0 5-50/9 */3 * * ?", "5-50/9 */3 * * *"),
        ("0 0 4 ? * 2-6", "0 4 * * 1-5"),
        ("0 0 4 ? * SUN,wed", "0 4 * * SUN,WED"),
        ("0 0 4 ? * 1,7", "0 4 * * 0,6"),
        ("0 0 4 1,15,31 * ?", "0 4 1,15,31 * *"),
        ("0 0 4 L * ?", "0 4 L * *"),
        ("0 0 4 ? * 6#3", "0 4 * * 5#3"),
        ("0 0 4 29 2 ?", "0 4 29 2 *"),
        ("0 0 4 */6 3-9/2 ?", "0 4 */6 3-9/2 *"),
    ],
)
def test_croniter_agrees_where_a_line_can_be_said_in_unix(line: str, unix: str) -> None:
    ours = list(islice(a_timetable(line).between(at("2024-01-01 00:00:01"), LAST), 60))
    theirs = croniter(unix, at("2024-01-01 00:00:00"))
    assert ours == [theirs.get_next(datetime) for _ in ours]
    backwards = croniter(unix, ours[-1])
    assert [backwards.get_prev(datetime) for _ in ours[:-1]] == ours[-2::-1]


@pytest.mark.parametrize(
    ("line", "largest", "smallest"),
    [
        ("0 */5 * * * ? *", Cycle.MINUTE, Cycle.MINUTE),
        ("0 * * * * ? *", Cycle.MINUTE, Cycle.MINUTE),
        ("0 0 * * * ? *", Cycle.HOUR, Cycle.HOUR),
        ("0 0 0/2 * * ? *", Cycle.HOUR, Cycle.HOUR),
        ("0 10,20 8-17/2 * * ? *", Cycle.HOUR, Cycle.HOUR),
        ("0 0 3 * * ? *", Cycle.DAY, Cycle.DAY),
        ("0 0 3 1/2 * ? *", Cycle.DAY, Cycle.DAY),
        ("0 0 3 ? * * *", Cycle.WEEK, Cycle.WEEK),
        ("0 0 3 ? * 2 *", Cycle.MONTH, Cycle.MONTH),
        ("0 0 3 ? * MON-FRI *", Cycle.MONTH, Cycle.MONTH),
        ("0 0 3 1 * ? *", Cycle.MONTH, Cycle.MONTH),
        ("0 0 3 L */2 ? *", Cycle.MONTH, Cycle.MONTH),
        ("0 0 3 1 1 ? *", None, None),
        ("0 */5 8 1 1 ? *", None, Cycle.MINUTE),
        ("0 * * ? * * *", Cycle.WEEK, Cycle.MINUTE),
    ],
)
def test_the_cycles_of_a_line_follow_its_fields(
    line: str, largest: Cycle | None, smallest: Cycle | None
) -> None:
    cron = Cron.parse(line)
    assert (max_cycle(cron), min_cycle(cron)) == (largest, smallest)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("* * * * * ?", 1),
        ("0/7 * * * * ?", 4),
        ("0,59 0 3 * * ?", 59),
        ("59 59 23 * * ?", 86_400),
        ("0,59 0,59 0,23 * * ?", 1),
        ("0 0,59 0,23 * * ?", 60),
        ("0 0,59 0,23 ? * MON", 3540),
        ("0 0,59 0,23 1,L * ?", 60),
        ("0 0,59 0,23 1,15 * ?", 3540),
        ("0 0 3 ? * MON,THU", 86_400),
        ("0 * * * * ?", 60),
        ("0 0 3 29 2 ?", 86_400),
        ("0 0 3 1 1 ? 2050", 86_400),
    ],
)
def test_the_least_gap_of_a_line_is_that_of_its_closest_fires(line: str, seconds: int) -> None:
    assert Cron.parse(line).least_gap == seconds
