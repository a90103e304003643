"""The run: a process instance as one master holds it in memory.

Pure. `ProcessRun.apply` is the only thing that changes it, so the list of decisions that moves it
is the whole difference between two states of it. It keeps counts of what is missing, live and
promised, so that a step costs what the neighbours of one task cost, whatever the size of the DAG.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from heapq import heappop, heappush
from typing import assert_never

from common.dag import Dag
from common.errors import SchedulerError
from common.model.decisions import (
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.definitions import TaskNode
from common.model.instances import Ownership
from common.model.states import FailureStrategy, ProcessState, TaskState
from master.engine.events import Event

STORY_LENGTH = 200


class TaskPhase(Enum):
    """Where a task of a run stands; an attempt's own state is only a report away from it."""

    IDLE = "idle"
    LIVE = "live"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    PASSED = "passed"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def is_done(self) -> bool:
        """Whether what is downstream may start."""
        return self in (TaskPhase.SUCCEEDED, TaskPhase.PASSED)


class ImpossibleError(SchedulerError):
    """The run is in a state that no history leads to. Drop it from memory and tell its story."""


@dataclass(slots=True, kw_only=True)
class TaskRun:
    """One task of a run.

    `attempt` is 0 while there has been none; `missing` counts the upstream that is not done;
    `retry_counts` tells whether the promised attempt is a retry of the author's, or one that
    makes up for a lost worker and is not charged.
    """

    node: TaskNode
    missing: int
    phase: TaskPhase = TaskPhase.IDLE
    attempt: int = 0
    retry_times: int = 0
    retry_at: datetime | None = None
    retry_counts: bool = True
    kill_requested: bool = False


class ProcessRun:
    """A process instance with its tasks. Read its attributes; change it by `apply` alone.

    `ready` holds the names whose upstream is done and that wait for `flow` to submit them; `live`
    and `retries` hold names in the order in which they became so (dictionaries, since the order of
    a set is not the same in two processes).
    """

    def __init__(
        self,
        *,
        ownership: Ownership,
        dag: Dag,
        nodes: Mapping[str, TaskNode],
        state: ProcessState,
        failure_strategy: FailureStrategy,
        worker_group_id: int = -1,
    ) -> None:
        self.ownership = ownership
        self.dag = dag
        self.state = state
        self.failure_strategy = failure_strategy
        self.worker_group_id = worker_group_id
        self.tasks: dict[str, TaskRun] = {
            name: TaskRun(node=nodes[name], missing=len(dag.upstream[name])) for name in dag.names
        }
        self.ready: deque[str] = deque(dag.heads)
        self.live: dict[str, None] = {}
        self.retries: dict[str, datetime] = {}
        self.failed: dict[str, None] = {}
        self.unfinished = len(dag.names)
        self._due: list[tuple[datetime, str]] = []
        self._story: deque[Event | Decision] = deque(maxlen=STORY_LENGTH)

    @property
    def is_halting(self) -> bool:
        """Whether no further attempt may start: it is being stopped, or failed under END."""
        return self.state is ProcessState.READY_STOP or (
            bool(self.failed) and self.failure_strategy is FailureStrategy.END
        )

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state.is_terminal

    def next_retry(self) -> tuple[datetime, str] | None:
        """The promised retry that is due first; None if there is none."""
        while self._due:
            at, name = self._due[0]
            if self.retries.get(name) == at:
                return at, name
            heappop(self._due)  # Submitted or given up since.
        return None

    def promise(self, name: str, at: datetime) -> None:
        """Note when a retry is due; for `apply`, and for `load`, which repeats what it did."""
        self.retries[name] = at
        heappush(self._due, (at, name))

    def apply(self, decision: Decision) -> None:
        """Change the run as the decision says. Raises `ImpossibleError` if it can't be."""
        self.note(decision)
        match decision:
            case SubmitTask():
                self._submit(decision)
            case FinishTask():
                self._finish(decision)
            case RetryTask():
                task = self._current(decision, TaskPhase.LIVE)
                task.phase = TaskPhase.RETRYING
                task.retry_at = decision.at
                task.retry_counts = decision.state is not TaskState.NEED_FAULT_TOLERANCE
                del self.live[decision.name]
                self.promise(decision.name, decision.at)
            case GiveUpRetry():
                task = self._current(decision, TaskPhase.RETRYING)
                task.phase = TaskPhase.FAILED
                task.retry_at = None
                del self.retries[decision.name]
                self.failed[decision.name] = None
            case KillTask():
                self._current(decision, TaskPhase.LIVE).kill_requested = True
            case PassForbidden():
                task = self.tasks[decision.name]
                if task.phase is not TaskPhase.IDLE or task.missing or not task.node.forbidden:
                    raise self.impossible(f"{decision.name!r} can't be passed")
                self._done(decision.name, TaskPhase.PASSED)
            case StopProcess():
                if self.state is not ProcessState.RUNNING:
                    raise self.impossible("only a running process can be stopped")
                self.state = ProcessState.READY_STOP
            case FinishProcess():
                if self.live or self.retries or self.is_over:
                    raise self.impossible("a process with live tasks can't be finished")
                self.state = decision.state
            case _:
                assert_never(decision)

    def note(self, happened: Event | Decision) -> None:
        """Add a line to the story."""
        self._story.append(happened)

    def story(self) -> tuple[str, ...]:
        """The last events and decisions, oldest first, for a person who wonders how it came."""
        return tuple(map(_in_short, self._story))

    def impossible(self, what: str) -> ImpossibleError:
        """An error that says what can't be, of which run."""
        return ImpossibleError(
            f"process instance {self.ownership.process_instance_id}"
            f" (epoch {self.ownership.epoch}, {self.state.name}): {what}"
        )

    def check(self) -> None:
        """Raise `ImpossibleError` unless every invariant holds."""
        counts = dict.fromkeys(TaskPhase, 0)
        for name, task in self.tasks.items():
            counts[task.phase] += 1
            missing = sum(not self.tasks[other].phase.is_done for other in self.dag.upstream[name])
            self._hold(task.missing == missing, f"{name!r} miscounts its upstream")
            self._hold(
                missing == 0 or task.phase is TaskPhase.IDLE,
                f"{name!r} is {task.phase.value} though its upstream is not done",
            )
            self._hold(
                (task.attempt > 0) == (task.phase not in (TaskPhase.IDLE, TaskPhase.PASSED)),
                f"{name!r} is {task.phase.value} at attempt {task.attempt}",
            )
            self._hold(
                (task.phase is TaskPhase.LIVE) == (name in self.live), f"{name!r}: live or not?"
            )
            self._hold(
                (task.phase is TaskPhase.RETRYING) == (name in self.retries),
                f"{name!r}: retrying or not?",
            )
            self._hold(
                (task.phase is TaskPhase.FAILED) == (name in self.failed), f"{name!r}: failed?"
            )
            self._hold(
                task.phase is not TaskPhase.PASSED or task.node.forbidden,
                f"{name!r} was passed but is not forbidden",
            )
            self._hold(task.retry_times <= task.node.max_retry_times, f"{name!r} retried too often")
        done = counts[TaskPhase.SUCCEEDED] + counts[TaskPhase.PASSED]
        self._hold(self.unfinished == len(self.tasks) - done, "unfinished tasks are miscounted")
        if self.is_over:
            self._hold(not self.live and not self.retries, "it is over, yet tasks are live")
            self._hold(
                (self.state is ProcessState.SUCCESS) == (self.unfinished == 0),
                "its state does not agree with its tasks",
            )
        elif self.is_halting:
            self._hold(not self.retries, "it is halting, yet a retry is promised")
            self._hold(
                all(self.tasks[name].kill_requested for name in self.live),
                "it is halting, yet nobody asked to kill a live task",
            )

    def _hold(self, truth: bool, what: str) -> None:
        if not truth:
            raise self.impossible(what)

    def _submit(self, decision: SubmitTask) -> None:
        task = self.tasks[decision.name]
        if task.missing or decision.attempt != task.attempt + 1 or self.is_over:
            raise self.impossible(f"{decision.name!r} can't be submitted")
        if task.phase is TaskPhase.RETRYING:
            del self.retries[decision.name]
        elif task.phase is not TaskPhase.IDLE:
            raise self.impossible(f"{decision.name!r} is {task.phase.value}, not to be submitted")
        task.phase = TaskPhase.LIVE
        task.attempt = decision.attempt
        task.retry_times = decision.retry_times
        task.retry_at = None
        task.kill_requested = False
        self.live[decision.name] = None

    def _finish(self, decision: FinishTask) -> None:
        task = self._current(decision, TaskPhase.LIVE)
        del self.live[decision.name]
        phase = phase_of_finished(decision.state, kill_requested=task.kill_requested)
        if phase is TaskPhase.SUCCEEDED:
            self._done(decision.name, phase)
            return
        task.phase = phase
        if phase is TaskPhase.FAILED:
            self.failed[decision.name] = None

    def _done(self, name: str, phase: TaskPhase) -> None:
        self.tasks[name].phase = phase
        self.unfinished -= 1
        for below in self.dag.downstream[name]:
            task = self.tasks[below]
            task.missing -= 1
            if task.missing == 0:
                self.ready.append(below)

    def _current(
        self, decision: FinishTask | RetryTask | GiveUpRetry | KillTask, phase: TaskPhase
    ) -> TaskRun:
        task = self.tasks[decision.name]
        if task.phase is not phase or task.attempt != decision.attempt:
            raise self.impossible(f"{decision} meets {task.phase.value} at attempt {task.attempt}")
        return task


def phase_of_finished(state: TaskState, *, kill_requested: bool) -> TaskPhase:
    """What a settled attempt makes of its task, when no other attempt follows it.

    KILL without a request is a failure: a process that somebody else killed did not do its work
    (traps T23, T23b).
    """
    match state:
        case TaskState.SUCCESS:
            return TaskPhase.SUCCEEDED
        case TaskState.FAILURE:
            return TaskPhase.FAILED
        case TaskState.KILL | TaskState.NEED_FAULT_TOLERANCE | TaskState.PAUSE:
            return TaskPhase.KILLED if kill_requested else TaskPhase.FAILED
        case TaskState.SUBMITTED | TaskState.RUNNING:
            raise ImpossibleError(f"{state.name} is not the end of an attempt")
        case _:
            assert_never(state)


def _in_short(happened: Event | Decision) -> str:
    """A line of the story. A submission's script may be long, and may hold what is secret."""
    if isinstance(happened, SubmitTask):
        return f"SubmitTask(name={happened.name!r}, attempt={happened.attempt})"
    return str(happened)
