"""Emissions of a task, as rows for those that take them. Runs in Spark's processes for Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from common.topology.components import DEFAULT, EmitError, Record, Stream
from common.topology.emitting import Emitter
from common.topology.groupings import Everyone, Global, LocalOrShuffle
from common.topology.plan import Edge, slots_of
from common.topology.routing import Router, neighbour
from common.topology.rows import checked_rows
from worker.spark.topology.loads import weights_now
from worker.spark.topology.program import (
    Program,
    arrays_of,
    is_left_to_spark,
    is_load_aware,
    schema_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


class Outbox(Emitter):
    """Gathers what one task emits, and gives it out as rows of the query.

    `first` is the number of the first record of each stream.
    """

    def __init__(self, program: Program, component: str, task: int, first: int) -> None:
        part = program.part(component)
        streams = program.streams(component)
        super().__init__(component, streams)
        self._name = component
        self._task = task
        self._topology = program.topology
        self._schema = schema_of(program.query)
        self._places = {name: self._schema.names.index(name) for name in program.query.slots}
        self._emitters = part.tasks
        self._edges = {name: program.query.edges_from(component, name) for name in streams}
        self._routers: dict[int, Router] = {}
        self._asked = {
            name: [edge for edge in edges if self._is_asked(edge)]
            for name, edges in self._edges.items()
        }
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in streams}
        self._targets: dict[int, list[tuple[int, ...]]] = {
            edge.number: [] for edges in self._asked.values() for edge in edges
        }
        self._first = dict.fromkeys(streams, first)
        self.emitted = dict.fromkeys(streams, 0)
        self.transferred = dict.fromkeys(streams, 0)

    def mark(self) -> dict[str, int]:
        """Return where it stands, for `take_back`."""
        return {name: len(rows) for name, rows in self._rows.items()}

    def take_back(self, mark: dict[str, int]) -> None:
        """Drop what was emitted since a mark, and not given out."""
        for name, length in mark.items():
            del self._rows[name][length:]
            for edge in self._asked[name]:
                del self._targets[edge.number][length:]

    def give(self) -> Iterator[pa.RecordBatch]:
        """Yield what was emitted since the last time."""
        for name, rows in self._rows.items():
            if not rows:
                continue
            self._rows[name] = []
            count = len(rows)
            if self._edges[name]:
                yield from self._to_all(name, self._arrays(rows, name), count)
            self.emitted[name] += count
            self._first[name] += count

    def _arrays(self, rows: list[tuple[Any, ...]], name: str) -> list[pa.Array]:
        try:
            return arrays_of(rows, self._streams[name])
        except OverflowError as error:
            raise EmitError(
                f"{self._name}: a number emitted on {name!r} has more than 64 bits"
            ) from error

    def give_rows(self, rows: pa.RecordBatch | pa.Table, stream: str) -> Iterator[pa.RecordBatch]:
        """Yield rows that an Arrow bolt emits, as the rows of the query; `EmitError`."""
        import pyarrow as pa

        found = checked_rows(rows, self._name, stream, self._streams)
        for batch in found.to_batches() if isinstance(found, pa.Table) else [found]:
            count = batch.num_rows
            for edge in self._asked[stream] if count else ():
                for values in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                    self._ask(edge, values, stream, None)
            if count and self._edges[stream]:
                yield from self._to_all(stream, batch.columns, count)
            self.emitted[stream] += count
            self._first[stream] += count

    def _send(self, values: tuple[Any, ...], stream: str, task: int | None) -> Sequence[int]:
        rows = self._rows[stream]
        for edge in self._asked[stream]:
            self._ask(edge, values, stream, task)
        rows.append(values)
        return _Reached(self, values, stream, len(rows) - 1)

    def reached(self, values: tuple[Any, ...], stream: str, place: int) -> Iterator[int]:
        """Yield the tasks that get a record that was just emitted."""
        number = self._first[stream] + place
        for edge in self._edges[stream]:
            if edge.number in self._targets:
                yield from self._targets[edge.number][place]
            else:
                record = _maker(self, values, stream)
                yield from self._router(edge).targets(values, number, None, record)

    def record(self, values: tuple[Any, ...], stream: str) -> Record:
        """Return the record of some values."""
        return Record(values, self._streams[stream].fields, self._name, stream, self._task)

    def _ask(self, edge: Edge, values: tuple[Any, ...], stream: str, task: int | None) -> None:
        record = _maker(self, values, stream)
        self._targets[edge.number].append(self._router(edge).targets(values, 0, task, record))

    def _is_asked(self, edge: Edge) -> bool:
        """Return True if a router has to be asked about each record."""
        match edge.taken.grouping:
            case Everyone() | Global():
                return False
            case LocalOrShuffle():
                return False
            case _ if is_load_aware(edge, self._topology, self._emitters):
                return False
            case _:
                return not is_left_to_spark(edge, self._topology, self._emitters)

    def _router(self, edge: Edge) -> Router:
        if edge.number not in self._routers:
            self._routers[edge.number] = Router(
                topology=self._topology.name,
                bolt=edge.bolt,
                taken=edge.taken,
                fields=self._streams[edge.taken.stream].fields,
                tasks=edge.tasks,
                emitter=self._task,
                emitters=self._emitters,
                hash=self._topology.hash,
                weights=weights_now(edge.number),
            )
        return self._routers[edge.number]

    def _to_all(
        self, name: str, columns: Sequence[pa.Array], count: int
    ) -> Iterator[pa.RecordBatch]:
        for edge in self._edges[name]:
            for batch in self._to(edge, self._streams[name], columns, count):
                self.transferred[name] += batch.num_rows
                yield batch

    def _to(
        self, edge: Edge, stream: Stream, columns: Sequence[pa.Array], count: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows for one edge."""
        import pyarrow as pa

        numbers = pa.array(
            range(self._first[edge.taken.stream], self._first[edge.taken.stream] + count)
        )
        grouping = edge.taken.grouping
        if is_left_to_spark(edge, self._topology, self._emitters):
            yield self._batch(edge, stream, columns, pa.nulls(count, pa.int32()), numbers)
        elif is_load_aware(edge, self._topology, self._emitters):
            first = self._first[edge.taken.stream]
            tasks = self._router(edge).shuffled(range(first, first + count))
            to = pa.array([edge.base + task for task in tasks], pa.int32())
            yield self._batch(edge, stream, columns, to, numbers)
        elif isinstance(grouping, Everyone):
            for task in range(edge.tasks):
                to = pa.repeat(pa.scalar(edge.base + task, pa.int32()), count)
                yield self._batch(edge, stream, columns, to, numbers)
        elif isinstance(grouping, Global | LocalOrShuffle):
            task = 0
            if isinstance(grouping, LocalOrShuffle):
                task = neighbour(self._task, self._emitters, edge.tasks)
            to = pa.repeat(pa.scalar(edge.base + task, pa.int32()), count)
            yield self._batch(edge, stream, columns, to, numbers)
        else:
            targets = self._targets[edge.number]
            self._targets[edge.number] = []
            picked = pa.array([at for at, each in enumerate(targets) for _ in each], pa.int64())
            to = pa.array([edge.base + task for each in targets for task in each], pa.int32())
            taken = [column.take(picked) for column in columns]
            yield self._batch(edge, stream, taken, to, numbers.take(picked))

    def _batch(
        self,
        edge: Edge,
        stream: Stream,
        columns: Sequence[pa.Array],
        to: pa.Array,
        numbers: pa.Array,
    ) -> pa.RecordBatch:
        import pyarrow as pa

        count = len(to)
        arrays = [
            pa.repeat(pa.scalar(edge.number, pa.int32()), count),
            to,
            pa.repeat(pa.scalar(self._task, pa.int32()), count),
            numbers,
        ]
        by_slot = dict(zip(slots_of(stream), columns, strict=True))
        arrays += [
            by_slot[slot] if slot in by_slot else pa.nulls(count, self._schema.field(slot).type)
            for slot in self._schema.names[len(arrays) :]
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Reached(Sequence[int]):
    """The tasks that a record has reached; worked out if somebody looks, before the next ones."""

    __slots__ = ("_outbox", "_place", "_stream", "_values")

    def __init__(self, outbox: Outbox, values: tuple[Any, ...], stream: str, place: int) -> None:
        self._outbox = outbox
        self._values = values
        self._stream = stream
        self._place = place

    def _found(self) -> tuple[int, ...]:
        return tuple(self._outbox.reached(self._values, self._stream, self._place))

    def __getitem__(self, place: Any) -> Any:
        return self._found()[place]

    def __len__(self) -> int:
        return len(self._found())

    def __eq__(self, other: object) -> bool:
        return self._found() == other

    __hash__ = None  # type: ignore[assignment]


def _maker(outbox: Outbox, values: tuple[Any, ...], stream: str) -> Any:
    return lambda: outbox.record(values, stream)


class RowsOutbox:
    """Emits the tables of an Arrow bolt; `given` are the rows of the query for them."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.given: list[pa.RecordBatch] = []

    def __call__(self, rows: pa.RecordBatch | pa.Table, *, stream: str = DEFAULT) -> None:
        self.given += self._outbox.give_rows(rows, stream)
