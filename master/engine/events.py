"""Events: what has happened to a run. Pure values, named in the past.

A report of an attempt names it by (task name, attempt number): a retry is another attempt with a
row of its own, so an old report can't be mistaken for a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from common.model.failures import FailureReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOpened:
    """A master has loaded the run: it is new, or was taken over, or was dropped from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """Somebody wants the run paused; said again until the run shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """Somebody wants the run stopped by `deadline`; said again until the run shows it."""

    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTimedOut:
    """The run has taken longer than its author allows, and is to have failed by `deadline`."""

    deadline: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    """The time by which the run was to have stopped is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSucceeded:
    """The worker reported that the attempt ended well; `var_pool` is what it put out, as JSON."""

    name: str
    attempt: int
    at: datetime
    var_pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """The worker reported that the attempt ended badly; `failure` is why, if that is known."""

    name: str
    attempt: int
    at: datetime
    failure: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKilled:
    """The attempt was withdrawn from the queue, or its worker killed it.

    `failure` is why, if that is known and nobody asked for it.
    """

    name: str
    attempt: int
    at: datetime
    failure: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPaused:
    """The attempt was withdrawn before it began, or its sub process has paused."""

    name: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """The worker that ran the attempt is gone; nobody will report on it any more."""

    name: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The retry that was promised after this attempt is due."""

    name: str
    attempt: int


ProcessEvent: TypeAlias = (
    RunOpened | PauseRequested | StopRequested | ProcessTimedOut | DeadlinePassed
)
TaskEvent: TypeAlias = (
    TaskSucceeded | TaskFailed | TaskKilled | TaskPaused | WorkerLost | TimerFired
)
Event: TypeAlias = ProcessEvent | TaskEvent

PROCESS_EVENTS: tuple[type[ProcessEvent], ...] = (
    RunOpened,
    PauseRequested,
    StopRequested,
    ProcessTimedOut,
    DeadlinePassed,
)
TASK_EVENTS: tuple[type[TaskEvent], ...] = (
    TaskSucceeded,
    TaskFailed,
    TaskKilled,
    TaskPaused,
    WorkerLost,
    TimerFired,
)
