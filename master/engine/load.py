"""Rows → run: what `ProcessRun.apply` did, read back from what the store wrote. Pure.

The property that stands for a hundred tests: after any history, a run that is loaded equals the run
in memory. A finished attempt whose row is not *settled* is still live here: its report has not been
taken into account yet, and will be read as one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from common.dag import Dag
from common.model.definitions import TaskNode
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.states import TaskState
from master.engine.run import ProcessRun, TaskPhase, TaskRun, phase_of_finished


def load_run(
    ownership: Ownership,
    process: ProcessRow,
    attempts: Sequence[TaskRow],
    *,
    dag: Dag,
    nodes: Mapping[str, TaskNode],
) -> ProcessRun:
    """Build the run; raises `ImpossibleError` if the rows break an invariant.

    `attempts` holds every attempt, oldest first; `dag` is the selection that the command asked for.
    """
    run = ProcessRun(
        ownership=ownership,
        dag=dag,
        nodes=nodes,
        state=process.state,
        failure_strategy=process.failure_strategy,
        worker_group_id=process.worker_group_id,
    )
    latest = {row.name: row for row in attempts}
    for name in sorted(latest, key=lambda name: latest[name].id):
        if name not in run.tasks:
            raise run.impossible(f"there is a row of {name!r}, which was not selected")
        _restore(run, run.tasks[name], latest[name])
    _recount(run)
    run.check()
    return run


def _restore(run: ProcessRun, task: TaskRun, row: TaskRow) -> None:
    task.attempt = row.attempt
    task.retry_times = row.retry_times
    task.kill_requested = row.kill_requested
    if not row.settled:
        task.phase = TaskPhase.LIVE
        run.live[row.name] = None
    elif row.retry_at is not None:
        task.phase = TaskPhase.RETRYING
        task.retry_at = row.retry_at
        task.retry_counts = row.state is not TaskState.NEED_FAULT_TOLERANCE
        run.promise(row.name, row.retry_at)
    else:
        task.phase = phase_of_finished(row.state, kill_requested=row.kill_requested)
        if task.phase is TaskPhase.FAILED:
            run.failed[row.name] = None


def _recount(run: ProcessRun) -> None:
    """Pass forbidden tasks, count upstream, and find what is ready, in topological order."""
    ready: deque[str] = deque()
    for name in run.dag.names:
        task = run.tasks[name]
        task.missing = sum(not run.tasks[other].phase.is_done for other in run.dag.upstream[name])
        if task.missing == 0 and task.phase is TaskPhase.IDLE:
            if task.node.forbidden:
                task.phase = TaskPhase.PASSED
            elif not run.is_halting:
                ready.append(name)
    run.ready = ready
    run.unfinished = sum(not task.phase.is_done for task in run.tasks.values())
