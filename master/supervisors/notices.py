"""Notices to a supervisor, and their queue.

Pure. Run notices come from timers and from any change of a task; the others from people, from
tasks, and from the auto-scaler. A notice that equals one that waits says nothing new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from common.model.streams.spec import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Compare the actual state with the wanted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Forget stored offsets: of all partitions, or of those that `offsets` names.

    A reset of another stream than the supervisor's is a mistake and changes nothing, and so is one
    of a partition whose stored offset is not the one in `seen` any more, if that has one.
    """

    offsets: Offsets | None = None
    seen: Offsets = field(default_factory=dict)
    stream: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsets:
    """Store these offsets, and read on from them."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A task wants to publish what it has; `previous` is the start of its present sequence."""

    group_id: int
    base_sequence: str
    previous: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Hand these groups over now."""

    group_ids: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GracefulShutdown:
    """Let all groups publish, then end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """End at once and leave all tasks alone: another master goes on with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Have this number of task groups."""

    task_count: int


Notice: TypeAlias = (
    Run | Reset | ResetOffsets | Checkpoint | HandOver | GracefulShutdown | Shutdown | Scale
)


class NoticeQueue:
    """Notices in the order in which they came; one that equals a waiting one is dropped."""

    def __init__(self) -> None:
        self._waiting: list[Notice] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, notice: Notice) -> bool:
        """Add a notice; False if an equal one waits."""
        if notice in self._waiting:
            return False
        self._waiting.append(notice)
        return True

    def take(self) -> Notice | None:
        """Remove the oldest notice and return it."""
        return self._waiting.pop(0) if self._waiting else None
