"""The flights example, task by task in one Spark session, against figures computed without Spark.

No cluster is needed here: the scripts are run as a worker would run them. What the cluster makes of
the same definition is another test's subject.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests import light_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flights"
# The one day on which a weather row is rejected, so that every kind of figure is exercised.
DAY = "2013-02-12"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"flights_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


by_hand = module("by_hand")
expected = module("expected")
TASKS: dict[str, dict[str, Any]] = {task["name"]: task for task in by_hand.tasks()}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    options = f"{light_jvm.arguments(light_jvm.conf())} pyspark-shell"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", options)
        session: SparkSession = by_hand.session()
    yield session
    session.stop()


class Pipeline:
    """The tasks, run on one data directory."""

    def __init__(self, spark: SparkSession, data: Path) -> None:
        self.spark = spark
        self.data = data
        self.folder = data / "flights" / f"day={DAY}"

    def run(self, *names: str, day: str = DAY) -> None:
        for name in names:
            by_hand.run_task(TASKS[name], day, self.data, self.spark)

    def results(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.folder / "results.json").read_text("utf-8"))
        return read

    def change(self, table: str, sql: str) -> None:
        """Put what `sql` makes of a Parquet table, called `{rows}` there, in the table's place."""
        path, aside = self.folder / table, self.folder / "changed"
        self.spark.sql(sql, rows=self.spark.read.parquet(str(path))).write.parquet(str(aside))
        shutil.rmtree(path)
        aside.rename(path)


@pytest.fixture(scope="module")
def whole_day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    pipeline = Pipeline(spark, tmp_path_factory.mktemp("flights"))
    pipeline.run(*TASKS)
    return pipeline


@pytest.fixture
def day(whole_day: Pipeline, tmp_path: Path) -> Pipeline:
    """A copy of the finished day, to be spoilt."""
    shutil.copytree(whole_day.folder, tmp_path / "flights" / whole_day.folder.name)
    return Pipeline(whole_day.spark, tmp_path)


def test_the_results_of_a_day_are_those_that_plain_python_computes(whole_day: Pipeline) -> None:
    results = whole_day.results()
    assert expected.compare(results, expected.expected(date.fromisoformat(DAY))) == []
    assert results["rejected"]["weather"]["implausible"] == 1
    assert results["landed"]["flights"] == 893


def test_the_report_shows_the_checked_figures_and_a_chart(whole_day: Pipeline) -> None:
    report = (whole_day.folder / "report.md").read_text("utf-8")
    assert "Tuesday, 12 February 2013" in report
    assert "| 9E | Endeavor Air Inc. |" in report
    assert "delays.png" in report
    chart = (whole_day.folder / "delays.png").read_bytes()
    assert chart.startswith(b"\x89PNG\r\n")
    assert len(chart) > 20_000


def test_days_share_the_raw_file_and_the_fonts_and_nothing_else(whole_day: Pipeline) -> None:
    names = {path.name for path in (whole_day.data / "flights").iterdir()}
    assert {name for name in names if not name.startswith("day=")} == {"raw", "matplotlib"}


def test_the_calendar_report_takes_what_the_pipeline_has_written(day: Pipeline) -> None:
    calendar = [sys.executable, str(EXAMPLE / "calendar_report.py"), DAY, DAY]
    subprocess.run([*calendar, "--data", str(day.data)], check=True)
    written = day.data / "flights" / f"{DAY}_{DAY}" / "results.json"
    results = json.loads(written.read_text("utf-8"))
    wanted = expected.expected_of_range(date.fromisoformat(DAY), date.fromisoformat(DAY))
    assert expected.compare(results, wanted) == []


def test_a_second_run_of_a_day_leaves_the_same_results(day: Pipeline) -> None:
    before = {name: (day.folder / name).read_bytes() for name in ("results.json", "report.md")}
    day.run(*TASKS)
    assert {name: (day.folder / name).read_bytes() for name in before} == before
    assert not [path for path in day.folder.iterdir() if path.name.startswith(".")]


def test_the_raw_file_is_unpacked_once_for_all_days(whole_day: Pipeline) -> None:
    (raw,) = (whole_day.data / "flights" / "raw").glob("[!.]*")
    before = raw.stat()
    whole_day.run("land", day="2013-12-31")
    assert raw.stat() == before
    assert sum(1 for _ in raw.open("rb")) == 336_777


@pytest.mark.parametrize("day", ["2014-01-01", "2013-02-30", "20130101", "", "../2013-01-01"])
def test_a_day_that_is_none_of_2013_ends_the_first_task_with_a_clear_message(
    spark: SparkSession, tmp_path: Path, day: str
) -> None:
    with pytest.raises(SystemExit, match="day must be a date of the year 2013") as ended:
        Pipeline(spark, tmp_path).run("land", day=day)
    assert repr(day) in str(ended.value)
    assert list(tmp_path.iterdir()) == []


def test_flights_doubled_behind_the_pipelines_back_fail_the_quality_checks(day: Pipeline) -> None:
    day.change("joined", "SELECT * FROM {rows} UNION ALL SELECT * FROM {rows} WHERE carrier = 'DL'")
    day.run("by_carrier")
    with pytest.raises(SystemExit, match=f"the quality checks of {DAY} failed") as ended:
        day.run("quality")
    assert "flights by carrier: 1004, but joined: 884" in str(ended.value)
    assert "Traceback" not in str(ended.value)
    assert not (day.folder / "results.json").exists()


def test_a_landing_cut_short_fails_the_quality_checks(day: Pipeline) -> None:
    figures = next((day.folder / "figures" / "land").glob("part-*.json"))
    figures.write_text(figures.read_text("utf-8").replace('"flights":893', '"flights":500'))
    with pytest.raises(SystemExit) as ended:
        day.run("quality")
    assert "flights landed: 500, but in the raw file: 893" in str(ended.value)
    assert "flights read for cleaning: 893, but landed: 500" in str(ended.value)


def test_figures_that_a_task_did_not_finish_fail_the_quality_checks(day: Pipeline) -> None:
    (day.folder / "figures" / "by_hour" / "_SUCCESS").unlink()
    with pytest.raises(SystemExit, match="the task by_hour has left no finished figures"):
        day.run("quality")


def test_figures_cut_off_in_the_middle_fail_the_quality_checks(day: Pipeline) -> None:
    (part,) = (day.folder / "figures" / "worst_routes").glob("part-*.json")
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(SystemExit, match="the figures of the task worst_routes in "):
        day.run("quality")
    assert not (day.folder / "results.json").exists()


def test_a_damaged_parquet_file_fails_the_task_that_reads_it(day: Pipeline) -> None:
    (part,) = (day.folder / "joined").glob("part-*.parquet")
    part.write_bytes(part.read_bytes()[:1000])
    part.with_name(f".{part.name}.crc").unlink()
    with pytest.raises(Exception, match=r"is not a Parquet file|CANNOT_READ_FILE"):
        day.run("by_carrier")


def test_rows_that_break_a_rule_are_rejected_under_that_rule(day: Pipeline) -> None:
    before = day.results()
    landed = day.spark.read.parquet(str(day.folder / "landed" / "flights"))
    like_one = landed.where("arr_delay <> 'NA'").orderBy(*landed.columns).limit(1)
    like_one.createOrReplaceTempView("like_one")
    columns = ", ".join(landed.columns)
    no_number = columns.replace("dep_delay", "'twelve'")
    no_origin = columns.replace("origin", "NULL")
    again_but_later = columns.replace("arr_delay", "'999'")
    rows = [columns, no_number, no_origin, again_but_later]
    selected = " UNION ALL ".join(f"SELECT {row} FROM like_one" for row in rows)
    day.change("landed/flights", f"SELECT * FROM {{rows}} UNION ALL ({selected})")
    day.run("clean_flights")
    (counted,) = (day.folder / "figures" / "clean_flights").glob("part-*.json")
    counts = json.loads(counted.read_text("utf-8"))
    assert counts["malformed"] == before["rejected"]["flights"]["malformed"] + 2
    assert counts["duplicate"] == before["rejected"]["flights"]["duplicate"] + 2
    assert counts["cleaned"] == before["cleaned"]["flights"]


def test_the_comparison_names_the_place_of_every_difference() -> None:
    wanted = {"day": DAY, "carriers": [{"carrier": "AA", "flights": 3}], "joined": {"flights": 3}}
    actual = {"day": DAY, "carriers": [{"carrier": "AA", "flights": 4}, {}], "extra": 1}
    assert expected.compare(actual, wanted) == [
        "carriers has 2 entries, but should have 1.",
        "carriers[0].flights is 4, but should be 3.",
        "joined is missing, but should be {'flights': 3}.",
        "extra is 1, but should not be there.",
    ]


def test_the_definition_waits_for_what_each_task_reads() -> None:
    waits = {name: sorted(task["preTasks"]) for name, task in TASKS.items()}
    assert waits == {
        "land": [],
        "clean_flights": ["land"],
        "clean_weather": ["land"],
        "join": ["clean_flights", "clean_weather"],
        "by_carrier": ["join"],
        "by_hour": ["join"],
        "worst_routes": ["join"],
        "quality": ["by_carrier", "by_hour", "worst_routes"],
        "report": ["quality"],
    }
    assert all((EXAMPLE / task["params"]["file"]).is_file() for task in TASKS.values())
