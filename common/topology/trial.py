"""Runs a topology in this process, as one batch, for the tests of its author. Pure.

The records of a component are taken in the order in which its inputs' components stand in the
topology's order, then in that of their emission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.topology.checking import checked, graph_of
from common.topology.components import (
    DEFAULT,
    Batch,
    Bolt,
    EmitError,
    Record,
    Sink,
    Spout,
    StatefulBolt,
    Stream,
    streams_of,
)
from common.topology.declaration import Input, Part, Topology
from common.topology.groupings import ByFields, Direct
from common.topology.routing import Router


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
                    trial.states[key] = component.process(record, state, emit)
            case Sink():
                if received:
                    batch = Batch(self._topology.name, 0)
                    component.write([record for record, _ in received], batch)

    def _emit(self, part: Part, task: int) -> _TrialEmit:
        routers = {
            stream: [
                (
                    bolt.id,
                    taken,
                    Router(
                        topology=self._topology.name,
                        bolt=bolt.id,
                        taken=taken,
                        tasks=bolt.tasks,
                        emitter=task,
                        emitters=part.tasks,
                        hash=self._topology.hash,
                    ),
                )
                for bolt, taken in self._subscribers.get((part.id, stream), ())
            ]
            for stream in streams_of(part.component)
        }
        return _TrialEmit(part, task, routers, self._tasks[part.id][task].emitted, self._deliver)

    def _deliver(self, bolt: str, task: int, record: Record, taken: Input) -> None:
        self._waiting[bolt][task].append((record, taken))


def _key(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values that may hold lists as what a state can be kept by."""
    return tuple(_key(each) if isinstance(each, list | tuple) else each for each in values)


class _TrialEmit:
    """Emits for a task in a trial."""

    def __init__(
        self,
        part: Part,
        task: int,
        routers: Mapping[str, Sequence[tuple[str, Input, Router]]],
        emitted: list[Record],
        deliver: Callable[[str, int, Record, Input], None],
    ) -> None:
        self._part = part
        self._task = task
        self._streams = streams_of(part.component)
        self._routers = routers
        self._emitted = emitted
        self._deliver = deliver

    def __call__(self, *values: Any, stream: str = DEFAULT) -> tuple[int, ...]:
        if self._stream(stream).direct:
            raise EmitError(
                f"{self._part.id}: the stream {stream!r} is direct; emit by `emit.direct(task, …)`"
            )
        return self._route(values, stream, None)

    def direct(self, task: int, *values: Any, stream: str = DEFAULT) -> tuple[int, ...]:
        if not self._stream(stream).direct:
            raise EmitError(f"{self._part.id}: the stream {stream!r} is not direct")
        if not isinstance(task, int):
            raise EmitError(f"{self._part.id}: a task is a number, not {task!r:.50}")
        return self._route(values, stream, task)

    def _stream(self, name: str) -> Stream:
        found = self._streams.get(name)
        if found is None:
            known = ", ".join(self._streams) or "none"
            raise EmitError(
                f"{self._part.id}: it declares no stream {name!r:.120}; it declares {known}"
            )
        return found

    def _route(self, values: tuple[Any, ...], name: str, direct: int | None) -> tuple[int, ...]:
        stream = self._stream(name)
        if len(values) != len(stream.fields):
            raise EmitError(
                f"{self._part.id}: {len(values)} values emitted on {name!r}, which has"
                f" {len(stream.fields)} fields: {', '.join(stream.fields)}"
            )
        record = Record(values, stream.fields, self._part.id, name, self._task)
        self._emitted.append(record)
        reached: list[int] = []
        for bolt, taken, router in self._routers[name]:
            assert direct is None or isinstance(taken.grouping, Direct)
            for task in router.targets(record, direct):
                self._deliver(bolt, task, record, taken)
                reached.append(task)
        return tuple(reached)
