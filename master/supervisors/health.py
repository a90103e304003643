"""States and health of a supervisor.

Pure. A supervisor is unhealthy after so many failed runs in a row, or so many failed tasks; it is
healthy again after as many successes of the kind that failed. `Health` is a value: each method
returns the next one. The states of the first run give way to RUNNING for good once one succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """A supervisor's detailed state, as its status shows it."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    IDLE = "IDLE"
    SUSPENDED = "SUSPENDED"
    STOPPING = "STOPPING"
    UNHEALTHY_SUPERVISOR = "UNHEALTHY_SUPERVISOR"
    UNHEALTHY_TASKS = "UNHEALTHY_TASKS"
    CONNECTING_TO_STREAM = "CONNECTING_TO_STREAM"
    DISCOVERING_INITIAL_TASKS = "DISCOVERING_INITIAL_TASKS"
    CREATING_TASKS = "CREATING_TASKS"
    UNABLE_TO_CONNECT_TO_STREAM = "UNABLE_TO_CONNECT_TO_STREAM"
    LOST_CONTACT_WITH_STREAM = "LOST_CONTACT_WITH_STREAM"

    @property
    def basic(self) -> State:
        """The state without its detail: that of Druid's `state` beside `detailedState`."""
        if self in _OF_FIRST_RUN:
            return State.RUNNING
        if self in _OF_STREAM:
            return State.UNHEALTHY_SUPERVISOR
        return self

    @property
    def is_healthy(self) -> bool:
        return self.basic not in {State.UNHEALTHY_SUPERVISOR, State.UNHEALTHY_TASKS}


_OF_FIRST_RUN: Final = frozenset(
    {State.CONNECTING_TO_STREAM, State.DISCOVERING_INITIAL_TASKS, State.CREATING_TASKS}
)
_OF_STREAM: Final = frozenset({State.UNABLE_TO_CONNECT_TO_STREAM, State.LOST_CONTACT_WITH_STREAM})
_STEADY: Final = frozenset({State.RUNNING, State.SUSPENDED, State.IDLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Numbers of failures, or of successes, in a row that change the health."""

    unhealthiness: int = 3
    healthiness: int = 3
    task_unhealthiness: int = 3
    task_healthiness: int = 3

    @property
    def events(self) -> int:
        """The number of errors that are kept."""
        return max(
            self.unhealthiness, self.healthiness, self.task_unhealthiness, self.task_healthiness
        )


_DEFAULT: Final = Thresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEvent:
    """An error of a run, for people."""

    at: datetime
    text: str
    of_stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state, with the counts that decide about the next."""

    state: State = State.PENDING
    thresholds: Thresholds = _DEFAULT
    has_succeeded: bool = False
    failed_runs: int = 0
    good_runs: int = 0
    failed_tasks: int = 0
    good_tasks: int = 0
    runs_are_bad: bool = False
    tasks_are_bad: bool = False
    errors: tuple[ErrorEvent, ...] = ()

    def with_error(self, error: ErrorEvent) -> Health:
        """Keep an error, and forget the oldest beyond the limit."""
        return replace(self, errors=(*self.errors, error)[-self.thresholds.events :])

    def after_task(self, *, good: bool) -> Health:
        """Count the end of a task."""
        if good:
            return replace(self, good_tasks=self.good_tasks + 1, failed_tasks=0)
        return replace(self, failed_tasks=self.failed_tasks + 1, good_tasks=0)

    def after_run(self, *, good: bool, suspended: bool) -> Health:
        """Count a run, and go to the state that follows."""
        if good:
            counted = replace(self, good_runs=self.good_runs + 1, failed_runs=0, has_succeeded=True)
        else:
            counted = replace(self, failed_runs=self.failed_runs + 1, good_runs=0)
        if counted.state is State.IDLE and not suspended:
            return counted.towards(State.IDLE)
        return counted.towards(State.SUSPENDED if suspended else State.RUNNING)

    def towards(self, state: State) -> Health:
        """Go to a state, unless the counts say another or the rules refuse it."""
        if self.state is State.STOPPING or state is State.STOPPING:
            return replace(self, state=State.STOPPING)
        limits = self.thresholds
        if self.failed_runs >= limits.unhealthiness:
            return replace(self, state=self._bad_state(), runs_are_bad=True)
        if self.failed_tasks >= limits.task_unhealthiness:
            state = self.state if self._runs_stay_bad() else State.UNHEALTHY_TASKS
            return replace(self, state=state, tasks_are_bad=True)
        tasks_stay_bad = self.tasks_are_bad and self.good_tasks < limits.task_healthiness
        if self._runs_stay_bad() or tasks_stay_bad:
            return self
        if state in _STEADY and not self.has_succeeded:
            return self
        if state in _OF_FIRST_RUN and self.has_succeeded:
            return self
        return replace(self, state=state, runs_are_bad=False, tasks_are_bad=False)

    def _runs_stay_bad(self) -> bool:
        return self.runs_are_bad and self.good_runs < self.thresholds.healthiness

    def _bad_state(self) -> State:
        if not (self.errors and self.errors[-1].of_stream):
            return State.UNHEALTHY_SUPERVISOR
        if self.has_succeeded:
            return State.LOST_CONTACT_WITH_STREAM
        return State.UNABLE_TO_CONNECT_TO_STREAM
