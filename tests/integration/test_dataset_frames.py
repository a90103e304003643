"""Frames of Spark are written into datasets and read from them, in a session far from UTC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine

from common.model.locks import LockType
from common.store.connect import engine
from orcaflow import frames
from orcaflow.datasets import DatasetError, segments
from orcaflow.task import dataset
from tests.integration.dataset_desk import Desk, an_attempt, desk, lock
from tests.integration.spark_jobs import Jobs, a_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

DAYS = "2026-11-20/P2D"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with a_session(tmp_path_factory.mktemp("warehouse"), zone="Asia/Shanghai") as made:
        yield made


@pytest.fixture
def here(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="here")
    yield made
    made.dispose()


@pytest.fixture
def server(tmp_path: Path, here: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(frames, "_APPENDS", type(frames._APPENDS)())
    with desk(tmp_path, here, monkeypatch) as made:
        yield made


@pytest.fixture
def jobs(
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Jobs:
    return Jobs(spark, tmp_path, capfd, monkeypatch)


def rows(spark: SparkSession, first: str, hours: int, **columns: str) -> DataFrame:
    """A row an hour, from this time in UTC on."""
    more = "".join(f", {value} AS {name}" for name, value in columns.items())
    return spark.sql(
        f"SELECT timestamp'{first}Z' + make_interval(0, 0, 0, 0, CAST(id AS INT)) AS at,"
        f" id AS n{more} FROM range({hours})"
    )


def numbers(frame: DataFrame) -> list[Any]:
    return sorted(row["n"] for row in frame.collect())


def test_a_day_is_replaced_and_read_by_chunks_of_utc(
    spark: SparkSession, server: Desk, here: Engine
) -> None:
    task_id = an_attempt(here)
    lock(here, task_id, "replaced", LockType.REPLACE, interval=DAYS)
    server.enter(task_id)
    flights = dataset("replaced")
    with flights.replace(DAYS, time="at") as writer:
        writer.write(rows(spark, "2026-11-20 00:00:00", 48))
    assert [(each.start, each.rows) for each in segments("replaced").segments] == [
        ("2026-11-20T00:00:00.000Z", 24),
        ("2026-11-21T00:00:00.000Z", 24),
    ]
    assert numbers(flights.frame(spark)) == [*range(48)]
    assert numbers(flights.frame(spark, "2026-11-21/P1D")) == [*range(24, 48)]
    assert numbers(flights.frame(spark, "2026-11-20T22:00/PT4H", time="at")) == [*range(22, 26)]
    with pytest.raises(DatasetError, match="cuts a chunk of replaced: name the column"):
        flights.frame(spark, "2026-11-20T22:00/PT4H")
    # Rows that a block has failed on do not appear, and a column may be new.
    with suppress(ZeroDivisionError), flights.replace(DAYS, time="at") as failing:
        failing.write(rows(spark, "2026-11-20 00:00:00", 1))
        raise ZeroDivisionError
    with flights.replace("2026-11-21/P1D", time="at", granularity="HOUR") as writer:
        writer.write(rows(spark, "2026-11-21 05:00:00", 2, extra="'x'"))
    assert numbers(flights.frame(spark, "2026-11-21/P1D")) == [0, 1]
    frame = flights.frame(spark)
    assert (frame.count(), set(frame.columns)) == (26, {"at", "n", "extra"})
    empty = flights.frame(spark, "2027-01-01/P1D")
    assert (empty.count(), "n" in empty.columns) == (0, True)
    view = flights.view(spark, "2026-11-20/P1D", name="flights")
    assert spark.sql(f"SELECT count(*) AS n FROM {view}").collect()[0]["n"] == 24


def test_statements_read_datasets_as_views(
    spark: SparkSession, server: Desk, here: Engine, jobs: Jobs
) -> None:
    task_id = an_attempt(here)
    lock(here, task_id, "read", LockType.REPLACE)
    server.enter(task_id)
    with dataset("read").replace("2026-11-20/P1D", time="at") as writer:
        writer.write(rows(spark, "2026-11-20 00:00:00", 24))
    result = jobs.folder / "result.csv"
    result.write_text("")
    document = {
        "kind": "worker.spark.session.sql",
        "text": "select count(*) as n, max(n) as last from morning",
        "place": "params.rawScript",
        "limit": 5,
        "rows_shown": 3,
        "result_file": str(result),
        "outputs": {},
        "params": {},
    }
    morning = {"dataset": "read", "interval": "2026-11-20/PT6H", "view": "morning"}
    code, told = jobs.do({**document, "datasets": [{**morning, "time": "at"}]})
    assert code == 0, told
    assert "view morning: dataset read, 2026-11-20/PT6H" in told
    assert result.read_text().split() == ["n,last", "6,5"]
    code, _ = jobs.do({**document, "datasets": [morning]})
    assert code != 0
    assert "params.datasets[0]" in jobs.reason.read_text()


def test_rows_are_added_once_whatever_is_tried_again(
    spark: SparkSession, server: Desk, here: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = an_attempt(here)
    lock(here, task_id, "added", LockType.APPEND, interval="2026-11-01/P1M")
    server.enter(task_id)
    flights = dataset("added")
    for _ in range(2):
        # As by a second attempt, whose appends have the same places in the script.
        monkeypatch.setattr(frames, "_APPENDS", type(frames._APPENDS)())
        with flights.append(time="at", granularity="MONTH") as writer:
            writer.write(rows(spark, "2026-11-30 20:00:00", 4))
            writer.write(rows(spark, "2026-11-01 00:00:00", 1))
        with flights.append(time="day", granularity="MONTH") as writer:
            writer.write(rows(spark, "2026-11-05 20:00:00", 1, day="date'2026-11-06'"))
    assert numbers(flights.frame(spark)) == [0, 0, 0, 1, 2, 3]
    stored = segments("added").segments
    assert [(each.start, each.end, each.rows) for each in stored] == [
        ("2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z", 5),
        ("2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z", 1),
    ]


def test_a_mistake_of_a_writer_is_named(spark: SparkSession, server: Desk, here: Engine) -> None:
    task_id = an_attempt(here)
    lock(here, task_id, "mistaken", LockType.REPLACE)
    server.enter(task_id)
    mistaken = dataset("mistaken")
    frame = rows(spark, "2026-11-20 00:00:00", 1)

    def written(what: DataFrame, **options: Any) -> None:
        with mistaken.replace("2026-11-20/P1D", **options) as writer:
            writer.write(what)

    for what, options, problem in (
        (frame, {}, "has no column '__time'"),
        (frame, {"time": "n"}, "column 'n' is of type"),
        (frame, {"time": "at", "granularity": "CENTURY"}, "there is no granularity 'CENTURY'"),
        (frame.selectExpr("CAST(NULL AS TIMESTAMP) AS at"), {"time": "at"}, "1 rows have no time"),
        (rows(spark, "2026-11-21 00:00:00", 1), {"time": "at"}, "reaches beyond|holds no lock"),
    ):
        with pytest.raises(DatasetError, match=problem):
            written(what, **options)
    with (
        pytest.raises(DatasetError, match="nothing was written in the block"),
        mistaken.replace("2026-11-20/P1D"),
    ):
        pass
    with pytest.raises(DatasetError, match="dataset mistaken has no rows"):
        mistaken.frame(spark)
    written(frame.limit(0), time="at")
    assert segments("mistaken").segments == ()
