"""The operators of a query: spouts, what leads to a stateful head, the levels behind the head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.util import PythonEvalType

from common.topology.components import StatefulBolt
from common.topology.groupings import ByFields, Unordered
from common.topology.plan import Edge, slots_of
from common.topology.routing import seed_of
from worker.spark.topology.keyed import OUT, KeyedProcessor, has_timers
from worker.spark.topology.program import (
    EDGE,
    FROM,
    NUMBER,
    TO,
    Pickled,
    Program,
    ddl_of,
    is_left_to_spark,
    key_places,
)
from worker.spark.topology.stages import PACKED, BoltStage, LevelStage, PackStage, UnpackStage

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import Column, DataFrame

    from worker.spark.topology.figures import Tally

PROCESSING_TIME: Final = "processingTime"
NO_TIME: Final = "none"


class MapInArrow:
    """`DataFrame.mapInArrow` of one function for many frames of the same columns.

    Its expression is made once: to make it takes longer than a batch of few records.
    """

    def __init__(
        self, function: Callable[[Iterator[Any]], Iterator[Any]], ddl: str, columns: Sequence[str]
    ) -> None:
        made: Any = pandas_udf(
            function,
            returnType=ddl,
            functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,  # type: ignore[call-overload]
        )
        self._column = made(*(sf.col(f"`{name}`") for name in columns))

    def __call__(self, frame: DataFrame) -> DataFrame:
        mapped = frame._jdf.mapInArrow(self._column._jc, False, None)  # noqa: SLF001
        return type(frame)(mapped, frame.sparkSession)


class QueryFrames:
    """Makes the frames of one query."""

    def __init__(self, program: Program, tally: Accumulator[Tally]) -> None:
        self._program = program
        self._query = program.query
        self._tally = tally
        self._ddl = ddl_of(program.query)
        self._shared = Pickled.of(program)

    def head(self, spout: Callable[[str], DataFrame]) -> DataFrame:
        """Return what the head emits, of streaming frames of what spouts emit."""
        found = {name: spout(name) for name in self._query.spouts}
        for name in (*self._query.ahead, self._query.head):
            if name not in found:
                found[name] = self._bolt(name, found)
        return found[self._query.head]

    def behind(self, frame: DataFrame) -> DataFrame | None:
        """Return the last level of a batch of what the head emits; None if there is no level."""
        for total, to, mapped in self._levels:
            frame = mapped(frame.repartitionById(total, to))
        return frame if self._levels else None

    @cached_property
    def _levels(self) -> tuple[tuple[int, Column, MapInArrow], ...]:
        """The tasks of each level, the partition of a record, and the stage: made once."""
        made = []
        for number, level in enumerate(self._query.levels, 1):
            total = sum(self._program.part(name).tasks for name in level)
            edges = [edge for edge in self._query.edges if edge.level == number]
            # What is for later levels is passed on by whatever task.
            to = sf.coalesce(sf.pmod(self._to(edges), sf.lit(total)), sf.lit(0))
            stage = LevelStage(self._shared, number, self._tally)
            made.append((total, to, MapInArrow(stage, self._ddl, self._columns)))
        return tuple(made)

    @property
    def _columns(self) -> tuple[str, ...]:
        return (EDGE, TO, FROM, NUMBER, *self._query.slots)

    def _bolt(self, name: str, found: dict[str, DataFrame]) -> DataFrame:
        edges = self._query.edges_to(name)
        frames = [
            self._of_edge(found[source], source, edges)
            for source in dict.fromkeys(edge.taken.component for edge in edges)
        ]
        frame = frames[0]
        for each in frames[1:]:
            frame = frame.unionByName(each)
        part = self._program.part(name)
        if isinstance(part.component, StatefulBolt):
            return self._keyed(name, part.component, frame)
        frame = frame.repartitionById(part.tasks, self._to(edges))
        return frame.mapInArrow(BoltStage(self._shared, name, self._tally), self._ddl)

    def _of_edge(self, frame: DataFrame, source: str, edges: tuple[Edge, ...]) -> DataFrame:
        """Return the records of some edges; most components have no others."""
        from_source = [e for e in self._query.edges if e.taken.component == source]
        numbers = [edge.number for edge in edges if edge.taken.component == source]
        if len(from_source) == len(numbers):
            return frame
        return frame.where(sf.col(EDGE).isin(numbers))

    def _keyed(self, name: str, bolt: StatefulBolt, frame: DataFrame) -> DataFrame:
        types = self._program.key_types(name)
        names = [f"_k{place}" for place in range(len(types))]
        keys = ", ".join(f"{key} {kind}" for key, kind in zip(names, types, strict=True))
        packed = frame.mapInArrow(
            PackStage(self._shared, name, self._tally), f"{keys}, {PACKED} binary"
        )
        done = packed.groupBy(*names).transformWithState(
            KeyedProcessor(self._shared, name),
            outputStructType=f"{OUT} binary",
            outputMode="Append",
            timeMode=PROCESSING_TIME if has_timers(bolt) else NO_TIME,
        )
        return done.mapInArrow(UnpackStage(self._shared, name, self._tally), self._ddl)

    def _to(self, edges: Iterable[Edge]) -> Column:
        """Return the partition of a record, for some edges, which Spark may have to work out."""
        to: Column | None = None
        for edge in edges:
            emitters = self._program.part(edge.taken.component).tasks
            if is_left_to_spark(edge, self._program.topology, emitters):
                is_it = sf.col(EDGE) == edge.number
                target = self._target(edge).cast("int")
                to = sf.when(is_it, target) if to is None else to.when(is_it, target)
        return sf.col(TO) if to is None else to.otherwise(sf.col(TO))

    def _target(self, edge: Edge) -> Column:
        """Return the partition of an edge's task, as `common.topology.routing` works it out."""
        tasks = sf.lit(edge.tasks)
        if isinstance(edge.taken.grouping, ByFields):
            stream = self._program.stream_of(edge)
            slots = slots_of(stream)
            key = [sf.col(f"`{slots[place]}`") for place in key_places(edge, stream)]
            return edge.base + sf.pmod(sf.hash(*key), tasks)
        seed = seed_of(self._program.topology.name, edge.bolt, edge.taken)
        emitter = sf.col(FROM).cast("bigint")
        if isinstance(edge.taken.grouping, Unordered):
            drawn = sf.hash(sf.lit(seed).cast("bigint"), emitter, sf.col(NUMBER))
            return edge.base + sf.pmod(drawn, tasks)
        cycle = sf.expr(f"{NUMBER} div {edge.tasks}")
        place = sf.expr(f"{NUMBER} % {edge.tasks}")
        drawn = sf.hash(sf.lit(seed).cast("bigint"), emitter, cycle).cast("bigint")
        turned = drawn + sf.when(drawn >= 0, place).otherwise(-place)
        return edge.base + sf.pmod(turned, tasks)
