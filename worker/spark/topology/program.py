"""The program of a query, which all of its processes know: the topology, its plan, its settings.

Records on their way between components are rows of one shape for all of a query (`columns_of`):

    _edge    the number of the edge, one input of one bolt (`common.topology.plan`)
    _to      the partition of the task at its level; empty if Spark works it out
    _from    the number of the task that emitted it
    _number  how many that task had emitted into the stream before, or a place with the same meaning
    …        the slots, of which a stream uses those of its fields
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle

from common.topology.components import Stream, streams_of
from common.topology.config import NOT_LOAD_AWARE, setting
from common.topology.declaration import Part, Topology
from common.topology.groupings import ByFields, LocalOrShuffle, Shuffle, Unordered
from common.topology.plan import Edge, Query, part_of, slots_of, type_of_slot
from common.topology.rows import arrow_type
from common.topology.types import OBJECT, TYPES

if TYPE_CHECKING:
    import pyarrow as pa

EDGE: Final = "_edge"
TO: Final = "_to"
FROM: Final = "_from"
NUMBER: Final = "_number"
_SETTLED_AT: Final = (2, 4, 16)
"""Uses of the program in a process: each kind of a task imports modules of its own."""
_uses: Final = count(1)
_SPAN: Final = 1 << 32
"""The numbers that records of a batch have in a stream, at most."""


@dataclass(slots=True)
class Program:
    """A query of a topology, as its processes have it. Dead letters go into `folder`."""

    topology: Topology
    query: Query
    folder: str = ""

    def part(self, name: str) -> Part:
        """Return a component."""
        return part_of(self.topology, name)

    def streams(self, name: str) -> dict[str, Stream]:
        """Return the streams of a component."""
        return streams_of(self.part(name).component)

    def stream_of(self, edge: Edge) -> Stream:
        """Return the stream that an edge takes."""
        return self.streams(edge.taken.component)[edge.taken.stream]

    def key_types(self, name: str) -> tuple[str, ...]:
        """Return the types of Spark of the key of a stateful bolt."""
        edge = self.query.edges_to(name)[0]
        stream = self.stream_of(edge)
        return tuple(type_of_slot(slots_of(stream)[place]) for place in key_places(edge, stream))


@lru_cache(maxsize=8)
def _loaded(pickled: bytes) -> Program:
    found = pickle.loads(pickled)  # noqa: S301  # Of our own making.
    assert isinstance(found, Program)
    return found


def _settle() -> None:
    """Have Python's collector leave alone what this process has imported, once it has done so.

    Spark's processes for Python collect garbage behind each task, and look through all that there
    is, which takes longer than a batch of few records. What is still there by then is no garbage.
    """
    if next(_uses) in _SETTLED_AT:
        gc.collect()
        gc.freeze()


@dataclass(frozen=True, slots=True)
class Pickled:
    """A program on its way to other processes, each of which reads it once.

    A broadcast would be that too, but Spark makes processors of state where there are none.
    """

    content: bytes

    @classmethod
    def of(cls, program: Program) -> Pickled:
        """Return a program as it goes to other processes."""
        return cls(cloudpickle.dumps(program))  # type: ignore[no-untyped-call]

    @property
    def value(self) -> Program:
        """The program; a task asks for it as it begins."""
        _settle()
        return _loaded(self.content)


def key_places(edge: Edge, stream: Stream) -> tuple[int, ...]:
    """Return the places of the fields that an edge is grouped by."""
    assert isinstance(edge.taken.grouping, ByFields)
    return tuple(stream.fields.index(field) for field in edge.taken.grouping.fields)


def is_load_aware(edge: Edge, topology: Topology, emitters: int) -> bool:
    """Return True if tasks get the more the quicker they are."""
    grouping = edge.taken.grouping
    if isinstance(grouping, Shuffle) or (
        isinstance(grouping, LocalOrShuffle) and edge.tasks > emitters
    ):
        config = part_of(topology, edge.bolt).config
        return not setting(NOT_LOAD_AWARE, config, topology.config)
    return False


def is_left_to_spark(edge: Edge, topology: Topology, emitters: int) -> bool:
    """Return True if Spark works the task out, by the expressions of `frames`."""
    if is_load_aware(edge, topology, emitters):
        return False
    match edge.taken.grouping:
        case ByFields():
            return topology.hash == "spark"
        case Shuffle() | Unordered():
            return True
        case LocalOrShuffle():
            return edge.tasks > emitters
        case _:
            return False


def ddl_of(query: Query) -> str:
    """Return the columns of the records of a query, for Spark."""
    slots = "".join(f", `{slot}` {type_of_slot(slot)}" for slot in query.slots)
    return f"{EDGE} int, {TO} int, {FROM} int, {NUMBER} bigint{slots}"


def schema_of(query: Query) -> pa.Schema:
    """Return the columns of the records of a query, for Arrow."""
    import pyarrow as pa

    by_spark = {each.spark: name for name, each in TYPES.items()}
    return pa.schema(
        [
            (EDGE, pa.int32()),
            (TO, pa.int32()),
            (FROM, pa.int32()),
            (NUMBER, pa.int64()),
            *((slot, arrow_type(by_spark[type_of_slot(slot)])) for slot in query.slots),
        ]
    )


def arrays_of(rows: Sequence[tuple[Any, ...]], stream: Stream) -> list[pa.Array]:
    """Return the columns of values that are as declared."""
    import pyarrow as pa

    return [
        pa.array(
            [None if value is None else pickle.dumps(value) for value in column]
            if type_name == OBJECT
            else column,
            arrow_type(type_name),
        )
        for column, type_name in zip(zip(*rows, strict=True), stream.types, strict=True)
    ]


def values_of(rows: pa.RecordBatch, stream: Stream) -> list[tuple[Any, ...]]:
    """Return the values of rows on an edge, as they were emitted."""
    columns = []
    for slot, type_name in zip(slots_of(stream), stream.types, strict=True):
        column = rows.column(slot).to_pylist()
        if type_name == OBJECT:
            column = [None if each is None else pickle.loads(each) for each in column]  # noqa: S301
        columns.append(column)
    return list(zip(*columns, strict=True))


def first_number(batch: int) -> int:
    """Return the number of the first record that a bolt emits in a batch."""
    return batch * _SPAN
