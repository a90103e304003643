"""The rules: what an event means to a run in which it can happen. Pure.

Each function is a cell of the tables in `transitions`; it may rely on the state its cell names.
"""

from __future__ import annotations

from datetime import datetime

from common.model.decisions import (
    AbandonTask,
    Decision,
    FinishTask,
    PauseProcess,
    RetryTask,
    StopProcess,
)
from common.model.failures import UNEXPLAINED
from common.model.states import TaskState
from master.engine.events import (
    DeadlinePassed,
    PauseRequested,
    ProcessTimedOut,
    RunOpened,
    StopRequested,
    TaskFailed,
    TaskKilled,
    TaskPaused,
    TaskSucceeded,
    TimerFired,
    WorkerLost,
)
from master.engine.retries import retry_due
from master.engine.run import ProcessRun


def open_run(run: ProcessRun, event: RunOpened, now: datetime) -> list[Decision]:
    """Nothing is decided by opening itself: `flow` finds what is ready, due or to be killed."""
    return []


def pause(run: ProcessRun, event: PauseRequested, now: datetime) -> list[Decision]:
    """Show that the pause is under way; `flow` then withdraws what has not begun."""
    return [PauseProcess()]


def stop(run: ProcessRun, event: StopRequested, now: datetime) -> list[Decision]:
    """Show that the stop is under way; `flow` then kills what is live."""
    return [StopProcess(deadline=event.deadline)]


def break_off(run: ProcessRun, event: ProcessTimedOut, now: datetime) -> list[Decision]:
    """A stop that ends as FAILURE."""
    return [StopProcess(deadline=event.deadline, failing=True)]


def abandon(run: ProcessRun, event: DeadlinePassed, now: datetime) -> list[Decision]:
    """Wait no longer for those who should have ended what they run: a stop is a promise."""
    return [AbandonTask(name=name, attempt=run.tasks[name].attempt) for name in run.live]


def succeed(run: ProcessRun, event: TaskSucceeded, now: datetime) -> list[Decision]:
    """Also when a kill was asked for: the work is done, whoever wanted it or not."""
    return [
        FinishTask(
            name=event.name,
            attempt=event.attempt,
            state=TaskState.SUCCESS,
            var_pool=event.var_pool,
            at=event.at,
        )
    ]


def fail(run: ProcessRun, event: TaskFailed, now: datetime) -> list[Decision]:
    """Promise a retry if one is left, none is in vain, and its author wants it for this reason."""
    return _fail(run, event, TaskState.FAILURE)


def killed(run: ProcessRun, event: TaskKilled, now: datetime) -> list[Decision]:
    """A kill that nobody asked for is a failure, with its retries (traps T23, T23b)."""
    if run.tasks[event.name].kill_requested:
        return [FinishTask(name=event.name, attempt=event.attempt, state=TaskState.KILL)]
    return _fail(run, event, TaskState.KILL)


def paused(run: ProcessRun, event: TaskPaused, now: datetime) -> list[Decision]:
    """It has not failed; a recovery goes on with it."""
    return [FinishTask(name=event.name, attempt=event.attempt, state=TaskState.PAUSE)]


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
    policy = task.node.retry_policy
    if (
        not run.is_halting
        and task.retry_times < task.node.max_retry_times
        and policy.retries(event.failure or UNEXPLAINED[state])
    ):
        at = retry_due(
            task.node,
            ended=event.at,
            retries=task.retry_times,
            seed=f"{run.ownership.process_instance_id}/{event.name}/{event.attempt}",
        )
        return [
            RetryTask(
                name=event.name, attempt=event.attempt, state=state, at=at, failure=event.failure
            )
        ]
    return [FinishTask(name=event.name, attempt=event.attempt, state=state)]
