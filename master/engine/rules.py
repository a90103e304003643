"""The rules: what an event means to a run in which it can happen. Pure.

Each function is a cell of the tables in `transitions`; it may rely on the state its cell names.
"""

from __future__ import annotations

from datetime import datetime

from common.model.decisions import Decision, FinishTask, RetryTask, StopProcess
from common.model.states import TaskState
from master.engine.events import (
    RunOpened,
    StopRequested,
    TaskFailed,
    TaskKilled,
    TaskSucceeded,
    TimerFired,
    WorkerLost,
)
from master.engine.run import ProcessRun


def open_run(run: ProcessRun, event: RunOpened, now: datetime) -> list[Decision]:
    """Nothing is decided by opening itself: `flow` finds what is ready, due or to be killed."""
    return []


def stop(run: ProcessRun, event: StopRequested, now: datetime) -> list[Decision]:
    """Show that the stop is under way; `flow` then kills what is live."""
    return [StopProcess()]


def succeed(run: ProcessRun, event: TaskSucceeded, now: datetime) -> list[Decision]:
    """Also when a kill was asked for: the work is done, whoever wanted it or not."""
    return [FinishTask(name=event.name, attempt=event.attempt, state=TaskState.SUCCESS)]


def fail(run: ProcessRun, event: TaskFailed, now: datetime) -> list[Decision]:
    """Promise a retry if one is left and none is in vain."""
    return _fail(run, event, TaskState.FAILURE)


def killed(run: ProcessRun, event: TaskKilled, now: datetime) -> list[Decision]:
    """A kill that nobody asked for is a failure, with its retries (traps T23, T23b)."""
    if run.tasks[event.name].kill_requested:
        return [FinishTask(name=event.name, attempt=event.attempt, state=TaskState.KILL)]
    return _fail(run, event, TaskState.KILL)


def lose(run: ProcessRun, event: WorkerLost, now: datetime) -> list[Decision]:
    """Submit it again at once, uncharged, unless the run is halting."""
    state = TaskState.NEED_FAULT_TOLERANCE
    if run.is_halting or run.tasks[event.name].kill_requested:
        return [FinishTask(name=event.name, attempt=event.attempt, state=state)]
    return [RetryTask(name=event.name, attempt=event.attempt, state=state, at=now)]


def wake(run: ProcessRun, event: TimerFired, now: datetime) -> list[Decision]:
    """Nothing is decided by the timer itself: `flow` submits what is due by `now`."""
    return []


def _fail(run: ProcessRun, event: TaskFailed | TaskKilled, state: TaskState) -> list[Decision]:
    task = run.tasks[event.name]
    if not run.is_halting and task.retry_times < task.node.max_retry_times:
        # Due when now ≥ end + interval, not a second later (trap T48).
        at = event.at + task.node.retry_interval
        return [RetryTask(name=event.name, attempt=event.attempt, state=state, at=at)]
    return [FinishTask(name=event.name, attempt=event.attempt, state=state)]
