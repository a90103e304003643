"""Small segments of datasets are merged, in a session far from UTC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine

from common.model.locks import LockType
from common.store.connect import engine
from orcaflow import frames
from orcaflow.datasets import StoredSegment, segments
from orcaflow.task import dataset
from tests.integration.dataset_desk import Desk, an_attempt, desk, lock
from tests.integration.spark_jobs import Jobs, a_session
from worker.spark.streaming import compaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

DAY = "2026-11-20/P1D"
NEXT_DAY = "2026-11-21/P1D"
DAYS = "2026-11-20/P2D"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with a_session(tmp_path_factory.mktemp("warehouse"), zone="Asia/Shanghai") as made:
        yield made


class Place:
    """Writes segments as tasks of their own, and compacts them as another."""

    def __init__(self, spark: SparkSession, server: Desk, jobs: Jobs, here: Engine) -> None:
        self.spark = spark
        self.here = here
        self._server = server
        self._jobs = jobs

    def add(self, name: str, *rows: Mapping[str, Any], types: str) -> None:
        """Add a segment to each day of the rows."""
        self._server.enter(self.adding(name))
        self.write(name, *rows, types=types)
        self.end()

    def write(self, name: str, *rows: Mapping[str, Any], types: str) -> None:
        """Add rows, as the attempt that is here."""
        frame = self.spark.createDataFrame([tuple(each.values()) for each in rows], types)
        with dataset(name).append() as writer:
            writer.write(frame)

    def adding(self, name: str, interval: str = DAYS) -> int:
        """Begin an attempt that may add to the dataset."""
        task_id = an_attempt(self.here)
        lock(self.here, task_id, name, LockType.APPEND, interval=interval)
        return task_id

    def be(self, task_id: int, patch: pytest.MonkeyPatch) -> None:
        """Be the process of an attempt until the patch is undone."""
        self._server.running.add(task_id)
        patch.setenv("ORCAFLOW_TASK_INSTANCE_ID", str(task_id))
        for name, value in self._server.server.variables(task_id).items():
            patch.setenv(name, value)

    def compact(self, name: str, interval: str = DAYS, **more: Any) -> tuple[int, str]:
        """Run a task; its exit code and what it has said."""
        self._server.enter(an_attempt(self.here))
        document = {
            "kind": "worker.spark.streaming.compaction",
            "dataset": name,
            "interval": interval,
            "metrics": [],
            "most_rows": 1_000,
            "priority": 25,
            "outputs": {},
            "params": {},
        }
        self._jobs.reason.unlink(missing_ok=True)
        code, said = self._jobs.do({**document, **more})
        self.end()
        return code, said

    @property
    def reason(self) -> str:
        return self._jobs.reason.read_text()

    def rows(self, name: str) -> list[Any]:
        """All rows, in an order of their own."""
        return sorted(map(tuple, dataset(name).frame(self.spark).collect()), key=repr)

    def end(self) -> None:
        """End all attempts, and so their locks."""
        with self.here.begin() as db:
            db.exec_driver_sql("UPDATE t_ds_task_instance SET state = 7, end_time = now()")


@pytest.fixture
def place(
    spark: SparkSession,
    tmp_path: Path,
    url: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    here = engine(url, application_name="here")
    monkeypatch.setattr(frames, "_APPENDS", type(frames._APPENDS)())
    with desk(tmp_path, here, monkeypatch) as server:
        yield Place(spark, server, Jobs(spark, tmp_path, capfd, monkeypatch), here)
    here.dispose()


def at(day: int, hour: int) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


PLAIN = "__time timestamp, n int, tags map<string,string>, note string"


def plain(day: int, number: int, note: str | None = None) -> dict[str, Any]:
    return {"at": at(day, number % 24), "n": number, "tags": {"k": str(number)}, "note": note}


def held(name: str) -> dict[str, list[int]]:
    """The rows of the segments by day."""
    found: dict[str, list[int]] = {}
    for each in segments(name).segments:
        found.setdefault(each.start[:10], []).append(each.rows)
    return found


def versions(found: tuple[StoredSegment, ...]) -> set[str]:
    return {each.version for each in found}


def test_small_segments_become_few_with_the_same_rows(place: Place) -> None:
    for number in range(4):
        place.add("plain", plain(20, number), plain(20, number + 24, "x"), types=PLAIN)
    place.add("plain", plain(21, 9), types=PLAIN)
    more = f"{PLAIN}, later double"
    place.add("plain", {**plain(20, 50), "later": 0.5}, types=more)
    before, old = place.rows("plain"), segments("plain", DAY)
    assert held("plain") == {"2026-11-20": [2, 2, 2, 2, 1], "2026-11-21": [1]}
    code, said = place.compact("plain", most_rows=4)
    assert code == 0, said
    assert "compacted 1 of 2 chunks" in said
    assert held("plain") == {"2026-11-20": [4, 4, 1], "2026-11-21": [1]}
    assert place.rows("plain") == before
    assert min(versions(segments("plain", DAY).segments)) > max(versions(old.segments))
    # Nothing is left to do, whoever tries it again.
    code, said = place.compact("plain", most_rows=4)
    assert code == 0, said
    assert "compacted 0 of 2 chunks" in said
    code, _ = place.compact("plain", "2026-11-20T06:00/PT6H")
    assert code != 0
    assert "cuts the chunk 2026-11-20T00:00:00.000Z/2026-11-21" in place.reason


def test_rows_of_one_time_and_dimensions_become_one_with_the_same_aggregates(
    place: Place,
) -> None:
    types = "__time timestamp, origin string, rows long, delay double, most long, flights binary"
    metrics = [
        {"type": "count", "name": "rows"},
        {"type": "doubleSum", "name": "delay", "fieldName": "delay"},
        {"type": "longMax", "name": "most", "fieldName": "delay"},
        {"type": "HLLSketchBuild", "name": "flights", "fieldName": "flight"},
    ]
    (sketches,) = place.spark.sql(
        "SELECT hll_sketch_agg(id) AS a, hll_sketch_agg(id + 50) AS b FROM range(100)"
    ).collect()
    for origin, sketch in (("JFK", "a"), ("JFK", "b"), (None, "a")):
        row = {"at": at(20, 4), "origin": origin, "rows": 100, "delay": 0.1, "most": len(sketch)}
        place.add("rolled", {**row, "flights": bytes(sketches[sketch])}, types=types)
    code, said = place.compact("rolled", metrics=metrics)
    assert code == 0, said
    assert held("rolled") == {"2026-11-20": [2]}
    found = dataset("rolled").frame(place.spark)
    rows = found.selectExpr(
        "origin", "rows", "round(delay, 6)", "most", "hll_sketch_estimate(flights)"
    )
    assert sorted(map(tuple, rows.collect()), key=repr) == [
        ("JFK", 200, 0.2, 1, 150),
        (None, 100, 0.1, 1, 100),
    ]
    place.add(
        "rolled",
        {"at": at(20, 4), "o": "JFK", "rows": 1, "d": None, "m": 7, "f": None},
        types=types,
    )
    code, _ = place.compact("rolled", metrics=[{"type": "count", "name": "number"}])
    assert code != 0
    assert "the dataset has no column 'number'" in place.reason
    code, said = place.compact("rolled", metrics=metrics)
    assert code == 0, said
    assert held("rolled") == {"2026-11-20": [2]}


def test_others_who_need_a_chunk_more_keep_or_get_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        place.add("needed", plain(20, number), plain(21, number), types=PLAIN)
    before = place.rows("needed")
    holder = an_attempt(place.here)
    lock(place.here, holder, "needed", LockType.EXCLUSIVE, interval=DAY)
    code, said = place.compact("needed")
    assert code == 0, said
    assert "2026-11-20T00:00:00.000Z/2026-11-21T00:00:00.000Z stays as it is" in said
    assert held("needed") == {"2026-11-20": [1, 1, 1], "2026-11-21": [3]}
    # Somebody takes the chunk while it is written, and nothing of it appears.
    compare = compaction.Compaction._compare

    def taken(*given: Any) -> None:
        compare(*given)
        lock(place.here, an_attempt(place.here), "needed", LockType.EXCLUSIVE, interval=DAY)

    monkeypatch.setattr(compaction.Compaction, "_compare", taken)
    code, said = place.compact("needed")
    assert code != 0
    assert "others needed the chunk more" in place.reason
    assert held("needed") == {"2026-11-20": [1, 1, 1], "2026-11-21": [3]}
    assert place.rows("needed") == before


def test_rows_that_are_added_meanwhile_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        place.add("busy", plain(20, number), types=PLAIN)
    stream = place.adding("busy", DAY)
    compare = compaction.Compaction._compare

    def adding(*given: Any) -> None:
        compare(*given)
        with pytest.MonkeyPatch.context() as patch:
            # As another process, which holds its lock beside that of the compaction.
            place.be(stream, patch)
            place.write("busy", plain(20, 7), types=PLAIN)

    monkeypatch.setattr(compaction.Compaction, "_compare", adding)
    code, said = place.compact("busy")
    assert code == 0, said
    assert held("busy") == {"2026-11-20": [3, 1]}
    assert sorted(row[1] for row in place.rows("busy")) == [0, 1, 2, 7]


@pytest.mark.parametrize("metrics", [[], [{"type": "count", "name": "n"}]])
def test_what_would_change_rows_is_not_published(
    place: Place, monkeypatch: pytest.MonkeyPatch, metrics: list[Any]
) -> None:
    name, types = f"checked{len(metrics)}", "__time timestamp, n long, a string, b string"
    row = {"at": at(20, 4), "n": 1, "a": None, "b": "x"}
    place.add(name, row, types=types)
    place.add(name, {**row, "n": 2}, types=types)
    old = segments(name)
    read = compaction.Compaction._read

    def changed(frame: DataFrame, change: Mapping[str, str]) -> DataFrame:
        return frame.selectExpr(*(change.get(each, each) + f" AS {each}" for each in frame.columns))

    # A value in the next column, a number that is off, rows that are lost, rows that are there twice.
    changes = [{"a": "b", "b": "a"}, {"n": "n + 1"}, None, "twice"]
    for change in changes:

        def wrong(self: Any, files: Any, change: Any = change) -> Any:
            names = [*files]
            frame = read(self, names)
            if "/rows/part" not in names[0]:
                return frame
            if change is None:
                return frame.where("false")
            return frame.union(frame) if change == "twice" else changed(frame, change)

        monkeypatch.setattr(compaction.Compaction, "_read", wrong)
        code, said = place.compact(name, metrics=metrics)
        assert code != 0, (change, said)
        assert "would not be the same after the compaction" in place.reason
        assert segments(name) == old


def test_a_file_that_is_gone_or_was_changed_is_told_and_stays_as_it_is(place: Place) -> None:
    for number in range(3):
        place.add("torn", plain(20, number), types=PLAIN)
    old = segments("torn")
    first, second, _ = (Path(each.files[0]) for each in old.segments)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    first.unlink()
    code, _ = place.compact("torn")
    assert code != 0
    assert "PATH_NOT_FOUND" in place.reason
    first.write_bytes(kept)
    code, said = place.compact("torn")
    assert code == 0, said
    assert held("torn") == {"2026-11-20": [3]}
