"""Topologies: records a second, the time of a batch, and the silence of a rebalance.

No daemon takes part: Spark is a driver of two threads. A topology of a shuffle, a fields grouping
and a stateful count stands beside the same query written by hand in Structured Streaming, with the
same source and the same Python, in turns. Others are of bolts that take records one by one, and
tables of Arrow. The first query of each kind warms Spark up and does not count.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from common.topology.components import (
    ArrowBolt,
    Batch,
    Bolt,
    Emit,
    EmitRows,
    Record,
    Rows,
    Sink,
    StatefulBolt,
)
from common.topology.declaration import Topology, TopologyBuilder
from common.topology.plan import queries_of
from orcaflow.spouts import RateSpout
from tests.bench.figures import Figure, Target
from tests.bench.stage import Stage
from worker.spark.jvm.python_sockets import SocketFolder
from worker.spark.topology import spout_source
from worker.spark.topology.program import Pickled, Program
from worker.spark.topology.queries import SETTINGS, TopologyQueries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_KEYS = 5_000
_COUNTED, _ONE_BY_ONE, _BY_TABLE = 400_000, 600_000, 4_000_000
_PENDING = 200_000
_SMALL_BATCHES, _SMALL_BATCHES_AT_FIRST = 100, 300


class Name(ArrowBolt):
    outputs = ("word",)

    def process(self, rows: Rows, emit: EmitRows) -> None:
        emit(_words(rows.rows.column("value")))


class Count(StatefulBolt):
    outputs = ("word", "count long")

    def initial(self) -> int:
        return 0

    def process(self, record: Record, state: int, emit: Emit) -> int:
        return state + 1


class Double(Bolt):
    outputs = ("value long",)

    def process(self, record: Record, emit: Emit) -> None:
        emit(record["value"] * 2)


class DoubleRows(ArrowBolt):
    outputs = ("value long",)

    def process(self, rows: Rows, emit: EmitRows) -> None:
        doubled = pc.multiply(rows.rows.column("value"), 2)
        emit(pa.RecordBatch.from_arrays([doubled], names=["value"]))


class Drop(Sink):
    def write(self, records: Sequence[Record], batch: Batch) -> None:
        return


class DropRows(ArrowBolt):
    def process(self, rows: Rows, emit: EmitRows) -> None:
        return


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure without the stage, which is not used: there is nothing to start."""
    del stage
    folder = Path(tempfile.mkdtemp(prefix="orcaflow-bench-"))
    spark = _session(folder)
    try:
        return _Bench(spark, folder).figures(runs)
    finally:
        spark.stop()
        shutil.rmtree(folder)


class _Bench:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._number = 0

    def figures(self, runs: int) -> list[Figure]:
        ours, by_hand, single, tables, batches, silences = [], [], [], [], [], []
        for _ in range(runs + 1):
            ours.append(_COUNTED / self._topology(_counting(_COUNTED)))
            by_hand.append(_COUNTED / self._by_hand())
            single.append(_ONE_BY_ONE / self._topology(_chain(Double(), Drop(), _ONE_BY_ONE)))
            tables.append(_BY_TABLE / self._topology(_chain(DoubleRows(), DropRows(), _BY_TABLE)))
            count = _SMALL_BATCHES if batches else _SMALL_BATCHES_AT_FIRST
            batches.append(self._small_batch(count) * 1_000)
            silences.append(self._silence())
        ratios = tuple(one / other for one, other in zip(ours[1:], by_hand[1:], strict=True))

        def figure(name: str, unit: str, values: Sequence[float], target: Any = None) -> Figure:
            return Figure(
                name=f"topology.{name}", unit=unit, values=tuple(values[1:]), target=target
            )

        return [
            figure("counted", "records/s", ours),
            figure("counted_by_hand", "records/s", by_hand),
            figure("of_by_hand", "x", (0.0, *ratios), Target(limit=0.8, at_least=True)),
            figure("one_by_one", "records/s", single, Target(limit=50_000, at_least=True)),
            figure("by_table", "records/s", tables, Target(limit=300_000, at_least=True)),
            figure("batch", "ms", batches, Target(limit=150)),
            figure("rebalance", "s", silences, Target(limit=10)),
        ]

    def _place(self) -> Path:
        self._number += 1
        place = self._folder / str(self._number)
        place.mkdir()
        return place

    def _topology(self, topology: Topology) -> float:
        """Return the seconds from the first batch with records to the end of the last."""
        place = self._place()
        queries = TopologyQueries(
            self._spark, topology, folder=place / "folder", scratch=place / "scratch"
        )
        (place / "scratch").mkdir()
        queries.pause(paused=True)
        queries.start()
        try:
            (query,) = queries.running
            query.handle.processAllAvailable()
            begun = time.monotonic()
            queries.pause(paused=False)
            query.handle.processAllAvailable()
            return time.monotonic() - begun
        finally:
            queries.stop()

    def _by_hand(self) -> float:
        """Do what `_counting` does without a topology."""
        place = self._place()
        topology = _counting(_COUNTED)
        source = self._source(topology, place)
        words = source.repartition(2).mapInArrow(_named, "word string")
        counted = words.groupBy("word").transformWithState(
            _Counter(), outputStructType="word string", outputMode="Append", timeMode="none"
        )

        def write(frame: DataFrame, _: int) -> None:
            frame.write.format("noop").mode("overwrite").save()

        self._spark.conf.set("spark.sql.shuffle.partitions", "2")
        pause = place / spout_source.PAUSE
        pause.touch()
        query = (
            counted.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(place / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            begun = time.monotonic()
            pause.unlink()
            query.processAllAvailable()
            return time.monotonic() - begun
        finally:
            query.stop()

    def _source(self, topology: Topology, place: Path) -> DataFrame:
        for key, value in SETTINGS.items():
            self._spark.conf.set(key, value)
        self._spark.dataSource.register(spout_source.SpoutSource)
        (query,) = queries_of(topology)
        file = place / "program.pickle"
        file.write_bytes(Pickled.of(Program(topology=topology, query=query)).content)
        options = spout_source.options(file, "numbers", scratch=place, at_once=2)
        return self._spark.readStream.format(spout_source.NAME).options(**options).load()

    def _small_batch(self, count: int) -> float:
        """Return the median seconds of batches of few records, of four components.

        The first half of a query's batches warms it up. Java compiles Spark's planner for its first
        40 seconds or so, in which batches take up to twice as long.
        """
        place = self._place()
        builder = TopologyBuilder("small", config={"topology.max.spout.pending": 10})
        builder.set_spout("numbers", RateSpout(partitions=2, total=10 * count), tasks=2)
        builder.set_bolt("one", Double(), tasks=2).shuffle_grouping("numbers")
        builder.set_bolt("two", Double(), tasks=2).fields_grouping("one", "value")
        builder.set_bolt("drop", Drop(), tasks=2).shuffle_grouping("two")
        topology = builder.create_topology()
        queries = TopologyQueries(
            self._spark, topology, folder=place / "folder", scratch=place / "scratch"
        )
        queries.start()
        try:
            (query,) = queries.running
            query.handle.processAllAvailable()
            progress = query.handle.recentProgress
        finally:
            queries.stop()
        times = [
            each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]
        ]
        return statistics.median(times[len(times) // 2 :]) / 1_000

    def _silence(self) -> float:
        """Return the seconds between the last batch before a rebalance and the first one after."""
        place = self._place()
        topology = _chain(Double(), Drop(), None)
        before = self._committed_at(topology, place)
        parts = tuple(replace(part, tasks=3) for part in topology.parts)
        after = self._committed_at(replace(topology, parts=parts), place, first=True)
        return after - before

    def _committed_at(self, topology: Topology, place: Path, *, first: bool = False) -> float:
        """Run a topology for some batches; return when the last was committed, or the first."""
        moments: list[float] = []
        queries = TopologyQueries(
            self._spark, topology, folder=place / "folder", scratch=place / "scratch"
        )
        queries.committed = lambda *_: moments.append(time.monotonic())
        queries.start()
        try:
            while len(moments) < 3:
                queries.running[0].handle.awaitTermination(0.01)  # type: ignore[arg-type]
        finally:
            queries.stop()
        return moments[0] if first else moments[-1]


def _named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield _words(batch.column("bigint_0"))


def _words(numbers: pa.Array) -> pa.RecordBatch:
    """Do the work of the bolt, which is the same by hand."""
    words = [f"word {number % _KEYS}" for number in numbers.to_pylist()]
    return pa.RecordBatch.from_arrays([pa.array(words, pa.string())], names=["word"])


class _Counter:
    """A stateful processor as one would write it by hand."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "count bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        found = self._count.get()
        count = (found[0] if found else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield from ()

    def handleExpiredTimer(self, *_: Any) -> Iterator[Row]:  # noqa: N802
        yield from ()

    def close(self) -> None:
        return


def _counting(total: int) -> Topology:
    builder = TopologyBuilder("counting", config={"topology.max.spout.pending": _PENDING})
    builder.set_spout("numbers", RateSpout(partitions=2, total=total), tasks=2)
    builder.set_bolt("name", Name(), tasks=2).shuffle_grouping("numbers")
    builder.set_bolt("count", Count(), tasks=2).fields_grouping("name", "word")
    return builder.create_topology()


def _chain(bolt: Bolt | ArrowBolt, last: Sink | ArrowBolt, total: int | None) -> Topology:
    pending = _PENDING if isinstance(bolt, Bolt) else 1_000_000
    rate = 1_000 if total is None else None
    builder = TopologyBuilder("chain", config={"topology.max.spout.pending": pending})
    builder.set_spout("numbers", RateSpout(rate, partitions=2, total=total), tasks=2)
    builder.set_bolt("bolt", bolt, tasks=2).shuffle_grouping("numbers")
    builder.set_bolt("last", last, tasks=2).shuffle_grouping("bolt")
    return builder.create_topology()


def _session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession as Session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    return (
        Session.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "1g")
        # The folder is used until the end of this process.
        .config(map=SocketFolder(folder).settings("local[2]"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
