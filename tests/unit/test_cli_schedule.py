"""Times as people type them, and previews: the effect of a zone's clock on a schedule's fires."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from io import BytesIO
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from common.cron import Cron, MissingTime, RepeatedTime, Timetable
from operations.coming_fires import (
    Mark,
    clock_changes,
    coming,
    effect_of_change,
    effect_on_fire,
)
from operations.errors import UsageError
from operations.schedule_checks import check_window
from operations.schedule_settings import read_cron, read_deadline
from operations.simulating import read_assumed
from operations.start_params import params_of
from operations.times import moment_in, read_moment, read_zone, seconds_of, stored_name
from orcaflow.cli.app import main

Cli = Callable[..., tuple[int, str, str]]
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)
NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs a command in a home of its own, without any database."""
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORCAFLOW_TIME_ZONE", "Europe/Berlin")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def a_timetable(
    cron: str,
    zone: str = "America/New_York",
    *,
    missing: MissingTime = MissingTime.SHIFT,
    repeated: RepeatedTime = RepeatedTime.FIRST,
) -> Timetable:
    return Timetable(cron=Cron.parse(cron), zone=ZoneInfo(zone), missing=missing, repeated=repeated)


def marks(timetable: Timetable, after: datetime, count: int = 4) -> list[tuple[str, Mark | None]]:
    return [
        (fire.local.isoformat(sep=" "), fire.mark)
        for fire in islice(coming(timetable, after), count)
    ]


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-31", "2026-01-31T05:00:00"),
        (" 2026-01-31 02:30:00 ", "2026-01-31T07:30:00"),
        ("2026-01-31T02:30", "2026-01-31T07:30:00"),
        ("2026-01-31 02:30:00Z", "2026-01-31T02:30:00"),
        ("2026-01-31 02:30:00+05:30", "2026-01-30T21:00:00"),
        # A skipped time is later by the length of the gap; of two equal ones the first is meant.
        ("2026-03-08 02:30:00", "2026-03-08T07:30:00"),
        ("2026-11-01 01:30:00", "2026-11-01T05:30:00"),
    ],
)
def test_a_time_is_read_on_the_wall_of_the_zone(text: str, instant: str) -> None:
    assert moment_in(text, NEW_YORK) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


def test_a_date_alone_is_its_beginning_or_its_end() -> None:
    assert moment_in("2026-03-08", NEW_YORK) == datetime(2026, 3, 8, 5, tzinfo=UTC)
    end = moment_in("2026-03-08", NEW_YORK, ends_day=True)
    assert end == datetime(2026, 3, 9, 3, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "today", "2026-02-30", "2026-1-1", "20260101", "2026-W01", "1767225600"),
        *("2026-01-01 24:00:00", "2026-01-01 00:00:00+99:00", "9999-12-31 23:00:00", "0000-01-01"),
        "0001-01-01 00:00:00+10:00",
    ],
)
def test_a_text_that_is_no_time_is_refused_with_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time|outside the years"):
        moment_in(text, NEW_YORK)


def test_spans_are_whole_seconds_with_a_unit() -> None:
    assert [seconds_of(text) for text in ("90", "90s", "10m", "2h", "1d")] == [
        *(90, 90, 600, 7200),
        86_400,
    ]
    for text in ("", "0", "-1", "1.5h", "2w", "h", "9999999999d"):
        with pytest.raises(ValueError, match="no span of time"):
            seconds_of(text)


def test_parameters_are_pairs_and_each_is_given_once() -> None:
    assert params_of(["a=1", " b =x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for pairs in (["a"], ["=1"], ["a=1", "a=2"], ["a=\0"], ["a=\udcff"]):
        with pytest.raises(UsageError):
            params_of(pairs)


def test_a_zone_is_known_by_its_name_and_near_ones_are_named() -> None:
    assert read_zone(" Asia/Kolkata ").key == "Asia/Kolkata"
    with pytest.raises(UsageError, match="did you mean Asia/Kolkata"):
        read_zone("asia/kolkata")
    for name in ("", "/etc/localtime", "../UTC", "America", "x" * 10_000, "Mars/Olympus\0"):
        with pytest.raises(UsageError, match="is no zone"):
            read_zone(name)
    # The zone of a computer that has no name for it can't be stored.
    assert stored_name(NEW_YORK) == "America/New_York"
    nameless = ZoneInfo.from_file(
        BytesIO(files("tzdata.zoneinfo").joinpath("UTC").read_bytes()), key="local"
    )
    assert stored_name(nameless) is None


def test_fires_that_the_clock_shifts_are_marked_with_the_time_that_was_meant() -> None:
    timetable = a_timetable("0 30 2 * * ?")
    after = datetime(2026, 3, 7, tzinfo=UTC)
    assert marks(timetable, after, 3) == [
        ("2026-03-07 02:30:00-05:00", None),
        ("2026-03-08 03:30:00-04:00", Mark.SHIFTED),
        ("2026-03-09 02:30:00-04:00", None),
    ]
    shifted = list(islice(coming(timetable, after), 2))[1]
    assert effect_on_fire(shifted) == "shifted: the clock skips 2026-03-08 02:30:00"


def test_a_day_that_a_zone_skips_is_reported_with_both_dates() -> None:
    timetable = a_timetable("0 0 12 * * ?", "Pacific/Apia")
    fires = list(islice(coming(timetable, datetime(2011, 12, 28, tzinfo=UTC)), 3))
    # The shifted fire is that of the next day already, so that nothing is shifted.
    assert [fire.mark for fire in fires] == [None, None, None]
    (change,) = clock_changes(timetable, fires[0].fire_time, fires[2].fire_time)
    assert effect_of_change(change, timetable) == (
        "2011-12-30 00:00:00: the clock jumps to 2011-12-31 00:00:00; 12:00:00 fires 24h00m00s later"
    )


@pytest.mark.parametrize(
    ("repeated", "shown", "words"),
    [
        (RepeatedTime.FIRST, [("2026-11-01 01:30:00-04:00", Mark.FIRST)], "the first time only"),
        (RepeatedTime.SECOND, [("2026-11-01 01:30:00-05:00", Mark.SECOND)], "the second time only"),
        (
            RepeatedTime.BOTH,
            [
                ("2026-11-01 01:30:00-04:00", Mark.FIRST),
                ("2026-11-01 01:30:00-05:00", Mark.SECOND),
            ],
            "both times",
        ),
    ],
)
def test_fires_of_a_repeated_time_are_marked_as_the_first_or_the_second(
    repeated: RepeatedTime, shown: list[tuple[str, Mark]], words: str
) -> None:
    timetable = a_timetable("0 30 1 * * ?", repeated=repeated)
    after = datetime(2026, 11, 1, tzinfo=UTC)
    assert marks(timetable, after, len(shown)) == shown
    (change,) = clock_changes(timetable, after, after + timedelta(days=2))
    assert effect_of_change(change, timetable) == (
        "2026-11-01 02:00:00: the clock goes back to 01:00:00; 01:30:00 is shown twice, and fires "
        + words
    )


def test_skipped_fires_are_reported_even_where_no_fire_is_left() -> None:
    timetable = a_timetable("0 0/30 2 8 3 ? 2026", missing=MissingTime.SKIP)
    after = datetime(2026, 1, 1, tzinfo=UTC)
    assert marks(timetable, after) == []
    (change,) = clock_changes(timetable, after, None)
    assert (change.number, change.is_forward) == (2, True)
    assert "02:00:00, 02:30:00 do not fire on that day" in effect_of_change(change, timetable)


def test_clock_changes_that_meet_no_fire_are_not_reported() -> None:
    timetable = a_timetable("0 0 12 * * ?")
    assert clock_changes(timetable, datetime(2026, 1, 1, tzinfo=UTC), None) == []


def test_a_change_by_half_an_hour_and_many_fires_is_reported_with_the_first_few() -> None:
    timetable = a_timetable("0 * * * * ?", "Australia/Lord_Howe")
    after = datetime(2026, 10, 3, tzinfo=UTC)
    (change,) = clock_changes(timetable, after, after + timedelta(days=2))
    assert (change.number, len(change.wall_times)) == (30, 5)
    assert "and 25 more fire 30m00s later" in effect_of_change(change, timetable)


@pytest.mark.parametrize("cron", ["0 30 2 29 2 ?", "0 30 2 ? 3 1#2", "* * * * * ?", "0 0 1 * * ?"])
def test_a_preview_is_the_timetable_and_nothing_else(cron: str) -> None:
    timetable = a_timetable(cron)
    after = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)
    wanted = list(islice(timetable.between(after + timedelta(seconds=1), _LATEST), 300))
    assert [fire.fire_time for fire in islice(coming(timetable, after), 300)] == wanted


def test_a_cron_line_is_previewed_without_any_database(cli: Cli) -> None:
    code, out, _ = cli(
        *("schedule", "preview", "--cron", "0 30 2 * * ?", "--zone", "America/New_York"),
        *("--after", "2026-03-07", "--count", "2", "-o", "json"),
    )
    assert code == 0
    found = json.loads(out)
    assert [
        (fire["fire_time"], fire["local"], fire["meant"], fire["clock"]) for fire in found["fires"]
    ] == [
        ("2026-03-07T07:30:00Z", "2026-03-07 02:30:00-05:00", "2026-03-07 02:30:00", None),
        ("2026-03-08T07:30:00Z", "2026-03-08 03:30:00-04:00", "2026-03-08 02:30:00", "shifted"),
    ]
    assert found["schedules"][0]["description"] == "at 02:30:00 every day"
    (change,) = found["clock_changes"]
    assert (change["before"], change["after"], change["number"]) == (-18_000, -14_400, 1)


def test_a_preview_for_people_says_what_the_clock_does(cli: Cli) -> None:
    code, out, _ = cli(
        *("schedule", "preview", "--cron", "0 30 2 * * ?", "--after", "2026-03-28"),
        *("--count", "3", "--missing", "skip"),
    )
    assert code == 0
    # Without a zone it is the cluster's.
    assert "0 30 2 * * ? in Europe/Berlin: at 02:30:00 every day" in out
    assert "2026-03-30 02:30:00+02:00  2026-03-30 00:30:00Z" in out
    assert "2026-03-29 02:00:00: the clock jumps to 03:00:00; 02:30:00 does not fire" in out


def test_a_line_that_has_ended_is_reported_to_have_no_fires(cli: Cli) -> None:
    code, out, err = cli("schedule", "preview", "--cron", "0 0 0 1 1 ? 2020", "-o", "json")
    assert (code, json.loads(out)["fires"]) == (0, [])
    code, _, err = cli("schedule", "preview", "--cron", "0 0 0 1 1 ? 2020")
    assert (code, err) == (0, "there are no fires\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cron", "0 0 0 31 2 ?"), "never fires"),
        (("--cron", "60 * * * * ?"), "position 1, seconds"),
        (("--cron", "0 0 0 L-99 * ?"), "day-of-month"),
        (("--cron", "0 0 3 * * ?", "--zone", "Mars/Olympus"), "is no zone"),
        (("--cron", "0 0 3 * * ?", "--after", "soon"), "'soon' is no time"),
        (("--cron", "0 0 3 * * ?", "nightly"), "give the ID"),
        ((), "give the ID"),
        (("nightly", "--zone", "UTC"), "go with --cron"),
    ],
)
def test_a_preview_that_makes_no_sense_is_a_usage_error(
    cli: Cli, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = cli("schedule", "preview", *arguments)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (lambda: read_cron("0 0 3 * *"), "cron"),
        (lambda: read_deadline("soon"), "deadline"),
        (lambda: read_zone("Mars/Olympus"), "zone"),
        (lambda: read_moment("soon", ZoneInfo("UTC"), field="after"), "after"),
        (lambda: params_of(["no value"]), "param"),
        (lambda: read_assumed("0s"), "assume"),
        (lambda: check_window(_LATEST, _LATEST, zone=ZoneInfo("UTC")), "to"),
    ],
)
def test_a_wrong_input_is_reported_with_the_field_that_it_was_given_for(
    read: Callable[[], object], field: str
) -> None:
    with pytest.raises(UsageError) as raised:
        read()
    assert raised.value.field == field
