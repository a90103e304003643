"""Follows up a change of a run: submits, kills, pauses, and finishes it. Pure.

A run is *quiet* when nothing follows from its state but waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from common.model.control import Conditions, SubProcess, Switch
from common.model.decisions import (
    DecideTask,
    Decision,
    FinishProcess,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    PauseTask,
    SkipTask,
    SubmitTask,
)
from common.model.definitions import TaskNode
from common.model.failures import FailureReason
from common.model.states import ProcessState, TaskState
from common.params import Direct, Property, parse_properties, properties_json
from master.engine.branches import decide_branch
from master.engine.parameters import needed_locks
from master.engine.run import ProcessRun
from master.engine.task_run import TaskPhase
from master.engine.variables import merged, properties_of, too_much

_NAMED_IN_REASON = 5
_BRANCHING = (Conditions, Switch)
# Looked up once: a class looks a member up anew each time that it is asked for one.
_FAILED, _READY_STOP = TaskPhase.FAILED, ProcessState.READY_STOP


def follow_up(run: ProcessRun, *, now: datetime) -> list[Decision]:
    """Return the decisions that follow now; an empty list means that the run is quiet.

    Takes names out of `run.ready`. Released tasks come in order of their priority, then of the DAG.
    """
    if run.is_over:
        return []
    is_halting, is_pausing = run.is_halting, run.is_pausing
    if (is_halting or is_pausing) and (asked := halt(run) if is_halting else withdraw(run)):
        return asked
    decisions = list(_released(run, now)) if run.ready or run.deferred else []
    if run.retries and not is_halting and not is_pausing:
        decisions += _due(run, now)
    if not decisions and (end := outcome(run)) is not None:
        decisions.append(end)
    return decisions


def halt(run: ProcessRun) -> list[Decision]:
    """Give up promised retries and kill live attempts of a run that is halting.

    Kills that were requested before are not repeated: their intent stands in the rows, which the
    worker reads itself.
    """
    given_up: list[Decision] = [
        GiveUpRetry(name=name, attempt=run.tasks[name].attempt) for name in run.retries
    ]
    killed: list[Decision] = [
        KillTask(name=name, attempt=run.tasks[name].attempt) for name in run.unkilled
    ]
    return given_up + killed


def withdraw(run: ProcessRun) -> list[Decision]:
    """Withdraw attempts of a pausing run that have not begun; promised retries stay promised."""
    return [PauseTask(name=name, attempt=run.tasks[name].attempt) for name in run.unpaused]


def submission(
    run: ProcessRun, name: str, *, retry_times: int, due_at: datetime | None = None
) -> SubmitTask:
    """Build the next attempt at a task."""
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
        due_at=due_at,
        pools=node.pools,
        pool_priority=node.pool_priority,
        locks=needed_locks(run, name) if node.locks else (),
        worker_need=node.worker_need,
        timeout=node.timeout,
        input_pool=properties_of(run.input_variables(name)),
        child_definition=_child_definition(node),
        child_project=node.control.project if isinstance(node.control, SubProcess) else None,
        memory_factor=node.retry_policy.next_memory_factor(task.memory_factor, task.failure),
    )


def _child_definition(node: TaskNode) -> int | str | None:
    if not isinstance(node.control, SubProcess):
        return None
    return node.control.process_definition_id or node.control.process_definition_name


def _released(run: ProcessRun, now: datetime) -> Iterator[Decision]:
    names = [run.ready.popleft() for _ in range(len(run.ready))]
    if len(names) > 1:
        names.sort(key=lambda name: (run.tasks[name].node.priority, run.place[name]))
    for name in names:
        task = run.tasks[name]
        if task.is_left_out:
            yield SkipTask(name=name)
        elif task.node.forbidden:
            # Only now is all upstream of a forbidden task done, so what is downstream of it waits
            # for that as well (trap T26). Passing is no attempt: a halting run passes too.
            yield PassForbidden(name=name)
        elif run.is_halting:
            # It stays as it is; nothing leads out of halting but the end.
            continue
        elif run.is_pausing or run.is_limited(name):
            # It waits for the recovery after the pause, or for a free place.
            run.defer(name)
        elif isinstance(task.node.control, _BRANCHING):
            yield decide_branch(run, name)
        else:
            yield _first_submission(run, name, now)
    if run.deferred and not run.is_halting and not run.is_pausing:
        for name in run.take_deferred():
            yield _first_submission(run, name, now)


def _first_submission(run: ProcessRun, name: str, now: datetime) -> SubmitTask | DecideTask:
    node = run.tasks[name].node
    if fault := too_much(run.input_variables(name)):
        return DecideTask(
            name=name,
            attempt=run.tasks[name].attempt + 1,
            task_type=node.task_type,
            task_json=node.task_json,
            priority=node.priority,
            state=TaskState.FAILURE,
            branch=None,
            reason=fault,
            failure=FailureReason.CONFIGURATION,
        )
    delay = node.delay
    return submission(run, name, retry_times=0, due_at=now + delay if delay else None)


def _due(run: ProcessRun, now: datetime) -> list[Decision]:
    return [
        submission(
            run, name, retry_times=run.tasks[name].retry_times + run.tasks[name].retry_counts
        )
        for name in run.due(now)
    ]


def outcome(run: ProcessRun) -> FinishProcess | None:
    """Decide the end of a run without anything live, promised or released (contract §5.9, DO)."""
    if run.live:
        return None
    if run.unfinished == 0 and not run.left_over():
        return FinishProcess(state=ProcessState.SUCCESS, var_pool=_handed_up(run))
    if run.state is _READY_STOP:
        if run.failing:
            return FinishProcess(
                state=ProcessState.FAILURE, reason="it took longer than its time-out"
            )
        return FinishProcess(state=ProcessState.STOP, reason="stopped on request")
    if not run.is_halting:
        waits = bool(run.retries or run.ready or run.deferred)
        if waits and not run.is_pausing:
            return None
        if waits or run.paused:
            return FinishProcess(state=ProcessState.PAUSE, reason="paused on request")
    return FinishProcess(state=ProcessState.FAILURE, reason=_reason(run))


def _handed_up(run: ProcessRun) -> str | None:
    """Return a sub process's OUT parameters: as its tasks set them, or their own values."""
    if not run.context.hands_up:
        return None
    declared = [
        each for each in parse_properties(run.context.global_params) if each.direct is Direct.OUT
    ]
    if not declared:
        return None
    known = merged(run.task(name).variables for name in run.whole.names)
    return properties_json(
        Property(
            prop=each.prop,
            value=known[each.prop].value if each.prop in known else each.value,
            secret=each.secret or (each.prop in known and known[each.prop].secret),
        )
        for each in {each.prop: each for each in declared}.values()
    )


def _reason(run: ProcessRun) -> str:
    names = [*run.failed, *(name for name, task in run.rest.items() if task.phase is _FAILED)]
    if not names:
        names = [name for name, task in run.tasks.items() if task.phase is TaskPhase.KILLED]
    if not names:
        return _blocked(run)
    return f"task{'s' if len(names) > 1 else ''} {_listed(names)} failed"


def _blocked(run: ProcessRun) -> str:
    """Say why tasks could not run: a tolerated failure leaves some of them waiting."""
    never = [name for name, task in run.tasks.items() if task.phase is TaskPhase.IDLE]
    if not never:
        return "tasks that were not chosen have not succeeded"
    above = [
        name
        for name in run.dag.names
        if run.tasks[name].phase is TaskPhase.TOLERATED and run.blocks(name)
    ]
    cause = f", since {_listed(above)} failed" if above else ""
    return f"{_listed(never)} could not run{cause}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED_IN_REASON])
    more = len(names) - _NAMED_IN_REASON
    return f"{shown} and {more} more" if more > 0 else shown
