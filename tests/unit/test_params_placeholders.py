"""`$[form]`: every example of contract §9.4 and its traps, by number."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from common.params import ParameterError, replace_placeholders

NEW_YORK = ZoneInfo("America/New_York")
UTC_ZONE = ZoneInfo("UTC")
WEDNESDAY = "2018-07-04 10:20:30"


def printed(text: str, at: str = WEDNESDAY, zone: ZoneInfo = UTC_ZONE, fold: int = 0) -> str:
    """The text with its placeholders evaluated at the time that the clock of the zone shows."""
    moment = datetime.fromisoformat(at).replace(tzinfo=zone, fold=fold)
    return replace_placeholders(text, moment=moment.astimezone(UTC), zone=zone)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$[yyyyMMdd]", "20180704"),
        ("$[yyyyMMdd-1]", "20180703"),
        ("$[yyyyMMdd+1]", "20180705"),
        ("$[yyyy-MM-dd]", "2018-07-04"),
        ("$[yyyy-MM-dd-1]", "2018-07-03"),
        ("$[yyyy-MM-dd+1]", "2018-07-05"),
        ("$[yyyyMMdd+1-1]", "20180704"),
        ("$[yyyyMMdd-7*2]", "20180620"),
        ("$[yyyyMMdd+7*2]", "20180718"),
        ("$[yyyyMMdd-2*(3)]", "20180628"),
        ("$[HH:mm:ss-1/24]", "09:20:30"),
        ("$[HH:mm:ss+2/24]", "12:20:30"),
        ("$[HH:mm:ss+1/24/60]", "10:21:30"),
        ("$[HH:mm:ss-15/24/60]", "10:05:30"),
        ("$[HH:mm+1/24*2]", "12:20"),
        ("$[HH:mm+1/24-1]", "11:19"),
        ("$[yyyyMMddHHmmss]", "20180704102030"),
        ("$[week_begin(yyyyMMdd, 1)]", "20180703"),
        ("$[week_begin(yyyyMMdd,0)]", "20180702"),
        ("$[week_end(yyyyMMdd,0)]", "20180708"),
        ("$[week_end(yyyyMMdd,-1)]", "20180707"),
        ("$[month_begin(yyyyMMdd,0)]", "20180701"),
        ("$[month_begin(yyyyMMdd,1)]", "20180702"),
        ("$[month_end(yyyyMMdd, -1)]", "20180730"),
        ("$[month_end(yyyyMMdd,0)]", "20180731"),
        ("$[add_months(yyyyMMdd,-1)]", "20180604"),
        ("$[add_months(yyyyMMdd,12*1)]", "20190704"),
        ("$[add_months(yyyyMMdd,-12*2+1)]", "20160804"),
        ("$[timestamp(yyyyMMddHHmmss)]", "1530699630"),
        ("$[timestamp(yyyyMMddHHmmss-1/24)]", "1530696030"),
        ("$[timestamp(yyyyMMdd000000)]", "1530662400"),
        ("$[timestamp(month_begin(yyyyMMddHHmmss,0))]", "1530440430"),
        ("a $[dd] b $[MM]$[yy] c", "a 04 b 0718 c"),
        ("$[yyyyMMdd-$[d]]", "20180630"),
        ("$[yyyy'年'MM月]", "2018年07月"),
    ],
)
def test_a_form_prints_the_date_that_it_counts(text: str, expected: str) -> None:
    assert printed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$[month_first_day(yyyy-MM-dd)]", "2022-08-01"),
        ("$[month_first_day(yyyy-MM-dd,-1)]", "2022-07-01"),
        ("$[month_last_day(yyyy-MM-dd)]", "2022-08-31"),
        ("$[month_last_day(yyyy-MM-dd,-1)]", "2022-07-31"),
        ("$[month_last_day(yyyy-MM-dd,-6)]", "2022-02-28"),
        ("$[week_first_day(yyyy-MM-dd)]", "2022-08-22"),
        ("$[week_first_day(yyyy-MM-dd,-1)]", "2022-08-15"),
        ("$[week_last_day(yyyy-MM-dd)]", "2022-08-28"),
        ("$[week_last_day(yyyy-MM-dd,-1)]", "2022-08-21"),
        ("$[this_day(yyyy-MM-dd HH)]", "2022-08-26 10"),
        ("$[last_day(yyyyMMdd)]", "20220825"),
        ("$[year_week(yyyy-MM-dd)]", "2022-34"),
        ("$[year_week(yyyyMMdd)]", "202234"),
        ("$[year_week(yyyy-MM-dd,5)]", "2022-35"),
        ("$[year_week(yyyyMMdd, 7)]", "202234"),
    ],
)
def test_the_functions_of_later_versions_print_their_dates(text: str, expected: str) -> None:
    assert printed(text, at="2022-08-26 10:00:00") == expected


def test_the_week_of_a_sunday_began_six_days_before() -> None:
    sunday = "2018-07-08 23:59:59"
    assert printed("$[week_begin(yyyyMMddHHmmss,0)]", at=sunday) == "20180702235959"
    assert printed("$[week_end(yyyyMMddHHmmss,0)]", at=sunday) == "20180708235959"


@pytest.mark.parametrize(
    ("day", "text", "expected"),
    [
        ("2021-01-01", "$[year_week(yyyyMMdd)]", "202053"),
        ("2021-01-01", "$[year_week(yyyy-MM-dd)]", "2020-53"),
        ("2018-12-31", "$[year_week(yyyy-MM-dd)]", "2019-01"),
        ("2018-12-31", "$[year_week(yyyyMMdd)]", "20191"),
        ("2021-01-03", "$[year_week(yyyy-MM-dd,7)]", "2021-01"),
        ("2021-01-02", "$[year_week(yyyy-MM-dd,7)]", "2020-53"),
    ],
)
def test_t64_year_week_prints_the_year_that_the_week_belongs_to(
    day: str, text: str, expected: str
) -> None:
    assert printed(text, at=f"{day} 12:00:00") == expected


@pytest.mark.parametrize(
    ("day", "text", "expected"),
    [
        ("2020-03-31", "$[add_months(yyyyMMdd,-1)]", "20200229"),
        ("2019-03-31", "$[add_months(yyyyMMdd,-1)]", "20190228"),
        ("2020-02-29", "$[add_months(yyyyMMdd,12)]", "20210228"),
        ("2020-12-31", "$[add_months(yyyyMMdd,2)]", "20210228"),
        ("2020-01-15", "$[month_begin(yyyyMMddHHmmss,0)]", "20200101023000"),
        ("2020-02-15", "$[month_end(yyyyMMddHHmmss,0)]", "20200229023000"),
        ("2020-03-31", "$[month_first_day(yyyyMMddHHmmss,-1)]", "20200201023000"),
    ],
)
def test_t92_months_are_clipped_and_keep_the_time_of_day(
    day: str, text: str, expected: str
) -> None:
    assert printed(text, at=f"{day} 02:30:00") == expected


def test_t45_minus_one_is_yesterday_even_when_today_has_25_hours() -> None:
    late = "2019-11-03 23:30:00"
    assert printed("$[yyyyMMdd-1]", at=late, zone=NEW_YORK) == "20191102"
    assert printed("$[yyyyMMddHHmm-24/24]", at=late, zone=NEW_YORK) == "201911022330"
    assert printed("$[yyyyMMddHHmm-1]", at=late, zone=NEW_YORK) == "201911022330"


def test_t45_plus_one_is_tomorrow_even_when_today_has_23_hours() -> None:
    assert printed("$[yyyyMMddHHmm+1]", at="2019-03-10 00:30:00", zone=NEW_YORK) == "201903110030"


def test_t45_hours_are_elapsed_time_across_the_doubled_hour() -> None:
    at = "2019-11-03 01:30:00"
    assert printed("$[HHmm-1/24]", at=at, zone=NEW_YORK, fold=1) == "0130"
    assert printed("$[HHmm-1/24]", at=at, zone=NEW_YORK, fold=0) == "0030"
    assert printed("$[HHmm-25/24]", at="2019-11-03 23:30:00", zone=NEW_YORK) == "2330"


def test_t45_a_timestamp_tells_the_two_equal_wall_clock_times_apart() -> None:
    at, form = "2019-11-03 01:30:00", "$[timestamp(yyyyMMddHHmmss)]"
    first = int(printed(form, at=at, zone=NEW_YORK, fold=0))
    second = int(printed(form, at=at, zone=NEW_YORK, fold=1))
    assert (first, second - first) == (1572759000, 3600)


def test_a_skipped_wall_clock_time_becomes_as_much_later_as_the_gap_is_wide() -> None:
    text = printed("$[yyyyMMddHHmm+1]", at="2019-03-09 02:30:00", zone=NEW_YORK)
    assert text == "201903100330"


def test_t93_counting_from_the_day_before_keeps_the_original_time_of_day() -> None:
    text = printed("$[yyyyMMddHHmm+2]", at="2019-03-09 02:30:00", zone=NEW_YORK)
    assert text == "201903110230"


def test_a_day_that_the_zone_skipped_still_counts_as_a_date() -> None:
    apia = ZoneInfo("Pacific/Apia")
    assert printed("$[yyyyMMdd+1]", at="2011-12-29 12:00:00", zone=apia) == "20111230"
    assert printed("$[yyyyMMdd-1]", at="2011-12-31 12:00:00", zone=apia) == "20111230"


def test_a_moment_is_printed_on_the_wall_clock_of_its_zone() -> None:
    moment = datetime(2020, 1, 1, 3, 0, tzinfo=UTC)
    text = replace_placeholders("$[yyyyMMddHH]", moment=moment, zone=NEW_YORK)
    assert text == "2019123122"


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ParameterError, match="no time zone"):
        replace_placeholders("$[yyyy]", moment=datetime.fromisoformat("2020-01-01"), zone=UTC_ZONE)


def test_t94_division_is_in_integers() -> None:
    # 5/7 of a day is 1028 minutes: 17 hours and 8 minutes.
    assert printed("$[HH:mm+5/7]", at="2018-07-04 00:00:00") == "17:08"


@pytest.mark.parametrize(
    "text",
    ["$[yyyyMMdd-0.5]", "$[yyyyMMdd+1.0]", "$[add_months(yyyyMMdd,0.5)]", "$[HHmm-1.5/24]"],
)
def test_t94_decimals_leave_the_placeholder(text: str) -> None:
    assert printed(text) == text


def test_t95_a_plus_anywhere_hides_every_minus() -> None:
    assert printed("$[yyyy+MM-1]") == "2018+07-1"
    assert printed("$[yyyyMMdd-1+1]") == "20180705-1"


def test_without_a_digit_behind_the_last_sign_the_whole_text_is_the_pattern() -> None:
    assert printed("$[yyyyMMdd-1-]") == "20180704-1-"
    assert printed("$[yyyyMMdd-1 + 1]") == "20180704-1 + 1"


@pytest.mark.parametrize(
    "text",
    [
        "$[1]",
        "$[12]",
        "$[ 1 + 2 ]",
        "$[ $a + 1 ]",
        "$[$a+1]",
        "$[${n}-1]",
        "${arr[1]} ${arr[@]} ${#arr[*]} $((1+2)) $(date)",
        "$[a[1]]",
        "$[count+1]",
        "$['abc']",
        "$[-1]",
        "$[]",
        "$[",
        "]$",
        "$[yyyy",
        "${arr[$[1]]}",
    ],
)
def test_t96_shell_arrays_and_shell_arithmetic_survive(text: str) -> None:
    assert printed(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "$[yyyyMMddZ]",
        "$[yyyy VV]",
        "$[yyyy#]",
        "$[{yyyy}]",
        "$[yyyy[MM]]",
        "$[MMMMMM]",
        "$[ddd]",
        "$[yyyy'T]",
        "$[yyyyMMdd-1 *2]",
        "$[yyyyMMdd-1()]",
        "$[yyyyMMdd-1(2)]",
        "$[yyyyMMdd-1)]",
        "$[yyyyMMdd-1/0]",
        "$[yyyyMMdd-2*]",
        "$[yyyyMMdd-2*(3/24)]",
        "$[yyyyMMdd-1*(2+3)]",
        "$[yyyyMMdd-9999999]",
        "$[yyyyMMdd+99999999999999999999]",
        "$[HH-99999999999999999999/24]",
        "$[add_months(yyyyMMdd)]",
        "$[add_months(yyyyMMdd,1,2)]",
        "$[add_months(yyyyMMdd,)]",
        "$[add_months(yyyyMMdd,x)]",
        "$[add_months(yyyyMMdd,99999999999)]",
        "$[add_months(123,1)]",
        "$[week_end(yyyyMMdd,1]",
        "$[week_end(yyyyMMdd,1)-1]",
        "$[week_begin(yyyyMMdd,99999999999)]",
        "$[timestamp(yyyyMMdd)]",
        "$[timestamp(timestamp(yyyyMMddHHmmss))]",
        "$[timestamp(year_week(yyyyMMdd))]",
        "$[this_day(yyyy,1)]",
        "$[last_day()]",
        "$[year_week(yyyy,0)]",
        "$[year_week(yyyy,8)]",
        "$[year_week(yyyy,1,1)]",
        "$[month_first_day(yyyy,1,1)]",
    ],
)
def test_what_is_no_form_is_left_as_it_was_written(text: str) -> None:
    assert printed(text) == text


def test_a_form_left_alone_hinders_nothing_beside_or_inside_it() -> None:
    assert printed("$[1] $[x $[dd]] $[ $[MM]") == "$[1] $[x 04] $[ 07"


def test_amounts_allow_signs_and_parentheses_and_blanks_around_them() -> None:
    assert printed("$[add_months(yyyyMM, -(1+2)*2 )]") == "201801"
    assert printed("$[add_months(yyyyMM,+1)]") == "201808"
    assert printed("$[add_months(yyyyMM,-7/2)]") == "201804"
    assert printed("$[yyyyMMdd-1 ]") == "20180703"
    assert printed("$[yyyyMMdd+2*-1]") == "20180702"


# Each value is what a Java 17 DateTimeFormatter printed, in English with ISO weeks.
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("G GGGG GGGGG", "AD Anno Domini A"),
        ("y yy yyy yyyy yyyyy", "2018 18 2018 2018 02018"),
        ("u uu uuuu Y YY YYYY", "2018 18 2018 2018 18 2018"),
        ("M MM MMM MMMM MMMMM", "7 07 Jul July J"),
        ("L LL LLL LLLL", "7 07 Jul July"),
        ("d dd D DD DDD", "4 04 185 185 185"),
        ("E EEE EEEE EEEEE", "Wed Wed Wednesday W"),
        ("e ee eee eeee eeeee", "3 03 Wed Wednesday W"),
        ("w ww W", "27 27 1"),
        ("Q QQ QQQ QQQQ QQQQQ", "3 03 Q3 3rd quarter 3"),
        ("H HH k kk K KK h hh a", "10 10 10 10 10 10 10 10 AM"),
        ("m mm s ss", "20 20 30 30"),
        ("S SSS SSSSSS SSSSSSSSS", "1 123 123456 123456000"),
        ("n nnnnnnnnnn", "123456000 0123456000"),
        ("yyyy'T'HH 'it''s' ''", "2018T10 it's '"),
        ("''d ''''d '''' *:/,.d", "'4 '4 ' *:/,.4"),
    ],
)
def test_a_pattern_prints_what_java_prints(pattern: str, expected: str) -> None:
    assert printed(f"$[{pattern}]", at="2018-07-04 10:20:30.123456") == expected


def test_the_hours_of_midnight_and_noon_follow_their_letters() -> None:
    assert printed("$[H k K h a]", at="2018-07-04 00:05:00") == "0 24 0 12 AM"
    assert printed("$[H k K h a]", at="2018-07-04 12:05:00") == "12 12 0 12 PM"


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("2021-01-01", "2020 53 0"),
        ("2021-01-04", "2021 1 1"),
        ("2022-05-01", "2022 17 0"),
        ("2022-05-02", "2022 18 1"),
        ("2020-12-31", "2020 53 5"),
        ("2018-12-31", "2019 1 5"),
    ],
)
def test_week_letters_follow_iso_weeks(day: str, expected: str) -> None:
    assert printed("$[Y w W]", at=f"{day} 12:00:00") == expected


@pytest.mark.parametrize("nest", ["$[", "$[y", "$[yyyy$[", "$[[", "$[d-1"])
def test_a_megabyte_of_nested_brackets_is_answered(nest: str) -> None:
    count = 500_000 // len(nest)
    assert printed(nest * count) == nest * count
    closed = printed(nest * count + "]" * nest.count("[") * count)
    assert len(closed) <= 1_000_000
