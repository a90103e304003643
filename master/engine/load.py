"""Loads a run: rebuilds from rows the state that `ProcessRun.apply` had reached. Pure.

The property that stands for a hundred tests: after any history, a loaded run equals the run in
memory. A finished attempt whose row is not *settled* is still live here: its report has not been
taken into account yet, and will be read as an event. A task whose latest attempt is not *valid* was
put aside by a recovery: it is as if it had never run, but for the number of its next attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from common.dag import Dag, restrict
from common.model.command_param import stored_start_values
from common.model.definitions import TaskNode
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.origins import NOWHERE
from common.model.states import ProcessState, TaskState
from common.zones import zone_named
from master.engine.context import RunContext
from master.engine.invariants import check
from master.engine.run import ProcessRun
from master.engine.task_run import TaskPhase, TaskRun, phase_of_finished

_UTC = ZoneInfo("UTC")


def load_run(
    ownership: Ownership,
    process: ProcessRow,
    attempts: Sequence[TaskRow],
    *,
    dag: Dag,
    nodes: Mapping[str, TaskNode],
    zone: ZoneInfo = _UTC,
    task_limit: int = 0,
) -> ProcessRun:
    """Build the run; raises `ImpossibleError` if the rows break an invariant.

    Raises `UnknownZoneError` if the run names an unknown zone for its dates; `zone` is for runs
    that name none.

    `attempts` are all attempts, oldest first; `dag` is the selection of the first command. If a
    later one selected some of its nodes alone (`run_scope`), the run is of these, and the others
    only count for its end. `task_limit`: the most tasks that workers may have at the same time; 0
    is no limit.
    """
    context = _context(process, zone)
    latest = {row.name: row for row in attempts}
    # A restart with a later version sets the attempts of tasks aside that this one has not.
    stray = [name for name, row in latest.items() if row.valid and name not in dag.upstream]
    if process.run_scope is None:
        run = _run(ownership, process, dag, nodes, context)
    else:
        chosen = restrict(dag, process.run_scope)
        others = restrict(dag, [name for name in dag.names if name not in chosen.upstream])
        blank = _blank(chosen, nodes)
        rest = _run(ownership, process, others, nodes, context, whole=dag, rest=blank)
        _fill(rest, latest)
        run = _run(ownership, process, chosen, nodes, context, whole=dag, rest=rest.tasks)
    if stray:
        raise run.impossible(f"there is a row of {stray[0]!r}, which was not selected")
    run.task_limit = task_limit
    _fill(run, latest)
    if attempts or process.state is not ProcessState.RUNNING:
        # Else there are no rows that could break an invariant, and many tasks to look at.
        check(run)
    return run


def _context(process: ProcessRow, zone: ZoneInfo) -> RunContext:
    context = RunContext(
        global_params=process.global_params,
        start_params=stored_start_values(process.command_param),
        zone=zone if process.timezone_id is None else zone_named(process.timezone_id),
        complement=process.complement,
        hands_up=process.parent_task_instance_id != 0,
        origin=process.origin or NOWHERE,
        definition_id=process.process_definition_id,
    )
    return context if process.moment is None else context.at(process.moment)


def _run(
    ownership: Ownership,
    process: ProcessRow,
    dag: Dag,
    nodes: Mapping[str, TaskNode],
    context: RunContext,
    *,
    whole: Dag | None = None,
    rest: Mapping[str, TaskRun] | None = None,
) -> ProcessRun:
    return ProcessRun(
        ownership=ownership,
        dag=dag,
        nodes=nodes,
        state=process.state,
        failure_strategy=process.failure_strategy,
        worker_group_id=process.worker_group_id,
        context=context,
        whole=whole,
        rest=rest,
        deadline=process.wanted_deadline,
        # An intent that the run has not taken up yet comes as an event.
        failing=process.state is ProcessState.READY_STOP
        and process.wanted_state is ProcessState.FAILURE,
    )


def _blank(dag: Dag, nodes: Mapping[str, TaskNode]) -> dict[str, TaskRun]:
    """Return the chosen tasks as the others see them: their former output does not count."""
    return {name: TaskRun(node=nodes[name], missing=0) for name in dag.names}


def _fill(run: ProcessRun, latest: Mapping[str, TaskRow]) -> None:
    known = [name for name in latest if name in run.tasks]
    for name in sorted(known, key=lambda name: latest[name].id):
        _restore(run, run.tasks[name], latest[name])
    _recount(run)


def _restore(run: ProcessRun, task: TaskRun, row: TaskRow) -> None:
    task.attempt = row.attempt
    if not row.valid:
        return
    task.retry_times = row.retry_times
    task.memory_factor = row.memory_factor
    task.kill_requested = row.kill_requested
    task.pause_requested = row.pause_requested
    if not row.settled:
        run.enter_live(row.name)
    elif row.retry_at is not None and not row.state.is_success:
        task.phase = TaskPhase.RETRYING
        task.retry_at = row.retry_at
        task.retry_counts = row.state is not TaskState.NEED_FAULT_TOLERANCE
        task.failure = row.failure if task.retry_counts else None
        run.promise(row.name, row.retry_at)
    elif row.branch is not None:
        task.phase = TaskPhase.BRANCHED
        task.branch = row.branch
    else:
        task.phase = phase_of_finished(row.state, kill_requested=row.kill_requested)
        if task.phase is TaskPhase.SUCCEEDED:
            task.var_pool = row.var_pool
            task.ended_at = row.end_time
        elif task.phase is TaskPhase.FAILED:
            if run.tolerates(row.name):
                task.phase = TaskPhase.TOLERATED
            else:
                run.failed[row.name] = None
        elif task.phase is TaskPhase.PAUSED:
            run.paused[row.name] = None


def _recount(run: ProcessRun) -> None:
    """Pass and skip, count the edges, and find what is ready, in topological order."""
    ready: deque[str] = deque()
    for name in run.dag.names:
        task = run.tasks[name]
        task.count(run.edges(name), outside=run.outside(name))
        if task.phase is TaskPhase.RETRYING and (not task.is_free or task.is_left_out):
            # A recovery put its upstream aside: that comes first, and then this one afresh.
            task.phase = TaskPhase.IDLE
            task.retry_at = None
            task.retry_times = 0
            task.failure = None
            task.memory_factor = 1.0
            run.unpromise(name)
        if task.is_free and task.phase is TaskPhase.IDLE:
            if task.is_left_out:
                run.skip(name)
            elif task.node.forbidden:
                task.phase = TaskPhase.PASSED
            elif not run.is_halting:
                if run.is_pausing or run.is_limited(name):
                    run.defer(name)
                else:
                    ready.append(name)
        if task.phase.is_done:
            # Its upstream comes before it in this order, so it is complete.
            run.know(name)
    run.ready = ready
    run.unfinished = sum(not task.phase.is_done for task in run.tasks.values())
