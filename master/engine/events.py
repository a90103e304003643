"""Events of a run. Pure values, named in the past.

A report of an attempt names it by (task name, attempt number): a retry is another attempt with a
row of its own, so an old report can't be mistaken for a new one.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from common.model.failures import FailureReason
from common.model.values import value


@value
class RunOpened:
    """A master has loaded the run: it is new, or was taken over, or was dropped from memory."""


@value
class PauseRequested:
    """A pause is wanted; repeated until the run is pausing."""


@value
class StopRequested:
    """A stop is wanted, to be over by `deadline`; repeated until the run is stopping."""

    deadline: datetime


@value
class ProcessTimedOut:
    """The run has exceeded its time-out, and is to fail by `deadline`."""

    deadline: datetime


@value
class DeadlinePassed:
    """The deadline of a stop has passed."""


@value
class TaskSucceeded:
    """The worker reported that the attempt ended well; `var_pool` are its outputs, as JSON.

    `is_forced`: a person has declared it good while it waited.
    """

    name: str
    attempt: int
    at: datetime
    var_pool: str | None = None
    is_forced: bool = False


@value
class TaskFailed:
    """The worker reported that the attempt ended badly; `failure` is the reason, if known."""

    name: str
    attempt: int
    at: datetime
    failure: FailureReason | None = None


@value
class TaskKilled:
    """The attempt was withdrawn from the queue, or its worker killed it.

    `failure` is the reason, if it is known and the kill was not requested.
    """

    name: str
    attempt: int
    at: datetime
    failure: FailureReason | None = None


@value
class TaskPaused:
    """The attempt was withdrawn before it began, or its sub process has paused."""

    name: str
    attempt: int
    at: datetime


@value
class WorkerLost:
    """The worker that ran the attempt is gone; no report on it will come."""

    name: str
    attempt: int
    at: datetime


@value
class TimerFired:
    """The promised retry after this attempt is due."""

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
