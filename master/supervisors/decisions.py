"""Decisions of a supervisor, which its keeper carries out in one transaction, in their order.

Pure. Writes about tasks bear the owner's epoch, so those of a former owner change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from common.model.streams.partitions import Partition
from common.model.streams.spec import Offsets
from master.supervisors.view import Checkpoints, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The work of a task: it reads from the first checkpoint, and publishes by the others."""

    name: str
    group_id: int
    base_sequence: str
    starts: Offsets
    checkpoints: Checkpoints
    min_time: datetime | None
    max_time: datetime | None
    ends: Offsets | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(_Work):
    """Queue a task. Its availability group is `base_sequence`: replicas go to other workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStandby:
    """Queue a task without work. Its `base_sequence` is its availability group alone."""

    name: str
    group_id: int
    base_sequence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignTask(_Work):
    """Give a standby its work; it is a task as any other from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPause:
    """Ask tasks to stop reading, and to report the offsets at which they did."""

    tasks: tuple[str, ...]
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetEnds:
    """Tell paused tasks the end of a sequence; they read up to it, and then finish or go on."""

    tasks: tuple[str, ...]
    request: int
    sequence: int
    ends: Offsets
    finish: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTasks:
    """Let paused tasks read on."""

    tasks: tuple[str, ...]
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask:
    """Ask a task to end without publishing; it is killed if it does not."""

    task: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillTask:
    """Kill a task."""

    task: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStarts:
    """Store offsets of partitions that have none: what was asked of the stream is asked once.

    Otherwise a group that fails before its first publication would be followed by one that starts
    at a later "latest", and the records between would be lost.
    """

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOffsets:
    """Store offsets of the given partitions, whatever was stored; others stay."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOffsets:
    """Forget the stored offsets of the given partitions, or of all.

    `expected`: what is stored of them as far as is known. If that has changed meanwhile, nothing of
    the whole step is carried out, and the supervisor looks again.
    """

    partitions: tuple[Partition, ...] | None
    expected: Offsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTaskCount:
    """Insert a version of the specification with another number of task groups."""

    task_count: int


class EventKind(Enum):
    """The kinds of alerts."""

    WARNING = "WARNING"
    POSSIBLE_LOSS = "POSSIBLE_LOSS"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent:
    """Tell people."""

    kind: EventKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """Give notice of a run at this time, or at once if it is past."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSupervisor:
    """Stop supervising. Tasks that publish go on; `is_complete` if a bounded range is published."""

    is_complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Replace the memory; the last decision of every notice that changed it."""

    memory: Memory


Decision: TypeAlias = (
    StartTask
    | StartStandby
    | AssignTask
    | AskPause
    | SetEnds
    | ResumeTasks
    | StopTask
    | KillTask
    | RecordStarts
    | SetOffsets
    | RemoveOffsets
    | SaveTaskCount
    | RecordEvent
    | ScheduleRun
    | EndSupervisor
    | Remember
)
