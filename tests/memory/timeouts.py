"""`TimeoutStore` in memory: alerts about whatever exceeds its time, or ends it, once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from common.model.failures import FailureReason
from common.model.states import ProcessState, TaskState, TimeoutStrategy
from common.store.master.ports import TimeoutStore
from common.store.master.timeouts import AFTER_ITS_TASK
from tests.memory.alerts import alert_of_long_process, alert_of_long_task
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.rows import DEPENDENT, SUB_PROCESS, ProcessRecord, TaskRecord
from tests.memory.sub_processes import child_of


class MemoryTimeoutStore(TimeoutStore):
    """`TimeoutStore` in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def time_out(self, *, now: datetime) -> int:
        with self._db.transaction("time_out") as tx:
            attempts = sum(self._time_out_task(tx, task, now) for task in self._long_tasks(now))
            processes = sum(
                self._time_out_process(tx, process, now) for process in self._db.processes
            )
            return attempts + processes

    def _long_tasks(self, now: datetime) -> list[TaskRecord]:
        return [
            task
            for task in self._db.tasks
            if task.state == TaskState.RUNNING
            and task.flag == 1
            and task.timeout_seconds is not None
            and task.timeout_strategy is not None
            and task.start_time is not None
            and task.start_time + timedelta(seconds=task.timeout_seconds) <= now
            and self._db.processes.the(task.process_instance_id).is_live
        ]

    def _time_out_task(self, tx: Transaction, task: TaskRecord, now: datetime) -> int:
        assert task.timeout_seconds is not None
        done = 0
        strategy = TimeoutStrategy(task.timeout_strategy or 0)
        if strategy.warns and not task.alert_flag:
            tx.update(self._db.tasks, task.id, alert_flag=1)
            process = self._db.processes.the(task.process_instance_id)
            alert_of_long_task(tx, process, task, now)
            done += 1
        if not strategy.fails:
            return done
        reason = (
            f"timed out after {task.timeout_seconds / 60:g} {'minute' if task.timeout_seconds == 60 else 'minutes'}"
            f" (timeout strategy {strategy.name})"
        )
        if task.task_type == DEPENDENT:
            tx.update(
                self._db.tasks,
                task.id,
                state=int(TaskState.FAILURE),
                end_time=now,
                reason=reason,
                failure_reason=FailureReason.TIMED_OUT.value,
            )
            return done + 1
        if task.task_type == SUB_PROCESS and task.reason is None:
            # It continues until its child has ended; the reason then makes that end a failure.
            why = FailureReason.TIMED_OUT.value
            tx.update(self._db.tasks, task.id, reason=reason, failure_reason=why)
            child = child_of(self._db, task)
            if child is not None and child.is_live:
                _want(
                    tx, child, ProcessState.STOP, (ProcessState.STOP,), now, reason=AFTER_ITS_TASK
                )
            return done + 1
        return done

    def _time_out_process(self, tx: Transaction, process: ProcessRecord, now: datetime) -> int:
        if (
            process.state not in (ProcessState.RUNNING, ProcessState.READY_PAUSE)
            or process.timeout <= 0
            or process.timeout_flag
            or (process.restart_time or process.start_time) + timedelta(minutes=process.timeout)
            > now
        ):
            return 0
        tx.update(self._db.processes, process.id, timeout_flag=1, update_time=now)
        strategy = TimeoutStrategy(process.timeout_strategy)
        if strategy.warns:
            alert_of_long_process(tx, process, now)
        if strategy.fails:
            stronger = (ProcessState.STOP, ProcessState.FAILURE)
            _want(tx, process, ProcessState.FAILURE, stronger, now)
        return 1


def _want(
    tx: Transaction,
    process: ProcessRecord,
    state: ProcessState,
    unless: tuple[ProcessState, ...],
    now: datetime,
    *,
    reason: str | None = None,
) -> None:
    # The final state of a run that is being stopped was decided before.
    if process.wanted_state in unless or process.state == ProcessState.READY_STOP:
        return
    columns: dict[str, Any] = {"wanted_state": int(state), "wanted_at": now, "update_time": now}
    if reason is not None:
        columns["state_reason"] = reason
    tx.update(tx.database.processes, process.id, **columns)
