"""`HoldStore` in memory: attempts and runs that are held back, and their order.

A *pool* is a row of `t_ds_task_group`. Which of its slots are taken is nowhere noted: it follows
from the attempts that have been let go of and have not ended, so that no slot can leak.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from common.model.commands import CommandType
from common.model.grants import GrantKind
from common.model.states import ProcessState, TaskState
from common.store.master.pool_grants import Fault, no_pool
from common.store.master.ports import HoldStore, Released
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.locks import MemoryLocks
from tests.memory.reading import entry_of
from tests.memory.rows import CommandRecord, PoolQueueRecord, ProcessRecord, TaskRecord
from tests.memory.serial import end_waiting, is_serial_no_more, others_live

_WAITS, _HAS, _HAD = -1, 1, 2
_HOLDING = (TaskState.SUBMITTED, TaskState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A held attempt that waits only for slots, with its demand on each pool."""

    task: TaskRecord
    process: ProcessRecord
    shares: tuple[PoolQueueRecord, ...]

    @property
    def turn(self) -> tuple[int, bool, int, int]:
        """The sort key: process priority, runs without a complement first, pool priority, id.

        Process priorities count upwards, pool priorities downwards.
        """
        return (
            self.process.process_instance_priority,
            self.process.is_of_complement,
            -max((share.priority for share in self.shares), default=0),
            self.task.id,
        )


class MemoryHoldStore(HoldStore):
    """`HoldStore` in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def release(self, *, now: datetime) -> Released:
        with self._db.transaction("release") as tx:
            self._sweep(tx)
            next_due = self._end_delays(tx, now)
            offers = self._fill_pools(tx, now)
            instances = self._release_instances(tx, now)
            return Released(
                offers=tuple(entry_of(self._db, task_id) for task_id in offers),
                instances=instances,
                next_due=next_due,
            )

    def _sweep(self, tx: Transaction) -> None:
        """Mark the slots that ended attempts have returned. For people: no decision reads it."""
        for row in self._db.pool_queue:
            if row.status in (_WAITS, _HAS) and self._db.tasks.the(row.task_id).is_finished:
                tx.update(self._db.pool_queue, row.id, status=_HAD, in_queue=0)
        for asked in list(self._db.lock_requests):
            if self._db.tasks.the(asked.task_id).is_finished:
                tx.delete(self._db.lock_requests, asked.id)

    def _end_delays(self, tx: Transaction, now: datetime) -> datetime | None:
        """Move attempts whose delay is over on to their pools; return the next due time."""
        for task in self._held(TaskState.DELAY_EXECUTION):
            if task.due_at is None or task.due_at <= now:
                tx.update(self._db.tasks, task.id, state=int(TaskState.WAITING_DEPEND))
        later = (
            task.due_at
            for task in self._db.tasks
            if task.state == TaskState.DELAY_EXECUTION
            and task.flag == 1
            and task.due_at is not None
            and task.due_at > now
        )
        return min(later, default=None)

    def _fill_pools(self, tx: Transaction, now: datetime) -> list[int]:
        candidates = [
            _Candidate(
                task=task,
                process=self._db.processes.the(task.process_instance_id),
                shares=tuple(row for row in self._db.pool_queue if row.task_id == task.id),
            )
            for task in self._held(TaskState.WAITING_DEPEND)
        ]
        free = self._free_slots() if candidates else {}
        released = []
        for candidate in sorted(candidates, key=lambda one: one.turn):
            locks = self._locks(candidate.task, now)
            of_locks = None if locks.problem is None else Fault(locks.problem)
            hopeless = next(filter(None, map(self._hopeless, candidate.shares)), of_locks)
            if hopeless:
                tx.update(
                    self._db.tasks,
                    candidate.task.id,
                    state=int(TaskState.FAILURE),
                    end_time=now,
                    reason=hopeless.reason,
                    failure_reason=hopeless.failure.value,
                )
                continue
            if not locks.are_free:
                continue
            full = [share for share in candidate.shares if free[share.group_id] < share.weight]
            if full:
                # No attempt overtakes it in any of its pools: small ones would otherwise starve it.
                is_kept_out = any(self._is_closed(share) for share in full)
                for share in full if is_kept_out else candidate.shares:
                    free[share.group_id] = 0
                continue
            for share in candidate.shares:
                free[share.group_id] -= share.weight
                tx.update(self._db.pool_queue, share.id, status=_HAS, in_queue=0)
            locks.take(tx)
            tx.update(self._db.tasks, candidate.task.id, state=int(TaskState.SUBMITTED))
            released.append(candidate.task.id)
        return released

    def _locks(self, task: TaskRecord, now: datetime) -> MemoryLocks:
        return MemoryLocks(self._db, task, now)

    def _held(self, state: TaskState) -> list[TaskRecord]:
        return [
            task
            for task in self._db.tasks
            if task.state == state
            and task.flag == 1
            and (process := self._db.processes.the(task.process_instance_id)).is_live
            and not process.is_waiting
        ]

    def _free_slots(self) -> dict[int, int]:
        free = {pool.id: pool.group_size if pool.status == 1 else 0 for pool in self._db.pools}
        for row in self._db.pool_queue:
            if (
                row.status == _HAS
                and row.group_id in free
                and self._db.tasks.the(row.task_id).state in _HOLDING
            ):
                free[row.group_id] -= row.weight
        return free

    def _is_closed(self, share: PoolQueueRecord) -> bool:
        return self._db.pools.the(share.group_id).status == 0

    def _hopeless(self, share: PoolQueueRecord) -> Fault | None:
        pool = self._db.pools.get(share.group_id)
        if pool is None or not self._is_granted(share):
            return no_pool(share.group_name or "")
        if pool.group_size < share.weight:
            return Fault(
                f"pool {share.group_name!r} has {pool.group_size} slots, the task needs {share.weight}"
            )
        return None

    def _is_granted(self, share: PoolQueueRecord) -> bool:
        process = self._db.processes.the(self._db.tasks.the(share.task_id).process_instance_id)
        project = self._db.project_of(process)
        return self._db.is_granted(GrantKind.POOL, share.group_id, project)

    # Process instances

    def _release_instances(self, tx: Transaction, now: datetime) -> int:
        for process in self._waiting():
            if process.wanted_state in (ProcessState.STOP, ProcessState.FAILURE):
                end_waiting(tx, process, now)
        released = 0
        awaited = self._db.awaited()
        definitions = dict.fromkeys(process.process_definition_id for process in self._waiting())
        for definition_id in sorted(definitions):
            live = others_live(self._db, definition_id)
            # Nothing blocks them any more; those whose schedule takes turns go on waiting.
            begins = [
                one
                for one in live
                if one.is_waiting and one.id not in awaited and is_serial_no_more(self._db, one)
            ]
            if not begins and all(one.is_waiting and one.id not in awaited for one in live):
                begins = live[:1]
            for one in begins:
                tx.insert(self._db.commands, _turn_has_come(one, now))
            released += len(begins)
        return released

    def _waiting(self) -> list[ProcessRecord]:
        return [
            process
            for process in self._db.processes
            if process.is_waiting and not process.is_sub_process
        ]


def _turn_has_come(process: ProcessRecord, now: datetime) -> CommandRecord:
    return CommandRecord(
        command_type=int(CommandType.RECOVER_SERIAL_WAIT),
        process_definition_id=process.process_definition_id,
        command_param=json.dumps({"ProcessInstanceId": process.id}, separators=(",", ":")),
        start_time=now,
        update_time=now,
        executor_id=process.executor_id,
        process_instance_priority=process.process_instance_priority,
        process_instance_id=process.id,
    )
