"""The queries of a topology, started, watched and stopped together."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.errors import SchedulerError
from common.topology.components import StatefulBolt
from common.topology.config import INTERVAL, setting
from common.topology.declaration import Topology
from common.topology.plan import Query, queries_of
from worker.spark.streaming.query import CHECKPOINTING
from worker.spark.topology import spout_source
from worker.spark.topology.checkpoints import CHECKPOINTS, is_open, kept_tasks
from worker.spark.topology.figures import Tally, TallyParam
from worker.spark.topology.frames import QueryFrames
from worker.spark.topology.loads import WEIGHTS, Loads
from worker.spark.topology.program import Pickled, Program
from worker.spark.topology.spout_source import Place
from worker.spark.topology.stages import BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The tasks of a component are as many as were declared.
    "spark.sql.adaptive.enabled": "false",
    **CHECKPOINTING,
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # A batch without records would tell nobody anything.
    "spark.sql.streaming.noDataProgressEventInterval": "600000",
}
"""Settings of the session for the queries of topologies."""
_QUIET_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05


class SparkEndedError(SchedulerError):
    """A query has ended without an error of its own."""


class BatchFailedError(Exception):
    """Ends a query of Spark's; its own error is that of `TopologyQueries.failure`."""


class StillRunningError(SchedulerError):
    """Tasks of stopped queries run on. Only the end of this process ends them for sure."""


class UnfinishedBatchError(SchedulerError):
    """States can't be spread over other tasks while a batch is to be done by the former ones."""


@dataclass(slots=True)
class RunningQuery:
    """One query that runs.

    `places`: those of each spout behind the last batch. `errors`: of its batches.
    """

    query: Query
    handle: StreamingQuery
    places: dict[str, Mapping[str, int]] = field(default_factory=dict)
    begins: Callable[[str], Mapping[str, int] | None] = lambda _: None
    """Returns where a spout has begun, if this process began it: Spark has no start for that."""
    errors: list[BaseException] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.query.name

    def acked(self) -> dict[str, int]:
        """Return the records of each spout that were committed since this was asked before."""
        progress = self.handle.lastProgress
        if progress is None:
            return {}
        if not self.places:
            # Other batches may have been done since the start, those of timers for example.
            first = self.handle.recentProgress[0]
            for spout, source in zip(self.query.spouts, first["sources"], strict=True):
                start = _places(source["startOffset"]) or self.begins(spout)
                at_zero = dict.fromkeys(_places(source["endOffset"]), 0)
                self.places[spout] = at_zero if start is None else start
        found = {}
        for spout, source in zip(self.query.spouts, progress["sources"], strict=True):
            start, end = (_places(source[each]) for each in ("startOffset", "endOffset"))
            # Spark leaves out what a trigger without a batch has not asked for.
            before = {**start, **self.places.get(spout, {})}
            self.places[spout] = {**before, **end}
            # A partition that was found since begins where that batch says.
            found[spout] = sum(at - before.get(each, at) for each, at in end.items())
        return found


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
        self.begun: Callable[[str, int], None] = lambda *_: None
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
        """Stop all queries, in the middle of their batches, and wait until none of their tasks run.

        Spark gives its jobs up at once, and ends a process that does not listen only seconds later.
        """
        for each in self.running:
            each.handle.stop()
        if self.running:
            self._await_quiet()
        self.running = ()

    def _await_quiet(self) -> None:
        """Wait until no task of Spark's runs; `StillRunningError` if that takes too long."""
        tracker = self._spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001  # Python's tracker has no tasks.
        deadline = time.monotonic() + _QUIET_SECONDS
        while any(each.numRunningTasks() for each in tracker.getExecutorInfos()):
            if time.monotonic() > deadline:
                raise StillRunningError(
                    f"a batch still runs {_QUIET_SECONDS:.0f} s after it was stopped"
                )
            time.sleep(_LOOK_SECONDS)

    def failure(self) -> tuple[str, BaseException] | None:
        """Return a query that has ended, and why; None while all run."""
        for each in self.running:
            if not each.handle.isActive:
                ended = SparkEndedError(f"query {each.name} has ended")
                return each.name, next(iter(each.errors), None) or each.handle.exception() or ended
        return None

    def is_busy(self) -> bool:
        """Return True if a batch runs, or one that was begun is to be done."""
        return any(each.handle.status["isTriggerActive"] for each in self.running) or any(
            is_open(self._folder / CHECKPOINTS / each.name) for each in self.running
        )

    def _spread(self, query: Query, tasks: int) -> None:
        """Have the states of a query that does not run spread over so many tasks."""
        folder = self._folder / CHECKPOINTS / query.name
        kept = kept_tasks(folder)
        if kept is not None and kept != tasks:
            if is_open(folder):
                raise UnfinishedBatchError(
                    f"the last batch of query {query.name} is to be done by {kept} tasks first"
                )
            manager = self._spark._streamingCheckpointManager  # noqa: SLF001  # It has no other.
            manager.repartition(str(folder), tasks)

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
        loads = Loads(program, self._folder)
        at_once = spark.sparkContext.defaultParallelism

        def spout(name: str) -> DataFrame:
            given = spout_source.options(file, name, scratch=self._scratch, at_once=at_once)
            return spark.readStream.format(spout_source.NAME).options(**given).load()

        stateful = [
            program.part(name).tasks
            for name in (*query.ahead, query.head)
            if isinstance(program.part(name).component, StatefulBolt)
        ]
        # Spark keeps the number of a query's first start, with its states.
        tasks = max(stateful, default=1)
        if stateful:
            self._spread(query, tasks)
        spark.conf.set("spark.sql.shuffle.partitions", str(tasks))

        errors: list[BaseException] = []

        def run(frame: DataFrame, number: int) -> None:
            try:
                run_batch(frame, number)
            except Exception as error:  # noqa: BLE001  # Spark raises anything.
                errors.append(error)
                # Spark searches a long text for a short one by an expression that takes all of
                # its thread's stack, and the query never ends.
                raise BatchFailedError(f"batch {number} has failed") from None

        def run_batch(frame: DataFrame, number: int) -> None:
            before = Counter(tally.value)
            self.begun(query.name, number)
            spark.sparkContext.setLocalProperty(BATCH, str(number))
            spark.sparkContext.setLocalProperty(WEIGHTS, loads.begin())
            last = frames.behind(frame)
            (frame if last is None else last).write.format("noop").mode("overwrite").save()
            done = Counter(tally.value)
            done.subtract(before)
            loads.end(done)
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
        return RunningQuery(
            query,
            writer.start(),
            begins=lambda spout: spout_source.read_begin(self._scratch, query.name, spout),
            errors=errors,
        )


def _places(offset: str | None) -> dict[str, int]:
    found: dict[str, int] | None = None if not offset else json.loads(offset)
    return found or {}
