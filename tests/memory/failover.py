"""`FailoverStore` in memory: the runs and attempts of lost daemons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState
from common.store.master.ports import FailoverStore
from tests.memory.alerts import alert_of_lost_daemon
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.rows import CommandRecord, ProcessRecord, TaskRecord

_DRIVEN = (ProcessState.RUNNING, ProcessState.READY_PAUSE, ProcessState.READY_STOP)


class MemoryFailoverStore(FailoverStore):
    """`FailoverStore` in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def run_owners(self) -> frozenset[Node]:
        awaited = self._db.awaited()
        return frozenset(
            process.owner
            for process in self._db.processes
            if process.is_live and process.owner is not None and process.id not in awaited
        )

    def task_owners(self) -> frozenset[Node]:
        return frozenset(
            Node(address=task.host, incarnation=task.worker_incarnation)
            for task in self._running()
            if task.host is not None and task.worker_incarnation is not None
        )

    def hand_over(self, leaving: Node, *, now: datetime) -> int:
        runs = [each for each in self._db.live_runs(leaving) if each.state in _DRIVEN]
        with self._db.transaction("hand_over", by=leaving) as tx:
            for process in runs:
                tx.update(
                    self._db.processes,
                    process.id,
                    host=None,
                    owner_incarnation=None,
                    update_time=now,
                )
        return len(runs)

    def recover_runs(self, dead: Node, *, now: datetime) -> int:
        with self._db.transaction("recover_runs") as tx:
            recovered = self._recover(tx, self._db.live_runs(dead), now)
            if recovered:
                alert_of_lost_daemon(tx, "MASTER", dead, now)
        return recovered

    def recover_ownerless(self, *, now: datetime) -> int:
        ownerless = [
            process
            for process in self._db.processes
            if process.state in _DRIVEN and process.owner is None
        ]
        if not ownerless:
            return 0
        with self._db.transaction("recover_ownerless") as tx:
            return self._recover(tx, ownerless, now)

    def _recover(self, tx: Transaction, runs: Sequence[ProcessRecord], now: datetime) -> int:
        awaited = self._db.awaited()
        recovered = 0
        for process in runs:
            if process.id in awaited:
                continue
            tx.insert(
                self._db.commands,
                CommandRecord(
                    command_type=int(CommandType.RECOVER_TOLERANCE_FAULT_PROCESS),
                    process_definition_id=process.process_definition_id,
                    command_param=json.dumps(
                        {"ProcessInstanceId": process.id}, separators=(",", ":")
                    ),
                    start_time=now,
                    update_time=now,
                    executor_id=process.executor_id,
                    process_instance_priority=process.process_instance_priority,
                    process_instance_id=process.id,
                    parent_task_instance_id=process.parent_task_instance_id,
                ),
            )
            recovered += 1
        return recovered

    def mark_lost(self, missing: Node, *, now: datetime) -> int:
        marked = 0
        with self._db.transaction("mark_lost") as tx:
            for task in self._running():
                if self._is_of(task, missing) and task.lost_at is None:
                    tx.update(self._db.tasks, task.id, lost_at=now)
                    marked += 1
        return marked

    def fail_tasks_over(self, dead: Node, *, now: datetime) -> int:
        failed_over = 0
        with self._db.transaction("fail_tasks_over") as tx:
            for task in self._running():
                if not self._is_of(task, dead) or task.lost_at is None:
                    continue
                tx.update(
                    self._db.tasks,
                    task.id,
                    state=int(TaskState.NEED_FAULT_TOLERANCE),
                    end_time=now,
                    reason=f"worker {dead.address} was lost",
                )
                failed_over += 1
            if failed_over:
                alert_of_lost_daemon(tx, "WORKER", dead, now)
        return failed_over

    def _running(self) -> list[TaskRecord]:
        live = [process.id for process in self._db.processes if process.is_live]
        return [
            task
            for task in self._db.tasks
            if task.state == TaskState.RUNNING
            and task.flag == 1
            and task.process_instance_id in live
        ]

    @staticmethod
    def _is_of(task: TaskRecord, worker: Node) -> bool:
        return (task.host, task.worker_incarnation) == (worker.address, worker.incarnation)
