"""To which tasks of a bolt a record goes; the same questions have the same answers. Pure.

A router belongs to one input of one bolt and to one task that emits into it, and counts what it has
routed; where a grouping goes by turns, these begin anew with a router.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from common.topology.components import EmitError, Record
from common.topology.declaration import Hash, Input
from common.topology.groupings import (
    ByFields,
    Custom,
    Direct,
    Everyone,
    Global,
    LocalOrShuffle,
    PartialKey,
    Shuffle,
    Unordered,
)
from common.topology.hashing import HASHES


class Router:
    """Routes what one task emits into one input of a bolt."""

    def __init__(
        self,
        *,
        topology: str,
        bolt: str,
        taken: Input,
        tasks: int,
        emitter: int,
        emitters: int,
        hash: Hash = "spark",  # noqa: A002  # As a topology has it.
    ) -> None:
        """`tasks` the bolt has, `emitters` the component that emits, of which this is one."""
        self._name = f"{topology}\0{taken.component}\0{taken.stream}\0{bolt}\0{emitter}"
        self._bolt = bolt
        self._grouping = taken.grouping
        self._tasks = tasks
        self._emitter = emitter
        self._emitters = emitters
        self._hash = HASHES[hash]
        self._number = 0
        self._had = [0] * tasks
        self._order: tuple[int, ...] = ()

    def targets(self, record: Record, direct: int | None = None) -> tuple[int, ...]:
        """Return the tasks that get a record; `direct` is the one that its emitter names.

        `EmitError` if an author's grouping names a task that there is not.
        """
        number, self._number = self._number, self._number + 1
        match self._grouping:
            case Shuffle():
                return (self._in_turn(number),)
            case LocalOrShuffle() if self._tasks <= self._emitters:
                # As Spark's `coalesce` puts neighbours together.
                return (self._emitter * self._tasks // self._emitters,)
            case LocalOrShuffle():
                return (self._in_turn(number),)
            case Unordered():
                return (self._drawn("any", number) % self._tasks,)
            case ByFields(fields):
                return (self._hash([record[field] for field in fields]) % self._tasks,)
            case PartialKey(fields):
                return (self._less_used([record[field] for field in fields]),)
            case Global():
                return (0,)
            case Everyone():
                return tuple(range(self._tasks))
            case Direct():
                # To a task that does not take the stream nothing is sent, as in Storm.
                return (direct,) if direct is not None and 0 <= direct < self._tasks else ()
            case Custom(chooser):
                return self._chosen(chooser.choose(record, self._tasks), chooser)

    def _in_turn(self, number: int) -> int:
        block, place = divmod(number, self._tasks)
        if place == 0 or not self._order:
            self._order = tuple(
                sorted(range(self._tasks), key=lambda task: self._drawn(f"turn {block}", task))
            )
        return self._order[place]

    def _less_used(self, key: list[object]) -> int:
        hashed = self._hash(key)
        first, second = hashed % self._tasks, self._hash([hashed, "second"]) % self._tasks
        chosen = second if self._had[second] < self._had[first] else first
        self._had[chosen] += 1
        return chosen

    def _chosen(self, answer: object, chooser: object) -> tuple[int, ...]:
        tasks = tuple(answer) if isinstance(answer, Iterable) else None
        if tasks is None or any(task not in range(self._tasks) for task in tasks):
            raise EmitError(
                f"{type(chooser).__name__} has chosen {tasks or answer!r:.50} for {self._bolt!r},"
                f" whose tasks are 0 to {self._tasks - 1}"
            )
        return tasks

    def _drawn(self, what: str, number: int) -> int:
        """Return a number that looks drawn, and is the same whenever it is asked for."""
        told = f"{self._name}\0{what}\0{number}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(told, digest_size=8).digest(), "big")
