"""One task of a run: its phase, its attempts, and what it put out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import assert_never

from common.errors import SchedulerError
from common.model.definitions import TaskNode
from common.model.failures import FailureReason
from common.model.states import TaskState
from master.engine.variables import NOTHING, Variables


class TaskPhase(Enum):
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


class ImpossibleError(SchedulerError):
    """The run is in a state that no history leads to. Log its story and drop it from memory."""


@dataclass(slots=True, kw_only=True)
class TaskRun:
    """One task of a run.

    `attempt` is 0 while there has been none; `missing` counts the open edges from upstream and
    `taken` those that were taken; `retry_counts` is false if the promised attempt replaces one of
    a lost worker, which is not charged as a retry. `branch` is the choice of a branching task,
    `var_pool` the output of the attempt that ended at `ended_at`, and `variables` that together
    with all output of its upstream, once it is done. `memory_factor` is the latest attempt's; while
    another one is promised, `failure` is the reason why that one failed.
    """

    node: TaskNode
    missing: int
    taken: int = 0
    phase: TaskPhase = TaskPhase.IDLE
    attempt: int = 0
    retry_times: int = 0
    retry_at: datetime | None = None
    retry_counts: bool = True
    kill_requested: bool = False
    pause_requested: bool = False
    branch: tuple[str, ...] | None = None
    var_pool: str | None = None
    ended_at: datetime | None = None
    failure: FailureReason | None = None
    memory_factor: float = 1.0
    variables: Variables = field(default_factory=lambda: NOTHING)


def phase_of_finished(state: TaskState, *, kill_requested: bool) -> TaskPhase:
    """Return the phase of a task whose settled attempt is followed by no other.

    KILL without a request is a failure: a process killed from outside did not do its work (traps
    T23, T23b).
    """
    match state:
        case TaskState.SUCCESS | TaskState.FORCED_SUCCESS:
            return TaskPhase.SUCCEEDED
        case TaskState.FAILURE:
            return TaskPhase.FAILED
        case TaskState.KILL | TaskState.NEED_FAULT_TOLERANCE:
            return TaskPhase.KILLED if kill_requested else TaskPhase.FAILED
        case TaskState.PAUSE:
            return TaskPhase.PAUSED
        case (
            TaskState.SUBMITTED
            | TaskState.RUNNING
            | TaskState.WAITING_DEPEND
            | TaskState.DELAY_EXECUTION
        ):
            raise ImpossibleError(f"{state.name} is not the end of an attempt")
        case _:
            assert_never(state)
