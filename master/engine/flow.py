"""What follows once a run has changed: who may start, and when it is over. Pure.

Adds the word *quiet*: a run is quiet when nothing follows from its state but waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from common.model.decisions import (
    Decision,
    FinishProcess,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    SubmitTask,
)
from common.model.states import ProcessState
from master.engine.run import ProcessRun, TaskPhase

_NAMED_IN_REASON = 5


def halt(run: ProcessRun) -> list[Decision]:
    """Give up what was promised and kill what is live; for a run that is halting.

    Kills that were asked for before are left alone: their wish stands in the rows, where the worker
    looks for it itself.
    """
    given_up: list[Decision] = [
        GiveUpRetry(name=name, attempt=run.tasks[name].attempt) for name in run.retries
    ]
    killed: list[Decision] = [
        KillTask(name=name, attempt=run.tasks[name].attempt)
        for name in run.live
        if not run.tasks[name].kill_requested
    ]
    return given_up + killed


def follow_up(run: ProcessRun, *, now: datetime) -> list[Decision]:
    """What follows now; an empty list means that the run is quiet.

    Takes names out of `run.ready`. Released tasks come in order of their priority, then of the DAG.
    """
    if run.is_over:
        return []
    if run.is_halting and (halting := halt(run)):
        return halting
    decisions = list(_released(run))
    if not run.is_halting:
        decisions += _due(run, now)
    if not decisions and (end := outcome(run)) is not None:
        decisions.append(end)
    return decisions


def submission(run: ProcessRun, name: str, *, retry_times: int) -> SubmitTask:
    """The next attempt at a task."""
    task = run.tasks[name]
    node = task.node
    return SubmitTask(
        name=name,
        attempt=task.attempt + 1,
        retry_times=retry_times,
        task_type=node.task_type,
        task_json=node.task_json,
        priority=node.priority,
        worker_group_id=node.worker_group_id if node.worker_group_id > 0 else run.worker_group_id,
        max_retry_times=node.max_retry_times,
        retry_interval=node.retry_interval,
    )


def _released(run: ProcessRun) -> Iterator[Decision]:
    names = [run.ready.popleft() for _ in range(len(run.ready))]
    names.sort(key=lambda name: run.tasks[name].node.priority)
    for name in names:
        # Only now is all upstream of a forbidden task done, so what is downstream of it waits for
        # that as well (trap T26). Passing is no attempt: a halting run passes too.
        if run.tasks[name].node.forbidden:
            yield PassForbidden(name=name)
        elif not run.is_halting:
            yield submission(run, name, retry_times=0)


def _due(run: ProcessRun, now: datetime) -> list[Decision]:
    due = [name for name, at in run.retries.items() if at <= now] if _any_due(run, now) else []
    return [
        submission(
            run, name, retry_times=run.tasks[name].retry_times + run.tasks[name].retry_counts
        )
        for name in due
    ]


def _any_due(run: ProcessRun, now: datetime) -> bool:
    first = run.next_retry()
    return first is not None and first[0] <= now


def outcome(run: ProcessRun) -> FinishProcess | None:
    """How the run ends, if nothing is live, promised or released any more (§5.9, DO)."""
    if run.live or run.retries or run.ready:
        return None
    if run.unfinished == 0:
        return FinishProcess(state=ProcessState.SUCCESS)
    if run.state is ProcessState.READY_STOP:
        return FinishProcess(state=ProcessState.STOP, reason="stopped on request")
    return FinishProcess(state=ProcessState.FAILURE, reason=_reason(run))


def _reason(run: ProcessRun) -> str:
    names = list(run.failed) or [
        name for name, task in run.tasks.items() if task.phase is TaskPhase.KILLED
    ]
    shown = ", ".join(repr(name) for name in names[:_NAMED_IN_REASON])
    more = len(names) - _NAMED_IN_REASON
    suffix = f" and {more} more" if more > 0 else ""
    return f"task{'s' if len(names) > 1 else ''} {shown}{suffix} failed"
