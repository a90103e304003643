"""The calendar report of the flights example: the results of many days together, without Spark.

The results of the days are those that plain Python computes; the pipeline's results of the same
days are another test's subject. The report is compared with figures counted over all flights of the
range at once.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.business_dates import moment_of_date
from common.model.date_rules import DateRule
from common.params import parse_properties, resolve_global_params

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flights"
NEW_YORK = ZoneInfo("America/New_York")
# A snowstorm from Friday to Saturday, over the end of a week.
FIRST, LAST = date(2013, 2, 7), date(2013, 2, 12)
RANGE = f"{FIRST}_{LAST}"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"calendar_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


expected = module("expected")
calendar_report = module("calendar_report")


class Days:
    """A data directory with the results of some days, and the report of them."""

    def __init__(self, data: Path, patch: pytest.MonkeyPatch) -> None:
        self.data = data
        self.folder = data / "flights" / RANGE
        self._patch = patch

    def report(self, *arguments: str) -> int:
        asked = arguments or (FIRST.isoformat(), LAST.isoformat())
        self._patch.setattr(sys, "argv", ["calendar_report.py", *asked, "--data", str(self.data)])
        code: int = calendar_report.main()
        return code

    def results_of(self, day: str) -> Path:
        return self.data / "flights" / f"day={day}" / "results.json"

    def results(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.folder / "results.json").read_text("utf-8"))
        return read

    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "days.csv").open(encoding="utf-8", newline="") as text:
            return list(csv.DictReader(text))

    def text(self) -> str:
        return (self.folder / "report.md").read_text("utf-8")


@pytest.fixture(autouse=True, scope="module")
def _read_once() -> Iterator[None]:
    """The days of the range are picked from the files of the year once, and not for each test."""
    every = [*calendar_report.days_of(FIRST, LAST)]
    read = {table: expected.of_days(table, every) for table in ("flights", "weather")}

    def of_days(table: str, days: Sequence[date]) -> dict[date, list[dict[str, str]]]:
        return {day: [dict(row) for row in read[table][day]] for day in days}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected, "of_days", of_days)
        yield


@pytest.fixture(scope="module")
def all_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("days")
    for day, results in expected.expected_of_days([*calendar_report.days_of(FIRST, LAST)]).items():
        folder = data / "flights" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return data


@pytest.fixture
def days(all_days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Days:
    shutil.copytree(all_days, tmp_path, dirs_exist_ok=True)
    return Days(tmp_path, monkeypatch)


def test_the_figures_of_a_range_are_those_counted_over_all_its_flights_at_once(days: Days) -> None:
    assert days.report() == 0
    assert expected.compare(days.results(), expected.expected_of_range(FIRST, LAST)) == []
    assert days.results()["whole"]["cancelled"] > 800


def test_the_report_has_every_day_and_a_picture(days: Days) -> None:
    days.report()
    assert [row["day"] for row in days.rows()] == [f"2013-02-{day:02}" for day in range(7, 13)]
    assert "All 6 days are there." in days.text()
    assert "| 2013-02-09 | Sat | 684 | 393 |" in days.text()
    assert "| 9E | Endeavor Air Inc. |" in days.text()
    assert "![The delays of each day and hour](calendar.png)" in days.text()
    picture = (days.folder / "calendar.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    assert len(picture) > 20_000


def test_a_missing_day_is_named_and_counts_nowhere(
    days: Days, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(days.results_of("2013-02-08").parent)
    days.results_of("2013-02-10").unlink()
    assert days.report() == 1
    printed = capsys.readouterr().err
    assert "2 of 6 days are missing in it:" in printed
    assert "2013-02-08: the day has never been run" in printed
    assert "2013-02-10: the day has not passed its checks" in printed
    assert "orcaflow complement flights --dates 2013-02-08,2013-02-10 --wait" in printed
    assert "**2 of 6 days are missing**" in days.text()
    assert [row["day"] for row in days.rows() if not row["flights"]] == ["2013-02-08", "2013-02-10"]
    results = days.results()
    assert results["missing"] == ["2013-02-08", "2013-02-10"]
    there = [date(2013, 2, day) for day in (7, 9, 11, 12)]
    flights = [found["whole_day"] for found in expected.expected_of_days(there).values()]
    assert results["whole"]["flights"] == sum(each["flights"] for each in flights)
    assert results["whole"]["arrival_minutes"] == sum(each["arrival_minutes"] for each in flights)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"day": "2013-02-09"', '"day": "2013-02-10"', "holds the results of 2013-02-10"),
        ('"hours": [{"hour"', '"hours": [{"hour": 3}, {"hour"', "is not what this pipeline writes"),
        ('"departure_minutes"', '"departure_sum"', "is not what this pipeline writes"),
        ('"whole_day": {"flights": 291', '"whole_day": {"flights": 290', "hours add up to [291"),
        ('"cancelled": 393', '"cancelled": 392', "do not make 684"),
        ('"hours": [', '"hours": [[', "cannot be read"),
    ],
)
def test_spoilt_results_count_as_missing(days: Days, old: str, new: str, why: str) -> None:
    path = days.results_of("2013-02-09")
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    results, missing = calendar_report.read(days.data / "flights", FIRST, LAST)
    assert len(results) == 5
    assert [sentence for sentence in missing if sentence.startswith("2013-02-09: ")] == missing
    assert why in missing[0]


def test_a_day_that_comes_later_takes_its_place_in_the_next_report(days: Days) -> None:
    late = days.results_of("2013-02-09")
    aside = late.rename(late.with_name("aside.json"))
    assert days.report() == 1
    aside.rename(late)
    assert days.report() == 0
    assert days.results()["missing"] == []
    assert "missing" not in days.text()


def test_the_report_of_the_same_days_is_the_same(days: Days) -> None:
    names = ["calendar.png", "days.csv", "report.md", "results.json"]
    days.report()
    before = [(days.folder / name).read_bytes() for name in names]
    days.report()
    assert [(days.folder / name).read_bytes() for name in names] == before
    assert sorted(path.name for path in days.folder.iterdir()) == names


def test_a_range_without_any_results_leaves_no_report(
    days: Days, capsys: pytest.CaptureFixture[str]
) -> None:
    assert days.report("2013-05-01", "2013-05-31") == 1
    assert "none of the days 2013-05-01 to 2013-05-31 has results" in capsys.readouterr().err
    assert not (days.data / "flights" / "2013-05-01_2013-05-31").exists()


@pytest.mark.parametrize(
    ("first", "last", "why"),
    [
        ("2013-01-02", "2013-01-01", "ends on 2013-01-01, before it starts"),
        ("2013-02-30", "2013-03-01", "a day is written as 2013-01-31, not '2013-02-30'"),
        ("2013-01-01", "", "not ''"),
        ("2012-12-31", "2014-01-01", "more than 366 days"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(
    days: Days, capsys: pytest.CaptureFixture[str], first: str, last: str, why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        days.report(first, last)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_the_figures_in_a_cell_can_be_read_on_every_colour() -> None:
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    def luminance(colour: Any) -> float:
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in to_rgb(colour)
        ]
        return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])

    axes = Figure().subplots()
    for step in range(101):
        colour = colormaps[calendar_report.COLOURS](step / 100)
        ink = calendar_report.cell(axes, 0, 0, colour)
        dark, light = sorted((luminance(colour), luminance(ink)))
        # Accessibility guidelines require a contrast of 4.5 for normal text, 3 for large text.
        assert (light + 0.05) / (dark + 0.05) > 4


@pytest.mark.parametrize(
    "day", [date(2013, 1, 1), date(2013, 3, 9), date(2013, 3, 10), date(2013, 11, 3)]
)
def test_a_scheduled_run_and_a_complement_of_one_business_date_are_of_the_same_day(
    day: date,
) -> None:
    """The fire at three in the morning is about the day before; a complement about its own date."""
    document = json.loads((EXAMPLE / "flights.json").read_text("utf-8"))
    declared = json.dumps(document["processDefinitionJson"]["globalParams"])

    def day_of(named: date, rule: DateRule) -> str | None:
        at = datetime(named.year, named.month, named.day, 3, tzinfo=NEW_YORK)
        (resolved,) = resolve_global_params(
            parse_properties(declared), moment=moment_of_date(at, rule, NEW_YORK), zone=NEW_YORK
        )
        value: str | None = resolved.value
        return value

    day_after = date.fromordinal(day.toordinal() + 1)
    assert day_of(day_after, DateRule.SCHEDULE_TIME) == day.isoformat()
    assert day_of(day, DateRule(document["complementDateRule"])) == day.isoformat()
