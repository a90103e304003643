"""The functions that Spark runs for a query: bolts and sinks, and the packing of keys.

Each takes and gives batches of Arrow, as `DataFrame.mapInArrow` has it, in one partition, which is
one task of one component. Whatever a bolt emits from a batch is given out before the next one is
taken, so a task holds the records of one batch of Arrow; a sink's task holds its share.
"""

from __future__ import annotations

import json
import os
import pickle
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark import TaskContext

from common.topology.components import ArrowBolt, Batch, Bolt, Record, Rows, Sink
from common.topology.config import ON_ERROR, TRIES, OnError, setting
from common.topology.declaration import Part
from common.topology.groupings import ByFields
from common.topology.plan import Edge, slots_of
from worker.spark.topology.figures import EMITTED, TRANSFERRED, Tally, TaskTally
from worker.spark.topology.outbox import Outbox, RowsOutbox
from worker.spark.topology.program import (
    EDGE,
    FROM,
    NUMBER,
    Pickled,
    Program,
    first_number,
    key_places,
    values_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator

BATCH: Final = "orcaflow.batch"
"""The property of a job that names its batch, where Spark's own does not."""
_SPARKS_BATCH: Final = "streaming.sql.batchId"
PACKED: Final = "_records"
DEAD_LETTERS: Final = "dead-letters"


RAISED: Final = (Exception, SystemExit)
"""The errors that an author's code raises: anything, and `sys.exit` is one."""


class ComponentFailedError(Exception):
    """A component has raised an error; the text names it, its task and the line."""


def batch_number() -> int:
    """Return the number of the batch that this process of Spark's works for."""
    context = TaskContext.get()
    assert context is not None
    found = context.getLocalProperty(BATCH) or context.getLocalProperty(_SPARKS_BATCH)
    return int(found or 0)


def partition_number() -> int:
    """Return the number of the partition that this process of Spark's works on."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


class LevelStage:
    """Runs the bolts of one level behind the head, and passes on what is for later ones."""

    def __init__(self, program: Pickled, level: int, tally: Accumulator[Tally]) -> None:
        self._program = program
        self._level = level
        self._tally = tally

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program = self._program.value
        partition = partition_number()
        tasks = program.query.levels[self._level - 1]
        found = next(
            (
                (name, partition - base)
                for name, base in tasks.items()
                if base <= partition < base + program.part(name).tasks
            ),
            None,
        )
        if found is None:
            yield from batches  # Of later levels alone.
            return
        mine = {edge.number: edge for edge in program.query.edges_to(found[0])}
        work = ComponentWork(program, *found)
        for batch in batches:
            for number, rows in by_edge(batch):
                if number in mine:
                    yield from work.take(mine[number], rows)
                else:
                    yield rows
        work.end()
        self._tally.add(work.tally.counts)


class ComponentStage:
    """A stage of one component alone, whose tasks are its partitions."""

    def __init__(self, program: Pickled, component: str, tally: Accumulator[Tally]) -> None:
        self._program = program
        self._component = component
        self._tally = tally


class BoltStage(ComponentStage):
    """Runs the tasks of one bolt ahead of the head."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program = self._program.value
        work = ComponentWork(program, self._component, partition_number())
        mine = {edge.number: edge for edge in program.query.edges_to(self._component)}
        for batch in batches:
            for number, rows in by_edge(batch):
                yield from work.take(mine[number], rows)
        work.end()
        self._tally.add(work.tally.counts)


class PackStage(ComponentStage):
    """Gathers the records of each key into one row, before Spark sorts them by their keys."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from common.topology.rows import arrow_type

        program = self._program.value
        mine = {edge.number: edge for edge in program.query.edges_to(self._component)}
        first = next(iter(mine.values()))
        stream = program.stream_of(first)
        types = [arrow_type(stream.types[place]) for place in key_places(first, stream)]
        names = [*(f"_k{place}" for place in range(len(types))), PACKED]
        for batch in batches:
            packed: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
            for number, rows in by_edge(batch):
                edge = mine[number]
                stream = program.stream_of(edge)
                places = key_places(edge, stream)
                slots = slots_of(stream)
                keys = zip(*(rows.column(slots[at]).to_pylist() for at in places), strict=True)
                about = zip(
                    keys,
                    rows.column(FROM).to_pylist(),
                    rows.column(NUMBER).to_pylist(),
                    values_of(rows, stream),
                    strict=True,
                )
                for key, emitter, place, values in about:
                    found = packed.get(key)
                    if found is None:
                        found = packed[key] = []
                    found.append((emitter, place, number, values))
            if packed:
                columns = list(zip(*packed, strict=True))
                yield pa.RecordBatch.from_arrays(
                    [
                        *(
                            pa.array(column, kind)
                            for column, kind in zip(columns, types, strict=True)
                        ),
                        pa.array([pickle.dumps(each) for each in packed.values()], pa.binary()),
                    ],
                    names=names,
                )


class UnpackStage(ComponentStage):
    """Gives out what the keys of a stateful bolt have emitted."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program = self._program.value
        task = partition_number()
        outbox = Outbox(program, self._component, task, first_number(batch_number()))
        tally = TaskTally(self._component, task)
        seen: Counter[object] = Counter()
        for batch in batches:
            for packed in batch.column(0).to_pylist():
                done: KeyDone = pickle.loads(packed)  # noqa: S301  # Our own, from `keyed`.
                for values, stream, target in done.emitted:
                    if target is None:
                        outbox(*values, stream=stream)
                    else:
                        outbox.direct(target, *values, stream=stream)
                tally.counts.update(done.counts)
                seen[done.key] += done.records
            yield from outbox.give()
        tally.keys(seen)
        count_emitted(tally, outbox)
        self._tally.add(tally.counts)


@dataclass(slots=True)
class KeyDone:
    """The work of a stateful bolt at one key."""

    key: tuple[Any, ...]
    records: int
    emitted: list[tuple[tuple[Any, ...], str, int | None]]
    counts: Tally


class ComponentWork:
    """The work of one task of a bolt or sink in one batch."""

    def __init__(self, program: Program, name: str, task: int) -> None:
        self._program = program
        self._part = program.part(name)
        self._task = task
        self._batch = batch_number()
        self._streams: dict[int, Any] = {}
        self._share: list[Record] = []
        self._seen: Counter[object] = Counter()
        self.outbox = Outbox(program, name, task, first_number(self._batch))
        self.tally = TaskTally(name, task)
        self._guard = Guard(program, self._part, task, self._batch, self.tally)

    def take(self, edge: Edge, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Have the component take rows of one edge; yield what it emits."""
        begun = time.perf_counter_ns()
        taken = f"{edge.taken.component}:{edge.taken.stream}"
        component = self._part.component
        given: list[pa.RecordBatch] = []
        if isinstance(component, ArrowBolt):
            given = self._take_rows(component, edge, rows)
        else:
            records = self._records(edge, rows)
            if isinstance(component, Bolt):
                process, outbox = component.process, self.outbox
                self._guard.each(records, lambda record: process(record, outbox), outbox, taken)
            else:
                self._share += records
            if isinstance(edge.taken.grouping, ByFields):
                places = key_places(edge, self._program.stream_of(edge))
                self._seen.update(tuple(r.values[at] for at in places) for r in records)
        try:
            given += self.outbox.give()
        except RAISED as error:  # An object that can't be pickled.
            raise failed_at(self._part.id, self._task, error) from error
        self.tally.executed(taken, rows.num_rows)
        self.tally.took((time.perf_counter_ns() - begun) // 1_000)
        yield from given

    def end(self) -> None:
        """Write the share of a sink, and count what was emitted."""
        component = self._part.component
        if isinstance(component, Sink) and self._share:
            begun = time.perf_counter_ns()
            query = self._program.query.name
            batch = Batch(self._program.topology.name, self._batch, query, self._task)
            try:
                component.write(self._share, batch)
            except RAISED as error:
                raise failed_at(self._part.id, self._task, error) from error
            self.tally.took((time.perf_counter_ns() - begun) // 1_000)
        self._guard.close()
        self.tally.keys(self._seen)
        count_emitted(self.tally, self.outbox)

    def _take_rows(
        self, component: ArrowBolt, edge: Edge, rows: pa.RecordBatch
    ) -> list[pa.RecordBatch]:
        import pyarrow as pa

        stream = self._program.stream_of(edge)
        columns = [rows.column(slot) for slot in slots_of(stream)]
        named = pa.RecordBatch.from_arrays(columns, names=list(stream.fields))
        emit = RowsOutbox(self.outbox)
        try:
            component.process(Rows(named, edge.taken.component, edge.taken.stream), emit)
        except RAISED as error:
            raise failed_at(self._part.id, self._task, error) from error
        return emit.given

    def _records(self, edge: Edge, rows: pa.RecordBatch) -> list[Record]:
        stream = self._program.stream_of(edge)
        name, from_ = edge.taken.stream, edge.taken.component
        return [
            Record(values, stream.fields, from_, name, emitter)
            for values, emitter in zip(
                values_of(rows, stream), rows.column(FROM).to_pylist(), strict=True
            )
        ]


class Undoable(Protocol):
    """A place to emit into, whose last records can be taken back."""

    def mark(self) -> dict[str, int]: ...

    def take_back(self, mark: dict[str, int]) -> None: ...


class Guard:
    """Has each record tried as often as it may, and then failed, skipped or kept."""

    def __init__(
        self, program: Program, part: Part, task: int, batch: int, tally: TaskTally
    ) -> None:
        configs = (part.config, program.topology.config)
        self._on_error = OnError(setting(ON_ERROR, *configs))
        self._tries = int(setting(TRIES, *configs))
        self.is_strict = self._on_error is OnError.FAIL and self._tries == 1
        """True if the first error fails the batch, so that nothing is ever to be taken back."""
        self._part = part
        self._task = task
        self._tally = tally
        self._letters: list[dict[str, Any]] = []
        self._file = (
            Path(program.folder)
            / DEAD_LETTERS
            / part.id
            / f"{program.query.name}-{batch}-{task}.jsonl"
        )

    def each(
        self,
        records: Sequence[Record],
        process: Callable[[Record], object],
        outbox: Undoable,
        taken: str,
    ) -> None:
        """Process records one by one; `ComponentFailedError` if one fails the batch."""
        for record in records:
            mark = {} if self.is_strict else outbox.mark()
            try:
                process(record)
            except RAISED as error:
                outbox.take_back(mark)
                self._again(record, process, outbox, error, taken)

    def _again(
        self,
        record: Record,
        process: Callable[[Record], object],
        outbox: Undoable,
        error: BaseException,
        taken: str,
    ) -> None:
        for _ in range(self._tries - 1):
            mark = outbox.mark()
            try:
                process(record)
            except RAISED as again:
                outbox.take_back(mark)
                error = again
            else:
                return
        self.give_up(record, error, taken)

    def give_up(self, record: Record, error: BaseException, taken: str) -> None:
        """Do with a record what is to be done after the last try."""
        told = failed_at(self._part.id, self._task, error)
        if self._on_error is OnError.FAIL:
            raise told from error
        self._tally.failed(taken, told)
        if self._on_error is OnError.DEAD_LETTER:
            self._letters.append(
                {
                    "component": self._part.id,
                    "task": self._task,
                    "from": record.component,
                    "stream": record.stream,
                    "values": dict(zip(record.fields, record.values, strict=True)),
                    "error": str(told),
                }
            )

    def close(self) -> None:
        """Keep the dead letters of the batch, in the place of those of its last try."""
        if not self._letters:
            if self._on_error is OnError.DEAD_LETTER:
                self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        lines = (json.dumps(each, default=repr) for each in self._letters)
        beside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        beside.replace(self._file)


def by_edge(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a batch edge by edge; nearly always there is one."""
    import pyarrow.compute as pc

    edges = batch.column(EDGE)
    numbers = pc.unique(edges).to_pylist()
    for number in numbers:
        yield number, batch if len(numbers) == 1 else batch.filter(pc.equal(edges, number))


def count_emitted(tally: TaskTally, outbox: Outbox) -> None:
    """Count what a task has emitted."""
    for stream, count in outbox.emitted.items():
        tally.add(EMITTED, stream, count)
    for stream, count in outbox.transferred.items():
        tally.add(TRANSFERRED, stream, count)


def failed_at(
    component: str, task: int, error: BaseException, *, place: str = ""
) -> ComponentFailedError:
    """Return the error of a component with the component, the task and the line in its text.

    `place` is for an error that was raised outside of the author's code.
    """
    trace = error.__traceback__
    found = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_OTHER_FOLDERS):
            found = place_of(file, trace.tb_lineno)
        trace = trace.tb_next
    told = f"{type(error).__name__}: {error!s:.500}"
    return ComponentFailedError(f"{component}, task {task}: {told}{found or place}")


def place_of(file: str, line: int) -> str:
    """Return a place in the code, for the end of a sentence."""
    return f" ({Path(file).name}:{line})"


_ROOT: Final = Path(__file__).resolve().parents[3]
_OTHER_FOLDERS: Final = (
    str(_ROOT / "worker"),
    str(_ROOT / "common"),
    # The line of the author's that has called a library says more than the library's.
    *(sysconfig.get_path(each) for each in ("stdlib", "purelib", "platlib")),
    "<frozen ",
)
