"""To which tasks of a bolt a record goes; the same questions have the same answers. Pure.

A router belongs to one input of one bolt and to one task that emits into it. A record has a
*number* there: how many records the task has emitted into the stream before. Where a grouping goes
by turns, these are told from the number by arithmetic that Spark's SQL has too (`in_turn`), so a
plan can do without a router for most groupings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

from common.topology.components import EmitError, Record
from common.topology.declaration import Hash, Input
from common.topology.groupings import (
    ByFields,
    Chooser,
    Custom,
    Direct,
    Everyone,
    Global,
    LocalOrShuffle,
    PartialKey,
    Shuffle,
    Unordered,
)
from common.topology.hashing import HASHES, PAIRS, spark_hash
from common.topology.loads import ring_of

_NO_FIELDS: Final[Sequence[int]] = ()


def seed_of(topology: str, bolt: str, taken: Input) -> int:
    """Return the number that tells the turns of one input from those of another."""
    told = f"{topology}\0{taken.component}\0{taken.stream}\0{bolt}"
    return crc32(told.encode("utf-8", "surrogatepass"))


def in_turn(seed: int, emitter: int, number: int, tasks: int) -> int:
    """Return the task whose turn it is.

    Each cycle of `tasks` numbers has each task once. It begins anywhere, and goes up or down, as
    the hash of the cycle says.
    """
    cycle, place = divmod(number, tasks)
    drawn = spark_hash((seed, emitter, cycle))
    return (drawn + (place if drawn >= 0 else -place)) % tasks


def in_turns(seed: int, emitter: int, numbers: range, tasks: int) -> Iterator[int]:
    """Yield what `in_turn` returns for each of some numbers, cycle by cycle."""
    for cycle in range(numbers.start // tasks, -(-numbers.stop // tasks)):
        drawn = spark_hash((seed, emitter, cycle))
        way = 1 if drawn >= 0 else -1
        begin = cycle * tasks
        for number in range(max(begin, numbers.start), min(begin + tasks, numbers.stop)):
            yield (drawn + way * (number - begin)) % tasks


def any_task(seed: int, emitter: int, number: int, tasks: int) -> int:
    """Return a task that looks drawn."""
    return spark_hash((seed, emitter, number)) % tasks


def neighbour(emitter: int, emitters: int, tasks: int) -> int:
    """Return the task with the emitter's number, or the one that Spark's `coalesce` has it in."""
    return emitter * tasks // emitters


class Router:
    """Routes what one task emits into one input of a bolt."""

    def __init__(
        self,
        *,
        topology: str,
        bolt: str,
        taken: Input,
        fields: Sequence[str],
        tasks: int,
        emitter: int,
        emitters: int,
        hash: Hash = "spark",  # noqa: A002  # As a topology has it.
        weights: Sequence[int] = (),
    ) -> None:
        """`tasks` the bolt has, `emitters` the component that emits, of which this is one.

        `fields` are those of the stream. `weights`: of the tasks in a shuffle that is load-aware;
        none, or those of other tasks: all have the same.
        """
        self._ring = ring_of(tuple(weights)) if len(weights) == tasks else tuple(range(tasks))
        self._bolt = bolt
        self._grouping = taken.grouping
        self._seed = seed_of(topology, bolt, taken)
        self._tasks = tasks
        self._emitter = emitter
        self._emitters = emitters
        self._hash = HASHES[hash]
        self._pair = PAIRS[hash]
        self._had = [0] * tasks
        self._places = _NO_FIELDS
        if isinstance(taken.grouping, ByFields | PartialKey):
            self._places = [fields.index(each) for each in taken.grouping.fields]

    def targets(
        self, values: Sequence[Any], number: int, direct: int | None, record: Callable[[], Record]
    ) -> tuple[int, ...]:
        """Return the tasks that get the values of a record; `direct` is the one its emitter names.

        `record` makes the `Record` for a chooser. `EmitError` if that names a task that there is
        not.
        """
        match self._grouping:
            case Shuffle():
                return (self._in_ring(number),)
            case LocalOrShuffle() if self._tasks <= self._emitters:
                return (neighbour(self._emitter, self._emitters, self._tasks),)
            case LocalOrShuffle():
                return (self._in_ring(number),)
            case Unordered():
                return (any_task(self._seed, self._emitter, number, self._tasks),)
            case ByFields():
                return (self._hash([values[place] for place in self._places]) % self._tasks,)
            case PartialKey():
                return (self._less_used([values[place] for place in self._places]),)
            case Global():
                return (0,)
            case Everyone():
                return tuple(range(self._tasks))
            case Direct():
                # To a task that does not take the stream nothing is sent, as in Storm.
                return (direct,) if direct is not None and 0 <= direct < self._tasks else ()
            case Custom(chooser):
                return self._chosen(chooser.choose(record(), self._tasks), chooser)

    def shuffled(self, numbers: range) -> Iterator[int]:
        """Yield the task of each of some numbers, where the grouping is a shuffle."""
        turns = in_turns(self._seed, self._emitter, numbers, len(self._ring))
        return map(self._ring.__getitem__, turns)

    def _in_ring(self, number: int) -> int:
        return self._ring[in_turn(self._seed, self._emitter, number, len(self._ring))]

    def _less_used(self, key: list[object]) -> int:
        first, second = self._pair(key, self._tasks)
        chosen = second if self._had[second] < self._had[first] else first
        self._had[chosen] += 1
        return chosen

    def _chosen(self, answer: object, chooser: Chooser) -> tuple[int, ...]:
        tasks = tuple(answer) if isinstance(answer, Iterable) else None
        if tasks is None or any(task not in range(self._tasks) for task in tasks):
            raise EmitError(
                f"{type(chooser).__name__} has chosen {tasks or answer!r:.50} for {self._bolt!r},"
                f" whose tasks are 0 to {self._tasks - 1}"
            )
        return tasks
