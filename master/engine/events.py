"""Events: what has happened to a run. Pure values, named in the past.

A report of an attempt names it by (task name, attempt number): a retry is another attempt with a
row of its own, so an old report can't be mistaken for a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOpened:
    """A master has loaded the run: it is new, or was taken over, or was dropped from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """Somebody wants the run stopped; said again until the run is READY_STOP or over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSucceeded:
    """The worker reported that the attempt ended well."""

    name: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """The worker reported that the attempt ended badly."""

    name: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKilled:
    """The attempt was withdrawn from the queue, or its worker killed it."""

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


TaskEvent: TypeAlias = TaskSucceeded | TaskFailed | TaskKilled | WorkerLost | TimerFired
Event: TypeAlias = RunOpened | StopRequested | TaskEvent

PROCESS_EVENTS: tuple[type[RunOpened | StopRequested], ...] = (RunOpened, StopRequested)
TASK_EVENTS: tuple[type[TaskEvent], ...] = (
    TaskSucceeded,
    TaskFailed,
    TaskKilled,
    WorkerLost,
    TimerFired,
)
