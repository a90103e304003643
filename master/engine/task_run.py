"""One task of a run: its phase, its edges, its attempts, and what it put out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final, assert_never

from common.errors import SchedulerError
from common.model.definitions import TaskNode
from common.model.failures import FailureReason
from common.model.states import TaskState
from master.engine.variables import NOTHING, Variables


class TaskPhase(StrEnum):
    """The phase of a task in a run; the state of its attempt is only a report on it."""

    IDLE = "idle"
    LIVE = "live"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    BRANCHED = "branched"
    PASSED = "passed"
    SKIPPED = "skipped"
    TOLERATED = "tolerated"
    FAILED = "failed"
    KILLED = "killed"
    PAUSED = "paused"

    @property
    def is_done(self) -> bool:
        """True if the process may succeed without anything more from this task."""
        return self in _DONE


_DONE = (
    TaskPhase.SUCCEEDED,
    TaskPhase.BRANCHED,
    TaskPhase.PASSED,
    TaskPhase.SKIPPED,
    TaskPhase.TOLERATED,
)
DERIVED_PHASES = (TaskPhase.IDLE, TaskPhase.PASSED, TaskPhase.SKIPPED)
"""The phases of a task without a valid attempt: they follow from its upstream alone."""


class Edge(Enum):
    """The state of an edge from upstream: open until the upper task is settled."""

    OPEN = "open"
    TAKEN = "taken"
    LEFT = "left"
    """Not taken: a branch leads elsewhere, or the upper task was skipped."""
    REFUSED = "refused"
    """Not taken, and the lower task is skipped even if another edge is taken."""
    BLOCKED = "blocked"
    """The upper task failed, which only CONDITIONS evaluate: the lower task never starts."""


_TAKEN: Final = Edge.TAKEN
"""Looked up once: a class looks a member up anew each time that it is asked for one."""


class ImpossibleError(SchedulerError):
    """The run is in a state that no history leads to. Log its story and drop it from memory."""


@dataclass(slots=True, kw_only=True)
class TaskRun:
    """One task of a run.

    `attempt` is 0 while there has been none; `missing` counts the open edges from upstream, `taken`
    and the three after it the others; `choosers` are the branching tasks whose choices left out a
    task that was skipped; `retry_counts` is false if the promised attempt replaces one of
    a lost worker, which is not charged as a retry. `branch` is the choice of a branching task,
    `var_pool` the output of the attempt that ended at `ended_at`, and `variables` that together
    with all output of its upstream, once it is done. `memory_factor` is the latest attempt's; while
    another one is promised, `failure` is the reason why that one failed.
    """

    node: TaskNode
    missing: int
    taken: int = 0
    left: int = 0
    refused: int = 0
    blocked: int = 0
    phase: TaskPhase = TaskPhase.IDLE
    attempt: int = 0
    retry_times: int = 0
    retry_at: datetime | None = None
    retry_counts: bool = True
    kill_requested: bool = False
    pause_requested: bool = False
    branch: tuple[str, ...] | None = None
    choosers: tuple[str, ...] = ()
    var_pool: str | None = None
    ended_at: datetime | None = None
    failure: FailureReason | None = None
    memory_factor: float = 1.0
    variables: Variables = field(default_factory=lambda: NOTHING)

    @property
    def is_free(self) -> bool:
        """True if no edge holds the task up: it may start, be passed over, or be skipped."""
        return not self.missing and (not self.blocked or self.refused > 0)

    @property
    def is_left_out(self) -> bool:
        """True if the task, which is free, is to be skipped."""
        return self.refused > 0 or (self.left > 0 and not self.taken and not self.blocked)

    def count(self, edges: Sequence[Edge], *, outside: int = 0) -> None:
        """Count the edges anew; those from `outside` the scope are taken."""
        self.missing = edges.count(Edge.OPEN)
        self.taken = edges.count(Edge.TAKEN) + outside
        self.left = edges.count(Edge.LEFT)
        self.refused = edges.count(Edge.REFUSED)
        self.blocked = edges.count(Edge.BLOCKED)

    def settle(self, edge: Edge) -> None:
        """Count an edge that was open as what it is now."""
        self.missing -= 1
        if edge is _TAKEN:
            self.taken += 1
            return
        match edge:
            case Edge.LEFT:
                self.left += 1
            case Edge.REFUSED:
                self.refused += 1
            case Edge.BLOCKED:
                self.blocked += 1
            case Edge.OPEN:
                raise ImpossibleError("an open edge is not settled")
            case _:
                assert_never(edge)


_PHASES_UNASKED: Mapping[TaskState, TaskPhase] = {
    TaskState.SUCCESS: TaskPhase.SUCCEEDED,
    TaskState.FORCED_SUCCESS: TaskPhase.SUCCEEDED,
    TaskState.FAILURE: TaskPhase.FAILED,
    TaskState.KILL: TaskPhase.FAILED,
    TaskState.NEED_FAULT_TOLERANCE: TaskPhase.FAILED,
    TaskState.PAUSE: TaskPhase.PAUSED,
}
_PHASES_OF_KILLED = {
    **_PHASES_UNASKED,
    TaskState.KILL: TaskPhase.KILLED,
    TaskState.NEED_FAULT_TOLERANCE: TaskPhase.KILLED,
}


def phase_of_finished(state: TaskState, *, kill_requested: bool) -> TaskPhase:
    """Return the phase of a task whose settled attempt is followed by no other.

    KILL without a request is a failure: a process killed from outside did not do its work (traps
    T23, T23b).
    """
    phase = (_PHASES_OF_KILLED if kill_requested else _PHASES_UNASKED).get(state)
    if phase is None:
        raise ImpossibleError(f"{state.name} is not the end of an attempt")
    return phase
