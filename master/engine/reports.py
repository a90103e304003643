"""Turns a report of an attempt's end, as the tables hold it, into the event of its run."""

from __future__ import annotations

from typing import assert_never

from common.model.instances import TaskReport
from common.model.states import TaskState
from master.engine.events import (
    TaskEvent,
    TaskFailed,
    TaskKilled,
    TaskPaused,
    TaskSucceeded,
    WorkerLost,
)
from master.engine.task_run import ImpossibleError


def event_of(report: TaskReport) -> TaskEvent:
    """Return the event; `ImpossibleError` for an attempt that has not ended."""
    name, attempt, at = report.name, report.attempt, report.end_time
    match report.state:
        case TaskState.SUCCESS | TaskState.FORCED_SUCCESS:
            return TaskSucceeded(
                name=name,
                attempt=attempt,
                at=at,
                var_pool=report.var_pool,
                is_forced=report.state is TaskState.FORCED_SUCCESS,
            )
        case TaskState.FAILURE:
            return TaskFailed(name=name, attempt=attempt, at=at, failure=report.failure)
        case TaskState.NEED_FAULT_TOLERANCE:
            return WorkerLost(name=name, attempt=attempt, at=at)
        case TaskState.KILL:
            return TaskKilled(name=name, attempt=attempt, at=at, failure=report.failure)
        case TaskState.PAUSE:
            return TaskPaused(name=name, attempt=attempt, at=at)
        case (
            TaskState.SUBMITTED
            | TaskState.RUNNING
            | TaskState.WAITING_DEPEND
            | TaskState.DELAY_EXECUTION
        ):
            raise ImpossibleError(f"{report} reports an attempt that has not ended")
        case _:
            assert_never(report.state)
