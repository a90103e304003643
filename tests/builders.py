"""Builders for tests: defaults for everything that a test does not name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from common.dag import Dag, build_dag
from common.expressions import parse
from common.model.control import (
    Condition,
    ConditionGroup,
    Conditions,
    Outcome,
    Relation,
    Switch,
    SwitchBranch,
)
from common.model.decisions import (
    AbandonTask,
    DecideTask,
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PauseProcess,
    PauseTask,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.definitions import ProcessGraph, TaskNode, read_process_json
from common.model.failures import FailureReason
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.states import (
    UNSTARTED_TASK_STATES,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskState,
)
from common.params import Property, properties_json
from common.task_types import known_task_types
from master.engine.advance import advance
from master.engine.context import RunContext
from master.engine.events import (
    Event,
    ProcessTimedOut,
    RunOpened,
    StopRequested,
    TaskEvent,
    TaskFailed,
    TaskKilled,
    TaskPaused,
    TaskSucceeded,
    WorkerLost,
)
from master.engine.invariants import check
from master.engine.load import load_run
from master.engine.run import ProcessRun
from master.engine.task_run import TaskPhase

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
SOON = NOON + timedelta(minutes=1)


def a_node(name: str, upstream: Iterable[str] = (), **changes: Any) -> TaskNode:
    """A SHELL node."""
    node = TaskNode(
        name=name,
        task_type="SHELL",
        upstream=tuple(upstream),
        forbidden=False,
        max_retry_times=0,
        retry_interval=timedelta(),
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        task_json="{}",
    )
    return replace(node, **changes)


def conditions(
    success: str, failed: str, *, relation: Relation = Relation.AND, **wanted: Outcome
) -> dict[str, Any]:
    """The keys of a CONDITIONS node that checks how these upstream tasks ended."""
    looked_at = tuple(Condition(task=name, wanted=outcome) for name, outcome in wanted.items())
    return {
        "task_type": "CONDITIONS",
        "control": Conditions(
            relation=relation,
            groups=(ConditionGroup(relation=relation, conditions=looked_at),),
            success=tuple(success.split()),
            failed=tuple(failed.split()),
        ),
    }


def switch(
    *branches: tuple[str, str], default: str, local: Iterable[Property] = ()
) -> dict[str, Any]:
    """The keys of a SWITCH node: conditions with their targets, and the default's."""
    params = {"localParams": json.loads(properties_json(local))}
    return {
        "task_type": "SWITCH",
        "task_json": json.dumps({"params": json.dumps(params)}),
        "control": Switch(
            branches=tuple(
                SwitchBranch(expression=parse(text), targets=tuple(names.split()))
                for text, names in branches
            ),
            default=tuple(default.split()),
        ),
    }


def edges(text: str) -> dict[str, list[str]]:
    """Parse "a >> b c; c >> d" as name → upstream; a name alone is a node alone."""
    upstream: dict[str, list[str]] = {}
    for chain in text.split(";"):
        stages = [stage.split() for stage in chain.split(">>")]
        for stage in stages:
            for name in stage:
                upstream.setdefault(name, [])
        for above, below in pairwise(stages):
            for name in below:
                upstream[name] += [other for other in above if other not in upstream[name]]
    return upstream


def a_dag(text: str) -> Dag:
    """A DAG from "a >> b c; c >> d"."""
    return build_dag(edges(text))


def a_run(
    text: str,
    *,
    strategy: FailureStrategy = FailureStrategy.CONTINUE,
    retries: Mapping[str, int] | None = None,
    interval: timedelta = timedelta(minutes=1),
    forbidden: Iterable[str] = (),
    priorities: Mapping[str, Priority] | None = None,
    of_node: Mapping[str, Mapping[str, Any]] | None = None,
    context: RunContext | None = None,
    opened: bool = True,
) -> ProcessRun:
    """A run of this DAG, opened by default, so that its heads are live."""
    dag = a_dag(text)
    off = tuple(forbidden)
    nodes = {
        name: a_node(
            name,
            dag.upstream[name],
            **{
                "max_retry_times": (retries or {}).get(name, 0),
                "retry_interval": interval,
                "forbidden": name in off,
                "priority": (priorities or {}).get(name, Priority.MEDIUM),
                **(of_node or {}).get(name, {}),
            },
        )
        for name in dag.names
    }
    run = ProcessRun(
        ownership=Ownership(process_instance_id=1, host="m:1", epoch=1),
        dag=dag,
        nodes=nodes,
        state=ProcessState.RUNNING,
        failure_strategy=strategy,
        context=context,
    )
    if opened:
        deliver(run, RunOpened())
    return run


def deliver(run: ProcessRun, *events: Event, now: datetime = NOON) -> list[Decision]:
    """Advance the run by these events, check it after each, and return all decisions."""
    decided: list[Decision] = []
    for event in events:
        decided += advance(run, event, now=now)
        check(run)
    return decided


def put_out(**values: str) -> str:
    """The variable pool of an attempt that put these out."""
    return properties_json(Property(prop=name, value=value) for name, value in values.items())


def stop(deadline: datetime = SOON) -> StopRequested:
    """The intent to have the run stopped."""
    return StopRequested(deadline=deadline)


def time_out(deadline: datetime = SOON) -> ProcessTimedOut:
    """The event of the process time-out."""
    return ProcessTimedOut(deadline=deadline)


def succeeded(
    name: str, attempt: int = 1, at: datetime = NOON, var_pool: str | None = None
) -> TaskSucceeded:
    """The report that an attempt ended well."""
    return TaskSucceeded(name=name, attempt=attempt, at=at, var_pool=var_pool)


def failed(
    name: str, attempt: int = 1, at: datetime = NOON, failure: FailureReason | None = None
) -> TaskFailed:
    """The report that an attempt ended badly."""
    return TaskFailed(name=name, attempt=attempt, at=at, failure=failure)


def killed(
    name: str, attempt: int = 1, at: datetime = NOON, failure: FailureReason | None = None
) -> TaskKilled:
    """The report that an attempt was killed."""
    return TaskKilled(name=name, attempt=attempt, at=at, failure=failure)


def paused(name: str, attempt: int = 1, at: datetime = NOON) -> TaskPaused:
    """The report that an attempt was withdrawn before it began, or that its child has paused."""
    return TaskPaused(name=name, attempt=attempt, at=at)


def lost(name: str, attempt: int = 1, at: datetime = NOON) -> WorkerLost:
    """The report that an attempt's worker is gone."""
    return WorkerLost(name=name, attempt=attempt, at=at)


def a_definition_json(text: str, **of_task: Mapping[str, Any]) -> str:
    """1.2 JSON of this DAG with SHELL tasks that run `true`; `of_task` adds keys to a task."""
    tasks = []
    for name, upstream in edges(text).items():
        task: dict[str, Any] = {
            "id": f"tasks-{name}",
            "name": name,
            "type": "SHELL",
            "params": {"rawScript": "true", "localParams": [], "resourceList": []},
            "runFlag": "NORMAL",
            "preTasks": upstream,
        }
        tasks.append(task | dict(of_task.get(name, {})))
    return json.dumps({"globalParams": [], "tasks": tasks, "tenantId": -1, "timeout": 0})


class KeptRun:
    """A run beside the rows that its decisions make, kept as the store keeps them.

    After each step the run is checked, and compared with a run loaded from the rows.
    """

    def __init__(
        self, text: str, *, command_param: str = "{}", task_limit: int = 0, **of_run: Any
    ) -> None:
        context: RunContext = of_run.pop("context", RunContext(moment=NOON))
        self.task_limit = task_limit
        self.run = a_run(text, context=context, opened=False, **of_run)
        self.dag = self.run.dag
        self.nodes = {name: task.node for name, task in self.run.tasks.items()}
        self.rows: list[TaskRow] = []
        self.process = ProcessRow(
            id=1,
            name="p",
            state=ProcessState.RUNNING,
            wanted_state=None,
            failure_strategy=self.run.failure_strategy,
            priority=Priority.MEDIUM,
            worker_group_id=-1,
            task_depend_type=2,
            command_param=command_param,
            process_definition_id=1,
            process_instance_json="",
            executor_id=1,
            start_time=NOON,
            moment=context.moment,
            global_params=context.global_params,
            parent_task_instance_id=int(context.hands_up),
            origin=context.origin,
        )
        self.run = self.load()

    # The run and its rows

    def load(self) -> ProcessRun:
        """The run as its rows have it."""
        return load_run(
            self.run.ownership,
            self.process,
            self.rows,
            dag=self.dag,
            nodes=self.nodes,
            task_limit=self.task_limit,
        )

    def row(self, name: str) -> TaskRow:
        """The latest attempt at a task."""
        return next(row for row in reversed(self.rows) if row.name == name)

    def state(self) -> ProcessState:
        """The state of the process."""
        return self.run.state

    def states(self) -> dict[str, TaskState]:
        """The state of each valid attempt, by name."""
        return {row.name: row.state for row in self.rows if row.valid}

    def phases(self) -> dict[str, str]:
        """The phase of each task, by name."""
        return {name: task.phase.value for name, task in self.run.tasks.items()}

    # Events

    def deliver(self, *events: Event, now: datetime = NOON) -> list[Decision]:
        """Advance by these events; save, check and compare after each; return all decisions."""
        decided: list[Decision] = []
        for event in events:
            was_live = not self.run.is_over
            decisions = advance(self.run, event, now=now)
            check(self.run)
            for decision in decisions:
                self._write(decision, now)
            if was_live:
                assert standing(self.load()) == standing(self.run)
            decided += decisions
        return decided

    def claim(self, name: str) -> None:
        """A worker begins the attempt."""
        assert self.row(name).state in UNSTARTED_TASK_STATES
        self._change(self.row(name), state=TaskState.RUNNING)

    def end(
        self,
        name: str,
        state: TaskState,
        *,
        at: datetime = NOON,
        var_pool: str | None = None,
        failure: FailureReason | None = None,
    ) -> TaskEvent:
        """Write how a live attempt ended; the report of it."""
        assert not self.row(name).state.is_finished
        self._change(self.row(name), state=state, end_time=at, var_pool=var_pool, failure=failure)
        return report_of(self.row(name))

    def reports(self) -> list[TaskEvent]:
        """The reports that the run has not processed yet."""
        return [report_of(row) for row in self.rows if row.state.is_finished and not row.settled]

    def settle(self, *, now: datetime = NOON) -> list[Decision]:
        """Report all withdrawn attempts to the run."""
        return self.deliver(*self.reports(), now=now)

    def forget(self, *, now: datetime = NOON) -> list[Decision]:
        """Drop the run from memory, as a failover does, and open it again from its rows."""
        self.run = self.load()
        return self.deliver(RunOpened(), now=now)

    def restart(
        self, reset: Iterable[str], *, scope: Iterable[str] | None = None, now: datetime = NOON
    ) -> list[Decision]:
        """Make the ended run live again, as the plan `Restart` does, and open it."""
        assert self.process.state.is_terminal
        names = tuple(reset)
        for row in self.rows:
            if row.valid and row.name in names:
                self._change(row, valid=False, retry_at=None)
        self.process = replace(
            self.process,
            state=ProcessState.RUNNING,
            wanted_state=None,
            wanted_deadline=None,
            run_scope=None if scope is None else tuple(scope),
        )
        return self.forget(now=now)

    # The store's part

    def _change(self, row: TaskRow, **changes: Any) -> None:
        self.rows[row.id - 1] = replace(row, **changes)

    def _attempt(self, name: str, attempt: int) -> TaskRow:
        (row,) = (row for row in self.rows if (row.name, row.attempt) == (name, attempt))
        return row

    def _insert(self, decision: SubmitTask | DecideTask, state: TaskState, **more: Any) -> None:
        for row in self.rows:
            if row.name == decision.name and row.valid:
                self._change(row, valid=False, retry_at=None)
        values: dict[str, Any] = {
            "id": len(self.rows) + 1,
            "name": decision.name,
            "attempt": decision.attempt,
            "state": state,
            "retry_times": 0,
            "valid": True,
            "settled": False,
            "end_time": None,
            "retry_at": None,
            "kill_requested": False,
        }
        self.rows.append(TaskRow(**values | more))

    def _write(self, decision: Decision, at: datetime) -> None:
        match decision:
            case SubmitTask():
                held = TaskState.WAITING_DEPEND if decision.pools else TaskState.SUBMITTED
                self._insert(
                    decision,
                    TaskState.DELAY_EXECUTION if decision.due_at else held,
                    retry_times=decision.retry_times,
                    memory_factor=decision.memory_factor,
                )
            case DecideTask():
                self._insert(
                    decision, decision.state, settled=True, end_time=at, branch=decision.branch
                )
            case FinishTask() | RetryTask():
                row = self._attempt(decision.name, decision.attempt)
                assert row.state is decision.state
                assert row.valid
                assert not row.settled
                retry_at = decision.at if isinstance(decision, RetryTask) else None
                self._change(row, settled=True, retry_at=retry_at)
            case GiveUpRetry():
                row = self._attempt(decision.name, decision.attempt)
                assert row.retry_at is not None
                self._change(row, retry_at=None)
            case KillTask() | PauseTask() | AbandonTask():
                self._intent(decision, at)
            case PauseProcess():
                self.process = replace(self.process, state=ProcessState.READY_PAUSE)
            case StopProcess():
                wanted = ProcessState.FAILURE if decision.failing else ProcessState.STOP
                self.process = replace(
                    self.process,
                    state=ProcessState.READY_STOP,
                    wanted_state=wanted,
                    wanted_deadline=decision.deadline,
                )
            case FinishProcess():
                self.process = replace(self.process, state=decision.state)
            case _:
                pass  # Tasks that were passed or skipped have no row.

    def _intent(self, decision: KillTask | PauseTask | AbandonTask, at: datetime) -> None:
        row = self._attempt(decision.name, decision.attempt)
        pausing = isinstance(decision, PauseTask)
        assert not row.settled
        withdrawn = row.state in UNSTARTED_TASK_STATES or (
            isinstance(decision, AbandonTask) and not row.state.is_finished
        )
        if withdrawn:
            state = TaskState.PAUSE if pausing else TaskState.KILL
            row = replace(row, state=state, end_time=at)
        self._change(
            row,
            state=row.state,
            end_time=row.end_time,
            # One column holds the intent; a kill takes precedence over a pause.
            kill_requested=row.kill_requested or not pausing,
            pause_requested=pausing and not row.kill_requested,
            settled=isinstance(decision, AbandonTask),
        )


def report_of(row: TaskRow) -> TaskEvent:
    """The event that reports the row of an ended attempt to its run."""
    assert row.end_time is not None
    named: dict[str, Any] = {"name": row.name, "attempt": row.attempt, "at": row.end_time}
    match row.state:
        case TaskState.SUCCESS:
            return TaskSucceeded(var_pool=row.var_pool, **named)
        case TaskState.FAILURE:
            return TaskFailed(failure=row.failure, **named)
        case TaskState.KILL:
            return TaskKilled(failure=row.failure, **named)
        case TaskState.PAUSE:
            return TaskPaused(**named)
        case TaskState.NEED_FAULT_TOLERANCE:
            return WorkerLost(**named)
        case _:
            raise AssertionError(row)


def standing(run: ProcessRun) -> dict[str, object]:
    """The state that a run's further decisions depend on, to compare it with another's."""
    tasks = {
        name: (
            *(task.phase, task.attempt, task.missing, task.taken, task.retry_times, task.retry_at),
            task.retry_counts or task.phase is not TaskPhase.RETRYING,
            *(task.left, task.refused, task.blocked, task.choosers),
            *(task.kill_requested, task.pause_requested, task.branch),
            *(task.var_pool, task.ended_at, dict(task.variables)),
            *(task.failure, task.memory_factor),
        )
        for name, task in run.tasks.items()
    }
    # Tasks that may still start count as long as the run continues.
    ready = () if run.is_over else tuple(run.ready)
    failing = run.failing and not run.is_over
    held = () if run.is_over or run.is_halting else sorted(run.deferred)
    return {
        "run": (run.state, run.unfinished, run.left_over(), run.deadline, failing, ready),
        "live": (sorted(run.live), sorted(run.unkilled), sorted(run.unpaused), held),
        "limit": (run.task_limit, sorted(run.occupants)),
        "ended": (sorted(run.failed), sorted(run.paused), sorted(run.retries.items())),
        "tasks": tasks,
    }


def read_graph(text: str) -> ProcessGraph:
    """Read a definition whose tasks may have any installed type."""
    return read_process_json(text, task_types=known_task_types())
