"""Spouts as sources of Spark: places, troubles, and what is told of batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from common.model.locks import LockType
from common.store.connect import engine
from common.topology.components import Spout
from common.topology.declaration import Topology, TopologyBuilder
from orcaflow.datasets import DatasetError, Files, allocate, publish
from orcaflow.spouts import DatasetSpout, FileSpout, KafkaSpout
from tests.integration.dataset_desk import DAY, Desk, an_attempt, desk, lock
from tests.integration.topology_parts import Breaking, ByHand, Told, Untimed
from tests.integration.topology_stage import Stage, topology_session
from tests.mock_kafka import Broker, a_broker
from worker.spark.topology.queries import TopologyQueries
from worker.spark.topology.spout_source import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with topology_session(tmp_path_factory.mktemp("warehouse")) as made:
        # Java has the environment of the first session of this process of tests.
        made.sparkContext.environment["SPOUT_SECRET"] = "hunter2"
        yield made


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with a_broker() as broker:
        yield broker


def witnessed(stage: Stage, spout: Spout, **config: Any) -> Topology:
    builder = TopologyBuilder("spouted", config=config)
    builder.set_spout("s", spout)
    builder.set_bolt("seen", stage.witness("seen")).global_grouping("s")
    return builder.create_topology()


@contextmanager
def running(stage: Stage, topology: Topology) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Enter with the topology running, and a function that waits while it does."""
    queries = TopologyQueries(
        stage.spark, topology, folder=stage.folder, scratch=stage.folder / "scratch"
    )
    queries.committed = stage.committed
    queries.start()
    (query,) = queries.running

    def until(is_so: Callable[[], bool]) -> None:
        while not is_so():
            assert not query.handle.awaitTermination(0.1)

    try:
        yield until
    finally:
        queries.stop()


def seen(stage: Stage) -> list[tuple[Any, ...]]:
    return sorted(stage.received("seen").get(0, []))


@pytest.fixture
def by_hand(tmp_path: Path) -> ByHand:
    folder = tmp_path / "hand"
    folder.mkdir()
    return ByHand(folder)


def test_partitions_begin_where_their_spout_says_and_later_ones_too(
    stage: Stage, by_hand: ByHand
) -> None:
    (by_hand.folder / "a-5-8").touch()
    topology = witnessed(stage, by_hand)
    with running(stage, topology) as until:
        until(lambda: seen(stage) == [("a", 6), ("a", 7)])
        (by_hand.folder / "b-100-102").touch()
        until(lambda: seen(stage)[2:] == [("b", 100), ("b", 101)])


def test_a_spout_that_is_away_from_the_begin_is_waited_for(stage: Stage, by_hand: ByHand) -> None:
    (by_hand.folder / "a-5-8").touch()
    (by_hand.folder / "away").touch()
    queries = TopologyQueries(
        stage.spark,
        witnessed(stage, by_hand),
        folder=stage.folder,
        scratch=stage.folder / "scratch",
    )
    queries.start()
    try:
        (query,) = queries.running
        query.handle.processAllAvailable()
        place = queries.place(query.name, "s")
        assert place == Place(begun={}, ends={}, trouble="ConnectionError: it is away")
        (by_hand.folder / "away").unlink()
        while seen(stage) != [("a", 6), ("a", 7)]:
            assert not query.handle.awaitTermination(0.1)
        while query.acked() != {"s": 2}:
            query.places.clear()
            assert not query.handle.awaitTermination(0.1)
    finally:
        queries.stop()


def test_files_are_read_on_as_they_grow_and_are_added(stage: Stage) -> None:
    folder = stage.folder / "lines"
    folder.mkdir()
    (folder / "a").write_text("one\ntw")
    topology = witnessed(stage, FileSpout(str(folder)))
    with running(stage, topology) as until:
        until(lambda: seen(stage) == [("one", "a")])
        (folder / "a").write_text("one\ntwo\n")
        (folder / "b").write_text("three\n")
        until(lambda: len(seen(stage)) == 3)
    # A restart goes on in the middle.
    with (folder / "a").open("a") as file:
        file.write("four\n")
    stage.run(topology)
    assert seen(stage) == [("four", "a"), ("one", "a"), ("three", "b"), ("two", "a")]


def test_a_committed_batch_is_the_ack_of_its_records_and_a_failed_one_is_told(
    stage: Stage, tmp_path: Path
) -> None:
    folder = tmp_path / "told"
    folder.mkdir()
    spout = Told(folder)
    builder = TopologyBuilder("told", config={"topology.max.spout.pending": 2})
    builder.set_spout("s", spout)
    builder.set_bolt("breaking", Breaking(folder)).shuffle_grouping("s")
    builder.set_bolt("seen", stage.witness("seen")).global_grouping("breaking")
    topology = builder.create_topology()
    (folder / "a-3-10").touch()
    (folder / "broken").touch()
    with pytest.raises(Exception, match="not this one"):
        stage.run(topology)
    assert spout.told() == ["ack {'a': 6}"]
    with pytest.raises(Exception, match="not this one"):
        stage.run(topology)
    (folder / "broken").unlink()
    (folder / "deaf").touch()
    with running(stage, topology) as until:
        # It stands still until its acks are taken.
        until(lambda: len(seen(stage)) == 4)
        assert spout.told() == ["ack {'a': 6}", *["fail {'a': 6}"] * 2]
        (folder / "deaf").unlink()
        until(lambda: spout.told()[3:] == ["ack {'a': 8}", "ack {'a': 10}"])
    assert seen(stage) == [(place,) for place in range(4, 10)]


def test_a_topic_is_read_once_over_a_restart_with_a_secret_of_the_environment(
    stage: Stage, broker: Broker
) -> None:
    broker.create("spouted", 2)
    secret = {"type": "environment", "variable": "SPOUT_SECRET"}
    spout = KafkaSpout("spouted", broker.servers, properties={"client.id": secret})
    broker.produce("spouted", 0, [b"a%d" % number for number in range(30)])
    builder = TopologyBuilder("topics", config={"topology.max.spout.pending": 25})
    builder.set_spout("s", spout)
    builder.set_bolt("untimed", Untimed()).shuffle_grouping("s")
    builder.set_bolt("seen", stage.witness("seen")).global_grouping("untimed")
    topology = builder.create_topology()
    stage.run(topology)
    broker.produce("spouted", 1, [b"b%d" % number for number in range(10)])
    stage.run(topology)
    expected = [(f"a{each}", 0, each) for each in range(30)]
    expected += [(f"b{each}", 1, each) for each in range(10)]
    assert seen(stage) == sorted(expected)
    kept = [file for file in stage.folder.rglob("*") if file.is_file()]
    assert kept
    assert not any(b"hunter2" in file.read_bytes() for file in kept)


@pytest.fixture
def here(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="here")
    yield made
    made.dispose()


class Flights:
    """A dataset, and an attempt that adds to it and whose program a topology is."""

    def __init__(self, name: str, server: Desk, spark: SparkSession) -> None:
        self.name = name
        self._task = an_attempt(server.engine)
        lock(server.engine, self._task, name, LockType.REPLACE)
        server.enter(self._task)
        self._added = 0
        names = ("ORCAFLOW_TASK_INSTANCE_ID", "ORCAFLOW_DATASETS", "ORCAFLOW_DATASETS_TOKEN")
        # A task has them in its environment before Java starts.
        spark.sparkContext.environment.update({name: os.environ[name] for name in names})

    def add(self, *numbers: int, **how: Any) -> None:
        """Add rows, in two files of two rows a group."""
        self._added += 1
        place = allocate(self.name)
        middle = (len(numbers) + 1) // 2
        files = {"a.parquet": numbers[:middle], "b.parquet": numbers[middle:]}
        for name, found in files.items():
            table = pa.table({"other": [1] * len(found), "n": pa.array(found, pa.int32())})
            pq.write_table(table, place.path / name, row_group_size=2)
        segment = Files(DAY, [*files], rows=len(numbers))
        publish(place, [segment], **(how or {"key": str(self._added)}))


@pytest.fixture
def flights(
    here: Engine, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Flights]:
    with desk(tmp_path / "desk", here, monkeypatch) as server:
        # Each has another, whose locks nobody holds.
        yield Flights(tmp_path.name, server, spark)


def test_rows_of_a_dataset_are_read_by_segments_and_row_groups(flights: Flights) -> None:
    spout = DatasetSpout(flights.name, ("n long",))
    assert spout.ends({}) == {}
    flights.add(*range(10))
    other = DatasetSpout(flights.name, ("n long",), interval=DAY)
    ((name, end),) = other.ends({}).items()
    assert end == 10

    def rows(start: int, end: int, reading: DatasetSpout = spout) -> list[int]:
        return [n for batch in reading.read(name, start, end) for n in batch["n"].to_pylist()]

    for start in range(10):
        assert rows(start, 10) == [*range(start, 10)]
        assert rows(start, start + 1) == [start]
    assert rows(3, 3) == []
    assert DatasetSpout(flights.name, ("n long",), interval="2026-11-21/P1D").ends({}) == {}
    with pytest.raises(DatasetError, match="has no column m; it has other, n"):
        rows(0, 1, DatasetSpout(flights.name, ("m", "n long")))
    flights.add(7, replaces=DAY)
    with pytest.raises(DatasetError, match=r"is gone, replaced or compacted .* submit it anew"):
        rows(0, 1, DatasetSpout(flights.name, ("n long",)))
    with pytest.raises(ValueError, match="types that Parquet has"):
        DatasetSpout(flights.name, ("n object",))


def test_a_worker_that_is_away_is_a_trouble(
    flights: Flights, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ORCAFLOW_DATASETS", str(tmp_path / "nowhere"))
    with pytest.raises(ConnectionError, match="the worker can't be reached"):
        DatasetSpout(flights.name, ("n long",)).ends({})


def test_segments_that_are_added_are_emitted_and_those_that_replace_others_too(
    stage: Stage, flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights.add(*range(5))
    topology = witnessed(stage, DatasetSpout(flights.name, ("n long",)))
    with running(stage, topology) as until:
        until(lambda: seen(stage) == [(n,) for n in range(5)])
        flights.add(5, 6)
        until(lambda: seen(stage) == [(n,) for n in range(7)])
        flights.add(0, 9, replaces=DAY)
        until(lambda: seen(stage) == [(0,), *[(n,) for n in range(7)], (9,)])
