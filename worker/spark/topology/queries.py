"""The queries of a topology, started, watched and stopped together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.topology.config import INTERVAL, setting
from common.topology.declaration import Topology
from common.topology.plan import Query, queries_of
from worker.spark.topology import spout_source
from worker.spark.topology.figures import Tally, TallyParam
from worker.spark.topology.frames import QueryFrames
from worker.spark.topology.program import Pickled, Program
from worker.spark.topology.spout_source import Place
from worker.spark.topology.stages import BATCH

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINTS: Final = "checkpoints"
SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The tasks of a component are as many as were declared.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # A batch without records would tell nobody anything.
    "spark.sql.streaming.noDataProgressEventInterval": "600000",
}
"""Settings of the session for the queries of topologies."""


class RunningQuery:
    """One query that runs, and what its tasks have done."""

    def __init__(self, query: Query, handle: StreamingQuery, tally: Accumulator[Tally]) -> None:
        self.query = query
        self.handle = handle
        self._tally = tally

    @property
    def name(self) -> str:
        return self.query.name


class TopologyQueries:
    """The queries of one topology in one session."""

    def __init__(
        self, spark: SparkSession, topology: Topology, *, folder: Path, scratch: Path
    ) -> None:
        """Checkpoints and dead letters are kept in `folder`; `scratch` is this process's own.

        `committed` is called with the name of a query, the number of its batch and what its tasks
        have done, on the query's thread, before Spark takes note that the batch is done.
        """
        self._spark = spark
        self._topology = topology
        self._folder = folder
        self._scratch = scratch
        self.committed: Callable[[str, int, Tally], None] = lambda *_: None
        self.running: tuple[RunningQuery, ...] = ()

    def start(self) -> None:
        """Start all queries where they have been, or at their beginning."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        (self._folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for key, value in SETTINGS.items():
            self._spark.conf.set(key, value)
        self._spark.dataSource.register(spout_source.SpoutSource)
        started: list[RunningQuery] = []
        for query in queries_of(self._topology):
            started.append(self._started(query))
            self.running = tuple(started)

    def pause(self, *, paused: bool) -> None:
        """Have all spouts stand still behind the batch that runs, or go on."""
        file = self._scratch / spout_source.PAUSE
        if paused:
            file.touch()
        else:
            file.unlink(missing_ok=True)

    def place(self, query: str, spout: str) -> Place | None:
        """Return how far a spout is in a query; None before it was asked."""
        return spout_source.read_place(self._scratch, query, spout)

    def stop(self) -> None:
        """Stop all queries; a batch that runs is not waited for."""
        for each in self.running:
            each.handle.stop()

    def _started(self, query: Query) -> RunningQuery:
        spark = self._spark
        program = Program(topology=self._topology, query=query, folder=str(self._folder))
        content = Pickled.of(program).content
        # Processes of Spark's keep what they have read of a file, and outlive a query.
        file = self._scratch / f"program-{blake2b(content, digest_size=8).hexdigest()}.pickle"
        file.touch(mode=0o600)
        file.write_bytes(content)
        tally = spark.sparkContext.accumulator(Counter[tuple[str, str, str]](), TallyParam())
        frames = QueryFrames(program, tally)
        at_once = spark.sparkContext.defaultParallelism

        def spout(name: str) -> DataFrame:
            given = spout_source.options(file, name, scratch=self._scratch, at_once=at_once)
            return spark.readStream.format(spout_source.NAME).options(**given).load()

        stateful = {
            program.part(name).tasks
            for name in (*query.ahead, query.head)
            if name not in query.spouts
        }
        # Spark keeps the number of a query's first start, with its state.
        spark.conf.set("spark.sql.shuffle.partitions", str(max(stateful, default=1)))

        def run(frame: DataFrame, number: int) -> None:
            before = Counter(tally.value)
            spark.sparkContext.setLocalProperty(BATCH, str(number))
            last = frames.behind(frame)
            (frame if last is None else last).write.format("noop").mode("overwrite").save()
            done = Counter(tally.value)
            done.subtract(before)
            self.committed(query.name, number, done)

        interval = int(setting(INTERVAL, self._topology.config))
        writer = (
            frames.head(spout)
            .writeStream.foreachBatch(run)
            .queryName(f"{self._topology.name} {query.name}")
            .option("checkpointLocation", str(self._folder / CHECKPOINTS / query.name))
        )
        if interval:
            writer = writer.trigger(processingTime=f"{interval} milliseconds")
        return RunningQuery(query, writer.start(), tally)
