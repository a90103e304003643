"""Locks on datasets in memory, for held attempts that ask for some."""

from __future__ import annotations

from datetime import datetime

from common.model.intervals import IntervalError
from common.model.lock_needs import group_of_run, request_of
from common.model.locks import (
    Busy,
    Grant,
    Impossible,
    Join,
    Lock,
    LockDecision,
    LockRequest,
    Revoked,
    decide_locks,
)
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.lock_rows import LockHolderRecord, LockRecord
from tests.memory.rows import TaskRecord


class MemoryLocks:
    """The locks that an attempt asks for, and the decision about them."""

    def __init__(self, db: MemoryDatabase, task: TaskRecord, now: datetime) -> None:
        self._db = db
        self._task = task
        self._asked = [row for row in db.lock_requests if row.task_id == task.id]
        self._requests: list[LockRequest] = []
        self._decisions: tuple[LockDecision, ...] = ()
        self.problem: str | None = None
        if self._asked:
            self._decide(now)

    @property
    def are_free(self) -> bool:
        """True if the attempt could have all of them, or asks for none."""
        return not any(isinstance(one, Busy | Revoked) for one in self._decisions)

    def take(self, tx: Transaction) -> None:
        """Have the attempt hold all of them."""
        taken: list[int] = []
        for request, decision in zip(self._requests, self._decisions, strict=True):
            if isinstance(decision, Join):
                joined = decision.lock.id
                taken.append(joined if joined > 0 else taken[-1 - joined])
            else:
                assert isinstance(decision, Grant)
                for lock_id in decision.revoke:
                    tx.update(self._db.locks, lock_id, revoked=True)
                row = LockRecord(
                    dataset=request.dataset,
                    group_id=request.group_id,
                    interval=request.interval,
                    version=decision.version,
                    priority=request.priority,
                    type=request.type,
                )
                taken.append(tx.insert(self._db.locks, row))
            tx.insert(
                self._db.lock_holders, LockHolderRecord(lock_id=taken[-1], task_id=self._task.id)
            )
        for asked in self._asked:
            tx.delete(self._db.lock_requests, asked.id)

    def _decide(self, now: datetime) -> None:
        group = group_of_run(self._task.process_instance_id)
        try:
            self._requests = [request_of(row.need, group) for row in self._asked]
        except IntervalError as error:
            self.problem = f"locks: {error}"
            return
        self._decisions = decide_locks(self._requests, self._standing(), now=now, newest={})
        for decision in self._decisions:
            if isinstance(decision, Impossible):
                self.problem = f"locks: {decision.reason}"

    def _standing(self) -> list[Lock]:
        held = {row.lock_id for row in self._db.lock_holders if self._is_held(row.task_id)}
        return [
            Lock(
                id=row.id,
                dataset=row.dataset,
                group_id=row.group_id,
                interval=row.interval,
                version=row.version,
                type=row.type,
                priority=row.priority,
                revoked=row.revoked,
            )
            for row in self._db.locks
            if row.id in held
        ]

    def _is_held(self, task_id: int) -> bool:
        return not self._db.tasks.the(task_id).is_finished
