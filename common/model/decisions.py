"""Decisions: what the engine wants done for a run, in the imperative.

Pure. The engine makes them and applies them to the run in memory; the store writes the same list
in one fenced transaction. They stand here and not in the engine because both sides speak them and
the store may not import the master. An attempt is named by (task name, attempt number): the engine
draws no ids, so a decision means the same before and after its row exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from common.model.states import Priority, ProcessState, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitTask:
    """Write the row of a new attempt and offer it to the workers; supersedes the one before."""

    name: str
    attempt: int
    retry_times: int
    task_type: str
    task_json: str
    priority: Priority
    worker_group_id: int
    max_retry_times: int
    retry_interval: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishTask:
    """Take an attempt's end into account: the run has drawn its conclusions from `state`."""

    name: str
    attempt: int
    state: TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTask:
    """Take a failed attempt into account and promise another one, due at `at`."""

    name: str
    attempt: int
    state: TaskState
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpRetry:
    """Take back a promised retry: the run is being stopped or has failed for good."""

    name: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KillTask:
    """Withdraw an attempt that no worker has claimed, or ask its worker to kill it."""

    name: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassForbidden:
    """Treat a node that its author switched off as done. Nothing is stored: loading derives it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopProcess:
    """Make the stop that was wanted visible: READY_STOP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishProcess:
    """End the run. `reason` tells a person why it did not succeed."""

    state: ProcessState
    reason: str | None = None


Decision: TypeAlias = (
    SubmitTask
    | FinishTask
    | RetryTask
    | GiveUpRetry
    | KillTask
    | PassForbidden
    | StopProcess
    | FinishProcess
)
