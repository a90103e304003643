"""The values that a supervisor decides by: the view of the world, and its memory.

Pure. The memory is a cache: a new owner begins with an empty one and finds out the rest from the
tasks and from `stored`, the offsets that were published, which alone are the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from common.model.streams.partitions import Partition
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import TaskStatus
from master.supervisors.health import Health

Checkpoints: TypeAlias = Mapping[int, Offsets]
"""The starts of a task's sequences by their number; a sequence ends where the next one starts."""


class TaskEnd(Enum):
    """The end of a task; a kill counts as a failure."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTask:
    """One task, as its row has it: its work, the orders to it, and its reports."""

    name: str
    base_sequence: str
    starts: Offsets
    checkpoints: Checkpoints
    """Those that it was given, until it reports its own."""
    standby_of: int | None = None
    """The group whose next tasks it may be one of, as long as it has no work."""
    min_time: datetime | None = None
    max_time: datetime | None = None
    # Orders.
    request: int = 0
    paused: bool = False
    ends: Offsets | None = None
    finishing: bool = False
    """True once a hand-over has told it its end; a bounded task knows its ends from the start."""
    ending_since: datetime | None = None
    """The time since which it has been told to stop or killed."""
    killed: bool = False
    # Reports.
    assigned: bool = False
    assigned_at: datetime | None = None
    status: TaskStatus = TaskStatus.NOT_STARTED
    request_seen: int = 0
    offsets: Offsets = field(default_factory=dict)
    started: datetime | None = None
    """The begin of its reading, as it says."""
    end: TaskEnd | None = None

    @property
    def publishes(self) -> bool:
        return self.status is TaskStatus.PUBLISHING or self.finishing


class Question(Enum):
    """The stage of a conversation: all are to pause, to take note of their ends, or to resume."""

    PAUSE = "PAUSE"
    ENDS = "ENDS"
    RESUME = "RESUME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A request that not all tasks of a group have answered yet; `finish` makes it a hand-over."""

    question: Question
    request: int
    since: datetime
    finish: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGroup:
    """Tasks that do the same work. `starts` never change, so that a replacement does it too."""

    group_id: int
    work: str
    starts: Offsets
    base_sequence: str
    min_time: datetime | None = None
    max_time: datetime | None = None
    tasks: tuple[str, ...] = ()
    checkpoints: Checkpoints
    conversation: Conversation | None = None
    requests: int = 0
    """The number of the last request; each has the next."""
    ends: Offsets | None = None
    completion_at: datetime | None = None
    """The time by which it must have published; nothing while it reads."""
    prepared_at: datetime | None = None
    """The time at which standbys were started for its successor; that is done once."""

    @property
    def agrees(self) -> bool:
        """Return True while its tasks agree on offsets; other conversations have to wait."""
        return self.conversation is not None and self.conversation.question is not Question.RESUME

    @property
    def newest_checkpoint(self) -> tuple[int, Offsets]:
        number = max(self.checkpoints)
        return number, self.checkpoints[number]

    def overlaps(self, other: TaskGroup) -> bool:
        """Return True if both have a partition in common."""
        return any(partition in other.starts for partition in self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSnapshot:
    """The first and the next offset of each partition.

    `troubles`: existing topics of a pattern whose query failed, with the reason.
    """

    earliest: Offsets
    latest: Offsets
    troubles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFailure:
    """The stream could not be asked."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """A new number of task groups, taken on once all groups have been handed over."""

    task_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All that a supervisor remembers from one notice to the next."""

    partitions: tuple[Partition, ...] = ()
    later: frozenset[Partition] = frozenset()
    """Partitions that were found after the first discovery; they are read from the earliest."""
    offsets: Mapping[Partition, int | None] = field(default_factory=dict)
    """The start of the next group; None means to ask the store, then the stream."""
    reading: Mapping[int, TaskGroup] = field(default_factory=dict)
    publishing: tuple[TaskGroup, ...] = ()
    """Oldest first. The partitions of a group and of its predecessor need not be the same."""
    has_discovered: bool = False
    early_stop_at: datetime | None = None
    requested: frozenset[int] = frozenset()
    """Groups that somebody wants handed over."""
    stopping_since: datetime | None = None
    rescaling: Rescaling | None = None
    last_scaled_at: datetime | None = None
    last_run_at: datetime | None = None
    last_latest: Offsets = field(default_factory=dict)
    quiet_since: datetime | None = None
    """The time of the last run that found records; nothing before the first run."""
    tasks_started: int = 0
    health: Health = field(default_factory=Health)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorView:
    """One supervisor and its surroundings at one moment.

    `work` is `common.model.streams.sequences.work_of` the specification; `tasks` are all that have
    not ended, and those that have ended while a group has them.
    """

    spec: SupervisorSpec
    work: str
    epoch: int
    memory: Memory
    stream: StreamSnapshot | StreamFailure
    stored: Offsets
    tasks: Mapping[str, StreamTask]
