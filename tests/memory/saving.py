"""Writes one save's decisions to the tables in memory, in the order in which they were taken.

The ends of runs come last, as on PostgreSQL, each with that of the attempt that waits for the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

from common.model.cluster import KillEntry, QueueEntry
from common.model.decisions import (
    AbandonTask,
    DecideTask,
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    PauseProcess,
    PauseTask,
    RetryTask,
    SkipTask,
    StopProcess,
    SubmitTask,
)
from common.model.definitions import PoolShare
from common.model.states import (
    UNSTARTED_TASK_STATES,
    ExecutionType,
    ProcessState,
    TaskState,
)
from common.store.master.ports import Saved, Step
from common.store.transaction import StoreConflictError, storable
from tests.memory.alerts import alert_of_end, alert_of_lost_attempts
from tests.memory.database import MemoryDatabase, RowRefusedError, Transaction
from tests.memory.lock_rows import LockRequestRecord
from tests.memory.reading import entry_of
from tests.memory.rows import (
    DEPENDENT,
    SUB_PROCESS,
    PoolQueueRecord,
    ProcessRecord,
    TaskRecord,
)
from tests.memory.sub_processes import command_child, end_parent

WITHDRAWN = "withdrawn before it started"
PAUSED = "paused before it started"
_MAY_GO_ON = (ProcessState.PAUSE, ProcessState.STOP)
ABANDONED = "given up: it had not ended when the time for stopping was over"


@contextmanager
def _refused_by_name(run_id: int, decision: Decision) -> Iterator[None]:
    try:
        yield
    except RowRefusedError as error:
        raise StoreConflictError(f"process instance {run_id}: {decision!r}: {error}") from error


@dataclass(slots=True)
class Writing:
    """The decisions of one save on their way into the tables, and the notices for others."""

    tx: Transaction
    offered: list[int] = field(default_factory=list)
    kills: list[KillEntry] = field(default_factory=list)
    withdrawn: list[QueueEntry] = field(default_factory=list)
    lost_attempts: dict[int, tuple[datetime, list[TaskRecord]]] = field(default_factory=dict)
    holds: bool = False
    intents: bool = False
    dependents: bool = False
    _ends: list[tuple[Step, FinishProcess]] = field(default_factory=list)
    """The ends of runs, which come after all decisions about attempts, whatever the order of steps."""

    @property
    def _db(self) -> MemoryDatabase:
        return self.tx.database

    def step(self, step: Step) -> None:
        """Write the decisions of one step."""
        self.tx.by = step.ownership
        run_id = step.ownership.process_instance_id
        for decision in step.decisions:
            if isinstance(decision, FinishProcess):
                self._ends.append((step, decision))
                continue
            with _refused_by_name(run_id, decision):
                self._write(run_id, decision, step.at)

    def saved(self) -> Saved:
        """The result of the save, once all steps are written."""
        for step, end in self._ends:
            self.tx.by = step.ownership
            run_id = step.ownership.process_instance_id
            with _refused_by_name(run_id, end):
                self._finish_process(self._live(run_id), end, step.at)
        for run_id, (at, tasks) in self.lost_attempts.items():
            alert_of_lost_attempts(self.tx, self._db.processes.the(run_id), tasks, at)
        gone = [entry.task_instance_id for entry in self.withdrawn]
        return Saved(
            lost=frozenset(),
            offers=tuple(
                entry_of(self._db, task_id) for task_id in self.offered if task_id not in gone
            ),
            kills=tuple(self.kills),
            withdrawn=tuple(self.withdrawn),
            holds=self.holds,
            intents=self.intents,
            dependents=self.dependents,
        )

    def _write(self, run_id: int, decision: Decision, at: datetime) -> None:
        match decision:
            case SubmitTask():
                self._submit(run_id, decision, at)
            case DecideTask():
                self._decide(run_id, decision, at)
            case FinishTask() | RetryTask():
                self._settle(run_id, decision, at)
            case GiveUpRetry():
                task = self._attempt(run_id, decision.name, decision.attempt)
                if task.retry_at is None:
                    raise _conflict(run_id, decision.name, decision.attempt)
                self._update(task, retry_at=None)
            case KillTask():
                self._kill(self._attempt(run_id, decision.name, decision.attempt), at)
            case PauseTask():
                self._pause(self._attempt(run_id, decision.name, decision.attempt), at)
            case AbandonTask():
                self._abandon(self._attempt(run_id, decision.name, decision.attempt), at)
            case PauseProcess():
                self._move(self._live(run_id), ProcessState.READY_PAUSE, at)
            case StopProcess():
                self._stop_process(self._live(run_id), decision, at)
            case PassForbidden() | SkipTask() | FinishProcess():
                pass
            case _:
                assert_never(decision)

    # Attempts that begin

    def _submit(self, run_id: int, decision: SubmitTask, at: datetime) -> None:
        process = self._live(run_id)
        self._supersede(run_id, decision.name)
        state, due_at = _first_state(decision), decision.due_at
        if decision.task_type in (SUB_PROCESS, DEPENDENT):
            due_at = None
        timeout = decision.timeout
        task_id = self.tx.insert(
            self._db.tasks,
            TaskRecord(
                name=decision.name,
                task_type=decision.task_type,
                process_definition_id=process.process_definition_id,
                process_instance_id=run_id,
                task_json=decision.task_json,
                state=int(state),
                submit_time=at,
                start_time=at,
                retry_times=decision.retry_times,
                retry_interval=decision.retry_interval // timedelta(minutes=1),
                max_retry_times=decision.max_retry_times,
                task_instance_priority=int(decision.priority),
                worker_group_id=decision.worker_group_id,
                executor_id=process.executor_id,
                attempt=decision.attempt,
                input_pool=decision.input_pool,
                due_at=due_at,
                timeout_seconds=None if timeout is None else timeout.after // timedelta(seconds=1),
                timeout_strategy=None if timeout is None else int(timeout.strategy),
                memory_factor=decision.memory_factor,
            ),
        )
        task = self._db.tasks.the(task_id)
        if decision.task_type == SUB_PROCESS:
            command_child(self.tx, process, task, decision.child_definition, at)
        elif decision.task_type == DEPENDENT:
            self.dependents = True
        else:
            self._request_slots(task, decision)
            for need in decision.locks:
                self.tx.insert(
                    self._db.lock_requests, LockRequestRecord(task_id=task_id, need=need)
                )
            if state is TaskState.SUBMITTED:
                self.offered.append(task_id)
            else:
                self.holds = True

    def _request_slots(self, task: TaskRecord, decision: SubmitTask) -> None:
        shares: dict[int, PoolQueueRecord] = {}
        for share in decision.pools:
            group_id = self._pool_id(share)
            asked = shares.get(group_id)
            if asked is not None:
                # One unknown name is enough: the attempt fails for it.
                weight = asked.weight + (share.slots if group_id else 0)
            else:
                weight = share.slots
            shares[group_id] = PoolQueueRecord(
                task_id=task.id,
                task_name=task.name,
                group_id=group_id,
                group_name=_pool_name(share) if asked is None else asked.group_name,
                process_id=task.process_instance_id,
                priority=decision.pool_priority,
                in_queue=1,
                weight=weight,
            )
        for row in shares.values():
            self.tx.insert(self._db.pool_queue, row)

    def _pool_id(self, share: PoolShare) -> int:
        if share.pool_id is not None:
            return share.pool_id
        return next((pool.id for pool in self._db.pools if pool.name == share.pool_name), 0)

    def _decide(self, run_id: int, decision: DecideTask, at: datetime) -> None:
        process = self._live(run_id)
        self._supersede(run_id, decision.name)
        branch = decision.branch
        self.tx.insert(
            self._db.tasks,
            TaskRecord(
                name=decision.name,
                task_type=decision.task_type,
                process_definition_id=process.process_definition_id,
                process_instance_id=run_id,
                task_json=decision.task_json,
                state=int(decision.state),
                submit_time=at,
                start_time=at,
                end_time=at,
                task_instance_priority=int(decision.priority),
                executor_id=process.executor_id,
                attempt=decision.attempt,
                settled=True,
                reason=None if decision.reason is None else storable(decision.reason),
                failure_reason=None if decision.failure is None else decision.failure.value,
                input_pool=decision.input_pool,
                branch=None if branch is None else json.dumps(list(branch), ensure_ascii=False),
            ),
        )

    def _supersede(self, run_id: int, name: str) -> None:
        for task in self._db.attempts(run_id):
            if task.name == name and task.flag == 1:
                self._update(task, flag=0)

    # Attempts that end, or are to end

    def _settle(self, run_id: int, decision: FinishTask | RetryTask, at: datetime) -> None:
        task = self._attempt(run_id, decision.name, decision.attempt)
        is_without_output = isinstance(decision, FinishTask) and decision.is_without_output
        if (
            task.state != decision.state
            or task.settled
            or (is_without_output and task.var_pool is not None)
        ):
            raise _conflict(run_id, decision.name, decision.attempt)
        retry_at = None
        if isinstance(decision, RetryTask):
            retry_at = decision.at
            if decision.state is TaskState.NEED_FAULT_TOLERANCE:
                self.lost_attempts.setdefault(run_id, (at, []))[1].append(task)
        self._update(task, settled=True, retry_at=retry_at)
        self._frees_slots(task)

    def _kill(self, task: TaskRecord, at: datetime) -> None:
        if self._withdraw(task, TaskState.KILL, WITHDRAWN, at):
            return
        # Also of one that has just ended: its report is read with the intent in mind.
        self._update(task, wanted_state=int(TaskState.KILL))
        if task.runs_as(SUB_PROCESS):
            self.intents = True
        else:
            self._tell_worker(task)

    def _pause(self, task: TaskRecord, at: datetime) -> None:
        if self._withdraw(task, TaskState.PAUSE, PAUSED, at):
            return
        if task.wanted_state != TaskState.KILL:
            self._update(task, wanted_state=int(TaskState.PAUSE))
        self.intents = self.intents or task.runs_as(SUB_PROCESS)

    def _withdraw(self, task: TaskRecord, state: TaskState, reason: str, at: datetime) -> bool:
        """End an attempt that has not begun; true if it was one."""
        if task.state not in UNSTARTED_TASK_STATES and not task.runs_as(DEPENDENT):
            return False
        self._unqueue(task)
        self._update(task, state=int(state), wanted_state=int(state), end_time=at, reason=reason)
        self._frees_slots(task)
        return True

    def _abandon(self, task: TaskRecord, at: datetime) -> None:
        if task.is_finished:
            self._update(task, settled=True)
        else:
            self._unqueue(task)
            self._tell_worker(task)
            is_held = task.state == TaskState.RUNNING and task.worker_incarnation is not None
            self._update(
                task,
                state=int(TaskState.KILL),
                wanted_state=int(TaskState.KILL),
                end_time=at,
                reason=ABANDONED,
                lost_at=at if is_held else task.lost_at,
                settled=True,
            )
        self._frees_slots(task)

    def _unqueue(self, task: TaskRecord) -> None:
        if task.state == TaskState.SUBMITTED and not task.is_workerless:
            self.withdrawn.append(entry_of(self._db, task.id))

    def _tell_worker(self, task: TaskRecord) -> None:
        if task.state == TaskState.RUNNING and task.host is not None:
            self.kills.append(KillEntry(address=task.host, task_instance_id=task.id))

    def _frees_slots(self, task: TaskRecord) -> None:
        self.holds = self.holds or any(
            row.task_id == task.id
            for rows in (self._db.pool_queue, self._db.lock_holders)
            for row in rows
        )

    # The process instance

    def _stop_process(self, process: ProcessRecord, decision: StopProcess, at: datetime) -> None:
        columns: dict[str, Any] = {"wanted_deadline": decision.deadline}
        if decision.failing and process.wanted_state != ProcessState.FAILURE:
            columns |= {"wanted_state": int(ProcessState.FAILURE), "wanted_at": at}
        self._move(process, ProcessState.READY_STOP, at, **columns)

    def _finish_process(
        self, process: ProcessRecord, decision: FinishProcess, at: datetime
    ) -> None:
        reason = None if decision.reason is None else storable(decision.reason)
        if decision.state is ProcessState.STOP:
            reason = process.state_reason or reason
        scope = process.run_scope if decision.state in _MAY_GO_ON else None
        self._move(process, decision.state, at, end_time=at, state_reason=reason, run_scope=scope)
        ended = self._db.processes.the(process.id)
        end_parent(self.tx, ended, decision.var_pool)
        alert_of_end(self.tx, ended)
        if not process.is_sub_process and self._others_may_wait(process.process_definition_id):
            self.holds = True

    def _others_may_wait(self, definition_id: int) -> bool:
        """True if it is serial, or has runs that wait because their own schedule takes turns."""
        definition = self._db.definitions.get(definition_id)
        return (
            definition is not None and definition.execution_type != ExecutionType.PARALLEL
        ) or any(
            other.process_definition_id == definition_id and other.is_waiting
            for other in self._db.processes
        )

    def _move(
        self, process: ProcessRecord, state: ProcessState, at: datetime, **columns: Any
    ) -> None:
        self.tx.update(self._db.processes, process.id, state=int(state), update_time=at, **columns)

    # Rows

    def _update(self, task: TaskRecord, **columns: Any) -> None:
        self.tx.update(self._db.tasks, task.id, **columns)

    def _attempt(self, run_id: int, name: str, attempt: int) -> TaskRecord:
        for task in self._db.attempts(run_id):
            if task.name == name and task.attempt == attempt:
                return task
        raise _conflict(run_id, name, attempt)

    def _live(self, run_id: int) -> ProcessRecord:
        process = self._db.processes.get(run_id)
        if process is None or not process.is_live:
            raise StoreConflictError(f"process instance {run_id} has ended already")
        return process


def _first_state(decision: SubmitTask) -> TaskState:
    if decision.task_type == SUB_PROCESS:
        return TaskState.SUBMITTED
    if decision.task_type == DEPENDENT:
        return TaskState.RUNNING
    if decision.due_at is not None:
        return TaskState.DELAY_EXECUTION
    is_free = not decision.pools and not decision.locks
    return TaskState.SUBMITTED if is_free else TaskState.WAITING_DEPEND


def _pool_name(share: PoolShare) -> str | None:
    return str(share.pool_id) if share.pool_id is not None else share.pool_name


def _conflict(run_id: int, name: str, attempt: int) -> StoreConflictError:
    return StoreConflictError(
        f"process instance {run_id}: attempt {attempt} of task {name!r} is not as its owner believes"
    )
