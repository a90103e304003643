"""The rules: the decision for each event in each state where it can happen. Pure.

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
from common.model.streams.bounded import is_supervised
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

_SUCCESS = TaskState.SUCCESS
_DEPENDENT = "DEPENDENT"


def open_run(run: ProcessRun, event: RunOpened, now: datetime) -> list[Decision]:
    """Decide nothing: `flow` finds what is ready, due or to be killed."""
    return []


def pause(run: ProcessRun, event: PauseRequested, now: datetime) -> list[Decision]:
    """Enter READY_PAUSE; `flow` then withdraws what has not begun."""
    return [PauseProcess()]


def stop(run: ProcessRun, event: StopRequested, now: datetime) -> list[Decision]:
    """Enter READY_STOP; `flow` then kills what is live."""
    return [StopProcess(deadline=event.deadline)]


def break_off(run: ProcessRun, event: ProcessTimedOut, now: datetime) -> list[Decision]:
    """Begin a stop that ends as FAILURE."""
    return [StopProcess(deadline=event.deadline, failing=True)]


def abandon(run: ProcessRun, event: DeadlinePassed, now: datetime) -> list[Decision]:
    """Give up every live attempt: a stop ends by its deadline, whatever workers do."""
    return [AbandonTask(name=name, attempt=run.tasks[name].attempt) for name in run.live]


def succeed(run: ProcessRun, event: TaskSucceeded, now: datetime) -> list[Decision]:
    """Finish the attempt as SUCCESS, even if a kill was requested: the work is done.

    A live attempt can be declared good if no process belongs to it: that of a DEPENDENT.
    """
    is_forced = event.is_forced and run.tasks[event.name].node.task_type == _DEPENDENT
    return [
        FinishTask(
            name=event.name,
            attempt=event.attempt,
            state=TaskState.FORCED_SUCCESS if is_forced else _SUCCESS,
            var_pool=event.var_pool,
            at=event.at,
        )
    ]


def fail(run: ProcessRun, event: TaskFailed, now: datetime) -> list[Decision]:
    """Promise a retry if one is left and the retry policy allows it for this reason."""
    return _fail(run, event, TaskState.FAILURE)


def killed(run: ProcessRun, event: TaskKilled, now: datetime) -> list[Decision]:
    """Treat a kill without a request as a failure, with its retries (traps T23, T23b)."""
    if run.tasks[event.name].kill_requested:
        return [FinishTask(name=event.name, attempt=event.attempt, state=TaskState.KILL)]
    return _fail(run, event, TaskState.KILL)


def paused(run: ProcessRun, event: TaskPaused, now: datetime) -> list[Decision]:
    """Finish the attempt as PAUSE: it has not failed, and a recovery resumes it."""
    return [FinishTask(name=event.name, attempt=event.attempt, state=TaskState.PAUSE)]


def lose(run: ProcessRun, event: WorkerLost, now: datetime) -> list[Decision]:
    """Submit the next attempt at once, not charged as a retry, unless the run is halting.

    A supervisor's task is never followed by itself: only the supervisor knows where to read on.
    """
    state = TaskState.NEED_FAULT_TOLERANCE
    task = run.tasks[event.name]
    supervised = is_supervised(task.node.task_type, task.node.task_json)
    if run.is_halting or task.kill_requested or supervised:
        return [FinishTask(name=event.name, attempt=event.attempt, state=state)]
    return [RetryTask(name=event.name, attempt=event.attempt, state=state, at=now)]


def wake(run: ProcessRun, event: TimerFired, now: datetime) -> list[Decision]:
    """Decide nothing: `flow` submits what is due by `now`."""
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
