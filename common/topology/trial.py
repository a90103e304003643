"""Runs a topology in this process, as one batch, for the tests of its author. Pure.

The records of a component are taken in the order in which its inputs' components stand in the
topology's order, then in that of their emission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from common.topology.checking import checked, graph_of
from common.topology.components import (
    DEFAULT,
    FORGET,
    ArrowBolt,
    Batch,
    Bolt,
    EmitError,
    Record,
    Rows,
    Sink,
    Spout,
    StatefulBolt,
    Stream,
    streams_of,
)
from common.topology.declaration import Input, Part, Topology
from common.topology.emitting import Emitter
from common.topology.groupings import ByFields
from common.topology.routing import Router
from common.topology.rows import arrow_type, checked_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class On:
    """Values for a spout's stream other than the default one."""

    stream: str
    values: tuple[Any, ...]


@dataclass(slots=True)
class TaskTrial:
    """The records that one task received and emitted, in order."""

    received: list[Record] = field(default_factory=list)
    emitted: list[Record] = field(default_factory=list)
    states: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Of a stateful bolt: the state of each key that belongs to the task."""


class Trial:
    """The outcome of a trial: `trial["count", 2]` is what task 2 of `count` has had and emitted."""

    def __init__(self, tasks: Mapping[str, Sequence[TaskTrial]]) -> None:
        self._tasks = tasks

    def __getitem__(self, place: tuple[str, int]) -> TaskTrial:
        component, task = place
        return self._tasks[component][task]

    def tasks(self, component: str) -> Sequence[TaskTrial]:
        """Return all tasks of a component, by their numbers."""
        return self._tasks[component]

    def received(self, component: str) -> list[tuple[Any, ...]]:
        """Return the values that all tasks of a component received, task by task."""
        return [record.values for task in self._tasks[component] for record in task.received]

    def emitted(self, component: str, stream: str = DEFAULT) -> list[tuple[Any, ...]]:
        """Return the values that all tasks of a component emitted on a stream, task by task."""
        return [
            record.values
            for task in self._tasks[component]
            for record in task.emitted
            if record.stream == stream
        ]


def run(topology: Topology, inputs: Mapping[str, Iterable[tuple[Any, ...] | On]]) -> Trial:
    """Run a topology on these records of its spouts, which deal them out to their tasks in turn.

    `InvalidTopologyError` if it could not be submitted, `EmitError` for what can't be emitted; what
    a component raises passes through.
    """
    checked(topology)
    unknown = inputs.keys() - {
        part.id for part in topology.parts if isinstance(part.component, Spout)
    }
    if unknown:
        raise EmitError(f"inputs: there is no spout {min(unknown)!r}")
    return _Run(topology).run(inputs)


class _Run:
    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._parts = {part.id: part for part in topology.parts}
        self._tasks = {part.id: [TaskTrial() for _ in range(part.tasks)] for part in topology.parts}
        self._subscribers: dict[tuple[str, str], list[tuple[Part, Input]]] = {}
        for part in topology.parts:
            for taken in part.inputs:
                key = (taken.component, taken.stream)
                self._subscribers.setdefault(key, []).append((part, taken))
        # With each record how it has been grouped, which is the key of a stateful bolt.
        self._waiting: dict[str, list[list[tuple[Record, Input]]]] = {
            part.id: [[] for _ in range(part.tasks)] for part in topology.parts
        }

    def run(self, inputs: Mapping[str, Iterable[tuple[Any, ...] | On]]) -> Trial:
        for name in graph_of(self._topology).names:
            part = self._parts[name]
            if isinstance(part.component, Spout):
                self._spout(part, inputs.get(name, ()))
            else:
                for task in range(part.tasks):
                    self._task(part, task)
        return Trial(self._tasks)

    def _spout(self, part: Part, given: Iterable[tuple[Any, ...] | On]) -> None:
        emits = [self._emit(part, task) for task in range(part.tasks)]
        for number, each in enumerate(given):
            found = each if isinstance(each, On) else On(DEFAULT, tuple(each))
            emits[number % part.tasks](*found.values, stream=found.stream)

    def _task(self, part: Part, task: int) -> None:
        received = self._waiting[part.id][task]
        trial = self._tasks[part.id][task]
        trial.received += [record for record, _ in received]
        component, emit = part.component, self._emit(part, task)
        match component:
            case Bolt():
                for record, _ in received:
                    component.process(record, emit)
            case StatefulBolt():
                for record, taken in received:
                    assert isinstance(taken.grouping, ByFields)
                    key = _key([record[name] for name in taken.grouping.fields])
                    state = trial.states[key] if key in trial.states else component.initial()
                    state = component.process(record, state, emit)
                    if state is FORGET:
                        trial.states.pop(key, None)
                    else:
                        trial.states[key] = state
            case ArrowBolt():
                for taken in part.inputs:
                    records = [record for record, each in received if each is taken]
                    if records:
                        stream = streams_of(self._parts[taken.component].component)[taken.stream]
                        rows = Rows(_rows(records, stream), taken.component, taken.stream)
                        component.process(rows, _TrialEmitRows(emit))
            case Sink():
                if received:
                    batch = Batch(self._topology.name, 0, task=task)
                    component.write([record for record, _ in received], batch)

    def _emit(self, part: Part, task: int) -> _TrialEmit:
        streams = streams_of(part.component)
        routers = {
            stream: [
                (
                    bolt.id,
                    taken,
                    Router(
                        topology=self._topology.name,
                        bolt=bolt.id,
                        taken=taken,
                        fields=streams[stream].fields,
                        tasks=bolt.tasks,
                        emitter=task,
                        emitters=part.tasks,
                        hash=self._topology.hash,
                    ),
                )
                for bolt, taken in self._subscribers.get((part.id, stream), ())
            ]
            for stream in streams
        }
        emitted = self._tasks[part.id][task].emitted
        return _TrialEmit(part.id, task, streams, _Way(routers, emitted, self._deliver))

    def _deliver(self, bolt: str, task: int, record: Record, taken: Input) -> None:
        self._waiting[bolt][task].append((record, taken))


def _key(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values that may hold lists as what a state can be kept by."""
    return tuple(_key(each) if isinstance(each, list | tuple) else each for each in values)


def _rows(records: Sequence[Record], stream: Stream) -> pa.RecordBatch:
    import pyarrow as pa

    columns = zip(*(record.values for record in records), strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, arrow_type(type_name))
            for column, type_name in zip(columns, stream.types, strict=True)
        ],
        names=list(stream.fields),
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """The way of what a task emits: noted, then routed and delivered to each that takes it."""

    routers: Mapping[str, Sequence[tuple[str, Input, Router]]]
    emitted: list[Record]
    deliver: Callable[[str, int, Record, Input], None]


class _TrialEmit(Emitter):
    """Emits for a task in a trial."""

    checks_sizes = True

    def __init__(self, part: str, task: int, streams: Mapping[str, Stream], way: _Way) -> None:
        super().__init__(part, streams)
        self._part = part
        self._task = task
        self._way = way
        self._numbers = dict.fromkeys(streams, 0)

    def rows(self, rows: pa.RecordBatch | pa.Table, stream: str) -> None:
        """Emit rows as if they were records."""
        found = checked_rows(rows, self._part, stream, self._streams)
        for values in zip(*(column.to_pylist() for column in found.columns), strict=True):
            self(*values, stream=stream)

    def _send(self, values: tuple[Any, ...], stream: str, task: int | None) -> tuple[int, ...]:
        number = self._numbers[stream]
        self._numbers[stream] = number + 1
        fields = self._streams[stream].fields
        record = Record(values, fields, self._part, stream, self._task)
        self._way.emitted.append(record)
        reached: list[int] = []
        for bolt, taken, router in self._way.routers[stream]:
            for target in router.targets(values, number, task, lambda: record):
                self._way.deliver(bolt, target, record, taken)
                reached.append(target)
        return tuple(reached)


class _TrialEmitRows:
    """Emits the rows of an Arrow bolt in a trial."""

    def __init__(self, emit: _TrialEmit) -> None:
        self._emit = emit

    def __call__(self, rows: pa.RecordBatch | pa.Table, *, stream: str = DEFAULT) -> None:
        self._emit.rows(rows, stream)
