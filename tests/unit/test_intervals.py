"""The intervals of every date value of a DEPENDENT task, through changes of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from common.depend_intervals import DATE_VALUES_CUT, intervals
from common.model.depend_items import DATE_VALUES
from tests.unit.dependences import (
    APIA,
    BERLIN,
    FAILED,
    FIRST,
    LAST,
    LORD_HOWE,
    NEW_YORK,
    NOON,
    SAO_PAULO,
    ST_JOHNS,
    SUCCESS,
    UTC_ZONE,
    WAITING,
    a_run,
    an_item,
    result_of,
    verdict,
    waits_for,
)


def spans(date_value: str, at: str, zone: ZoneInfo = UTC_ZONE, fold: int = 0) -> list[str]:
    """The intervals as the zone's clock shows them, `from/to`."""
    moment = datetime.fromisoformat(at).replace(tzinfo=zone, fold=fold)
    return [
        "/".join(
            end.astimezone(zone).strftime("%m-%d %H:%M") for end in (interval.start, interval.end)
        )
        for interval in intervals(an_item(date_value), moment, zone)
    ]


def days(first: str, last: str) -> list[str]:
    """One span for each day of 2020 from the first to the last."""
    one, until = date.fromisoformat(f"2020-{first}"), date.fromisoformat(f"2020-{last}")
    return [
        f"{day:%m-%d} 00:00/{day + timedelta(days=1):%m-%d} 00:00"
        for number in range((until - one).days + 1)
        for day in [one + timedelta(days=number)]
    ]


@pytest.mark.parametrize(
    ("date_value", "expected"),
    [
        ("currentHour", ["03-11 12:00/03-11 13:00"]),
        ("last1Hour", ["03-11 11:00/03-11 12:00"]),
        ("last2Hours", ["03-11 10:00/03-11 11:00", "03-11 11:00/03-11 12:00"]),
        (
            "last3Hours",
            ["03-11 09:00/03-11 10:00", "03-11 10:00/03-11 11:00", "03-11 11:00/03-11 12:00"],
        ),
        ("today", days("03-11", "03-11")),
        ("last1Days", days("03-10", "03-10")),
        ("last2Days", days("03-09", "03-10")),
        ("last3Days", days("03-08", "03-10")),
        ("last7Days", days("03-04", "03-10")),
        ("thisWeek", days("03-09", "03-11")),
        ("lastWeek", days("03-02", "03-08")),
        ("lastMonday", days("03-02", "03-02")),
        ("lastTuesday", days("03-03", "03-03")),
        ("lastWednesday", days("03-04", "03-04")),
        ("lastThursday", days("03-05", "03-05")),
        ("lastFriday", days("03-06", "03-06")),
        ("lastSaturday", days("03-07", "03-07")),
        ("lastSunday", days("03-08", "03-08")),
        ("thisMonth", days("03-01", "03-11")),
        ("thisMonthBegin", days("03-01", "03-01")),
        ("thisMonthEnd", days("03-31", "03-31")),
        ("lastMonth", days("02-01", "02-29")),
        ("lastMonthBegin", days("02-01", "02-01")),
        ("lastMonthEnd", days("02-29", "02-29")),
    ],
)
def test_a_date_value_means_these_intervals(date_value: str, expected: list[str]) -> None:
    assert spans(date_value, "2020-03-11 12:34:56.789") == expected


def test_every_date_value_that_can_be_written_has_its_intervals() -> None:
    written = [(cycle, value) for cycle, values in DATE_VALUES.items() for value in values]
    assert list(DATE_VALUES_CUT) == written


def test_t88_last_24_hours_is_aligned_to_the_day_and_not_to_the_moment() -> None:
    expected = [
        *(f"03-10 {hour:02}:00/03-10 {hour + 1:02}:00" for hour in range(1, 23)),
        "03-10 23:00/03-11 00:00",
        "03-11 00:00/03-11 01:00",
    ]
    assert len(expected) == 24
    for clock in ("00:00:00", "12:34:56", "23:59:59"):
        assert spans("last24Hours", f"2020-03-11 {clock}") == expected


@pytest.mark.parametrize(
    ("day", "last"), [("2020-02-03", "02-29"), ("2020-12-31", "12-31"), ("2020-04-30", "04-30")]
)
def test_t44_the_end_of_this_month_is_its_last_day(day: str, last: str) -> None:
    (span,) = spans("thisMonthEnd", f"{day} 10:00")
    assert span.startswith(last)


def test_a_sunday_belongs_to_the_week_that_began_six_days_before() -> None:
    assert spans("thisWeek", "2020-03-15 23:59:59.999999") == days("03-09", "03-15")
    assert spans("lastSunday", "2020-03-15 00:00") == days("03-08", "03-08")
    assert spans("thisWeek", "2020-03-16 00:00") == days("03-16", "03-16")


def test_an_interval_holds_its_start_and_not_its_end() -> None:
    (today,) = intervals(an_item("today"), NOON, UTC_ZONE)
    assert today.contains(today.start)
    assert today.contains(today.end - timedelta(microseconds=1))
    assert not today.contains(today.end)


def test_t45_a_day_of_a_change_of_the_clock_has_23_or_25_hours() -> None:
    for clock, hours in (("2020-03-29 12:00", 23), ("2020-10-25 12:00", 25)):
        moment = datetime.fromisoformat(clock).replace(tzinfo=BERLIN)
        (today,) = intervals(an_item("today"), moment, BERLIN)
        assert today.end - today.start == timedelta(hours=hours)


@pytest.mark.parametrize("fold", [0, 1])
def test_t45_the_doubled_hour_is_one_interval(fold: int) -> None:
    moment = datetime(2019, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=fold)
    (hour,) = intervals(an_item("currentHour"), moment, NEW_YORK)
    assert hour.start == datetime(2019, 11, 3, 5, tzinfo=UTC)
    assert hour.end == datetime(2019, 11, 3, 7, tzinfo=UTC)
    assert spans("last1Hour", "2019-11-03 02:10", NEW_YORK) == ["11-03 01:00/11-03 02:00"]


def test_t45_an_hour_that_the_clock_leaves_out_is_passed_over() -> None:
    assert spans("last2Hours", "2020-03-29 03:10", BERLIN) == [
        "03-29 00:00/03-29 01:00",
        "03-29 01:00/03-29 03:00",
    ]
    assert len(spans("last24Hours", "2020-03-30 08:00", BERLIN)) == 23


def test_t45_a_change_of_half_an_hour_makes_a_short_and_a_long_hour() -> None:
    spring = datetime(2020, 10, 4, 2, 45, tzinfo=LORD_HOWE)
    (hour,) = intervals(an_item("currentHour"), spring, LORD_HOWE)
    assert hour.end - hour.start == timedelta(minutes=30)
    autumn = datetime(2020, 4, 5, 1, 45, tzinfo=LORD_HOWE, fold=1)
    (hour,) = intervals(an_item("currentHour"), autumn, LORD_HOWE)
    assert hour.end - hour.start == timedelta(minutes=90)


def test_a_day_may_begin_at_one_o_clock() -> None:
    assert spans("today", "2018-11-04 12:00", SAO_PAULO) == ["11-04 01:00/11-05 00:00"]
    hours = spans("last24Hours", "2018-11-04 12:00", SAO_PAULO)
    assert (len(hours), hours[-1]) == (23, "11-03 23:00/11-04 01:00")


def test_minutes_that_are_set_back_across_midnight_belong_to_the_day_that_has_begun() -> None:
    # At 00:01 the clock went back to 23:01 of the day before.
    moment = datetime(2010, 11, 7, 2, 40, tzinfo=UTC)
    assert f"{moment.astimezone(ST_JOHNS):%d %H:%M}" == "06 23:10"
    (today,) = intervals(an_item("today"), moment, ST_JOHNS)
    assert today.start == datetime(2010, 11, 7, 2, 30, tzinfo=UTC)
    (hour,) = intervals(an_item("currentHour"), moment, ST_JOHNS)
    assert (hour.start, hour.end) == (today.start, today.start + timedelta(hours=2))


def test_a_day_that_the_zone_left_out_is_passed_over() -> None:
    assert spans("last2Days", "2011-12-31 09:00", APIA) == [
        "12-28 00:00/12-29 00:00",
        "12-29 00:00/12-31 00:00",
    ]
    assert spans("lastFriday", "2012-01-04 09:00", APIA) == []
    hours = spans("last24Hours", "2011-12-31 09:00", APIA)
    assert (len(hours), hours[0], hours[-2:]) == (
        24,
        "12-29 01:00/12-29 02:00",
        ["12-29 23:00/12-31 00:00", "12-31 00:00/12-31 01:00"],
    )


def test_t93_days_begin_at_midnight_wherever_the_counting_began() -> None:
    # Counted from 02:30 in steps of a day, the days behind the change would begin an hour late.
    moment = datetime(2020, 4, 1, 2, 30, tzinfo=BERLIN)
    for interval in intervals(an_item("last7Days"), moment, BERLIN):
        assert f"{interval.start.astimezone(BERLIN):%H:%M}" == "00:00"


def test_t46_the_zone_decides_which_day_a_moment_is_in() -> None:
    moment = datetime(2020, 3, 11, 2, 0, tzinfo=UTC)
    (here,) = intervals(an_item("today"), moment, NEW_YORK)
    assert here.contains(datetime(2020, 3, 10, 5, tzinfo=UTC))
    same = moment.astimezone(timezone(timedelta(hours=9)))
    assert intervals(an_item("today"), same, NEW_YORK) == (here,)


def test_t46_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no zone"):
        intervals(an_item(), NOON.replace(tzinfo=None), UTC_ZONE)


def test_t46_runs_are_compared_as_instants_whatever_zone_they_are_written_in() -> None:
    midnight = datetime(2020, 3, 11, tzinfo=UTC)
    for hours in (-11, 0, 9):
        inside = midnight.astimezone(timezone(timedelta(hours=hours)))
        outside = inside - timedelta(microseconds=1)
        assert result_of(an_item(), a_run(schedule_time=inside)) is SUCCESS
        assert result_of(an_item(), a_run(schedule_time=outside)) is WAITING


@pytest.mark.parametrize("date_value", list(DATE_VALUES_CUT.keys()))
def test_the_ends_of_the_calendar_have_intervals_or_none(date_value: tuple[str, str]) -> None:
    for moment in (FIRST, LAST):
        for zone in (UTC_ZONE, APIA, NEW_YORK):
            intervals(an_item(date_value[1]), moment, zone)


def test_an_unknown_date_value_means_no_interval_and_fails() -> None:
    looked = verdict(waits_for(an_item("yesterday")), None)
    assert looked.result is FAILED
    assert looked.evidence[0]["why"] == "the date value means no interval at this moment"
