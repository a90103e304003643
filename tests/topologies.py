"""Small topologies and components for tests of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from common.topology.components import (
    Batch,
    Bolt,
    Emit,
    Outputs,
    Record,
    Sink,
    Spout,
    StatefulBolt,
    Stream,
)
from common.topology.declaration import TopologyBuilder


class Lines(Spout):
    outputs = ("line",)


class Numbers(Spout):
    outputs = ("line long",)


class Split(Bolt):
    outputs: ClassVar[Outputs] = {"default": ("word",), "errors": ("line", "why")}

    def process(self, record: Record, emit: Emit) -> None:
        words = record["line"].split()
        if not words:
            emit(record["line"], "empty", stream="errors")
        for word in words:
            emit(word)


class Count(StatefulBolt):
    outputs = ("word", "count long")

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.step = 1

    def initial(self) -> int:
        return self.first

    def process(self, record: Record, state: int, emit: Emit) -> int:
        state += self.step
        emit(record["word"], state)
        return state


class Forward(Bolt):
    """Emits what it gets, whatever it is, on a stream of one field."""

    outputs = ("value object",)

    def process(self, record: Record, emit: Emit) -> None:
        emit(record.values[0])


class Switch(Bolt):
    """Sends each number to the task of that number."""

    outputs: ClassVar[Outputs] = {"out": Stream(("number long",), direct=True)}

    def process(self, record: Record, emit: Emit) -> None:
        emit.direct(record.values[0], record.values[0], stream="out")


class Kept(Sink):
    """Keeps what it is given, in this process."""

    written: ClassVar[list[tuple[Batch, tuple[Any, ...]]]] = []

    def write(self, records: Sequence[Record], batch: Batch) -> None:
        self.written.extend((batch, record.values) for record in records)


class ByLength:
    """Chooses the task by the length of a word; nobody gets an empty one."""

    def choose(self, record: Record, tasks: int) -> tuple[int, ...]:
        length = len(record.values[0])
        return (length % tasks,) if length else ()


class Dictionary:
    """An object that other objects refer to, as in `components` of a Flux file."""

    def __init__(self, *words: str) -> None:
        self.words = list(words)
        self.of: object = None

    def add(self, *words: object) -> None:
        self.words += [str(each) for each in words]


class Known(Forward):
    """A bolt that receives objects of a file in each way that Flux supports."""

    def __init__(self, dictionary: object = None, others: object = None) -> None:
        self.dictionary = dictionary
        self.others = others
        self.limit: object = None
        self.called: list[object] = []

    def call(self, *values: object) -> None:
        self.called += values


def leave() -> None:
    """End the program, as a component's module may that is not meant to be imported."""
    raise SystemExit(3)


def words(*, tasks: int = 4) -> TopologyBuilder:
    """Lines are split into words, which are counted."""
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines(), tasks=2)
    builder.set_bolt("split", Split(), 2, tasks=3).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), tasks=tasks).fields_grouping("split", "word")
    return builder
