"""Mistakes about held attempts, their slots and their locks, for the simulated cluster."""

from __future__ import annotations

from datetime import datetime

from common.model.states import TaskState
from tests.memory.locks import MemoryLocks
from tests.memory.store import MemoryHoldStore, TaskRecord, Transaction


class CountingHoldStore(MemoryHoldStore):
    """Counts the slots that it gives, and takes back only those of attempts that ended normally."""

    def _sweep(self, tx: Transaction) -> None:
        for row in self._db.pool_queue:
            ended = self._db.tasks.the(row.task_id).state in (TaskState.SUCCESS, TaskState.FAILURE)
            if row.status == 1 and ended:
                self._count(tx, row.group_id, -row.weight)
        super()._sweep(tx)

    def _fill_pools(self, tx: Transaction, now: datetime) -> list[int]:
        released = super()._fill_pools(tx, now)
        for row in self._db.pool_queue:
            if row.task_id in released:
                self._count(tx, row.group_id, row.weight)
        return released

    def _count(self, tx: Transaction, pool_id: int, slots: int) -> None:
        pool = self._db.pools.the(pool_id)
        tx.update(self._db.pools, pool_id, use_size=pool.use_size + slots)

    def _free_slots(self) -> dict[int, int]:
        return {pool.id: pool.group_size - pool.use_size for pool in self._db.pools}


class _UnaskedLocks(MemoryLocks):
    def _is_held(self, task_id: int) -> bool:
        return False


class LocklessHoldStore(MemoryHoldStore):
    """Grants every lock, whoever holds another."""

    def _locks(self, task: TaskRecord, now: datetime) -> MemoryLocks:
        return _UnaskedLocks(self._db, task, now)


class _LeakedLocks(MemoryLocks):
    def _is_held(self, task_id: int) -> bool:
        return self._db.tasks.the(task_id).state != TaskState.SUCCESS


class LeakingHoldStore(MemoryHoldStore):
    """Frees the locks of attempts that ended well, and of no others."""

    def _locks(self, task: TaskRecord, now: datetime) -> MemoryLocks:
        return _LeakedLocks(self._db, task, now)
