"""The groupings: how the records of a stream are spread over the tasks of a bolt. Pure.

The names and meanings are Storm's (`docs/topologies.md` has the table).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from common.topology.components import Record


class Chooser(Protocol):
    """A grouping of an author's own, as Storm's `CustomStreamGrouping`."""

    def choose(self, record: Record, tasks: int) -> Iterable[int]:
        """Return the numbers, below `tasks`, of those that get the record: none, one or several."""
        ...


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Each task in turn: of n records that one task emits in a row, each of n tasks gets one."""


@dataclass(frozen=True, slots=True)
class LocalOrShuffle:
    """The task with the emitter's number, or one nearby; as `Shuffle` if there are more tasks."""


@dataclass(frozen=True, slots=True)
class Unordered:
    """Any task: Storm's `none`."""


@dataclass(frozen=True, slots=True)
class ByFields:
    """The same values of these fields: the same task."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartialKey:
    """The less used of the two tasks that the values of these fields select."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Global:
    """The task with the lowest number."""


@dataclass(frozen=True, slots=True)
class Everyone:
    """Every task."""


@dataclass(frozen=True, slots=True)
class Direct:
    """The task that the emitter names."""


@dataclass(frozen=True, slots=True)
class Custom:
    """The tasks that an object of the author's chooses."""

    chooser: Chooser


Grouping: TypeAlias = (
    Shuffle
    | LocalOrShuffle
    | Unordered
    | ByFields
    | PartialKey
    | Global
    | Everyone
    | Direct
    | Custom
)
