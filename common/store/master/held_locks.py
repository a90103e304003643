"""Gets the locks that held attempts ask for, all that an attempt wants or none.

Part of a release, which only one master does at a time. A dataset at which somebody else has the
turn just now is left to the next pass, so that a publication holds nothing up but itself. Used by
`common.store.master.holds`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from sqlalchemy import Connection, delete, exists, select

from common.model.failures import FailureReason
from common.model.intervals import IntervalError
from common.model.lock_needs import LockNeed, group_of_run, request_of
from common.model.locks import Busy, Impossible, LockRequest, LockType, NotShared, Revoked
from common.model.states import LIVE_TASK_STATES
from common.store.master.pool_grants import Fault
from common.store.streams.datasets import try_turns
from common.store.streams.locks import request_locks
from common.store.tables import task_instance, task_lock_request
from common.store.transaction import AnyRow, StoreConflictError, any_of

_DEAD: Final = (
    delete(task_lock_request)
    .where(
        ~exists()
        .where(task_instance.c.id == task_lock_request.c.task_id)
        .where(task_instance.c.state.in_(LIVE_TASK_STATES))
    )
    .cte("dead")
)
_NEEDS: Final = (
    select(
        task_lock_request.c.task_id,
        task_lock_request.c.dataset,
        task_lock_request.c.interval,
        task_lock_request.c.type,
        task_lock_request.c.priority,
    )
    .where(task_lock_request.c.task_id == any_of("ids"))
    .order_by(task_lock_request.c.task_id, task_lock_request.c.id)
    .add_cte(_DEAD)
)
_FULFILLED: Final = delete(task_lock_request).where(task_lock_request.c.task_id == any_of("ids"))

Needs = Mapping[int, tuple[LockNeed, ...]]


@dataclass(slots=True)
class LockAnswers:
    """The attempts that go on waiting for locks, and those that can never have theirs.

    `again`: some datasets could not be asked for, and have to be soon.
    """

    waiting: set[int] = field(default_factory=set)
    failed: dict[int, Fault] = field(default_factory=dict)
    again: bool = False


def needs_of(db: Connection, ids: Collection[int]) -> Needs:
    """Return the locks that these attempts wait for, and remove what ended ones waited for."""
    if not ids:
        return {}
    found: dict[int, tuple[LockNeed, ...]] = {}
    for row in db.execute(_NEEDS, {"ids": list(ids)}):
        need = LockNeed(
            dataset=row.dataset,
            interval=row.interval,
            type=LockType(row.type),
            priority=row.priority,
        )
        found[row.task_id] = (*found.get(row.task_id, ()), need)
    return found


def out_of_reach(db: Connection, rows: Iterable[AnyRow], needs: Needs) -> frozenset[int]:
    """Return those that could not have their locks now, so that no slots are kept for them."""
    wanting = [row for row in rows if row.id in needs]
    answers = LockAnswers()
    for row, requests in _askable(db, wanting, needs, answers):
        # What would be granted is taken back: there may be no slots.
        trial = db.begin_nested()
        granted = request_locks(db, row.id, requests)
        trial.rollback()
        if isinstance(granted, Busy | Revoked):
            answers.waiting.add(row.id)
    return frozenset(answers.waiting)


def get_locks(db: Connection, rows: Iterable[AnyRow], needs: Needs) -> LockAnswers:
    """Get the locks of these attempts, of which nothing else keeps any from beginning."""
    answers = LockAnswers()
    fulfilled: list[int] = []
    wanting = sorted(
        (row for row in rows if row.id in needs),
        key=lambda row: (row.process_instance_priority, row.yields, row.id),
    )
    for row, requests in _askable(db, wanting, needs, answers):
        granted = request_locks(db, row.id, requests)
        match granted:
            case Busy() | Revoked():
                answers.waiting.add(row.id)
            case NotShared(reason=reason):
                answers.failed[row.id] = Fault(f"locks: {reason}", FailureReason.NOT_GRANTED)
            case Impossible(reason=reason):
                answers.failed[row.id] = Fault(f"locks: {reason}")
            case tuple():
                fulfilled.append(row.id)
            case _:
                assert_never(granted)
    if fulfilled:
        removed = db.execute(_FULFILLED, {"ids": fulfilled}).rowcount
        if removed != sum(len(needs[task_id]) for task_id in fulfilled):
            raise StoreConflictError("the needs for locks have changed meanwhile")
    return answers


def _askable(
    db: Connection, rows: Sequence[AnyRow], needs: Needs, answers: LockAnswers
) -> list[tuple[AnyRow, tuple[LockRequest, ...]]]:
    """Return the requests of those whose datasets can be asked now, and answer the others."""
    asked: list[tuple[AnyRow, tuple[LockRequest, ...]]] = []
    for row in rows:
        group = group_of_run(row.process_instance_id)
        try:
            asked.append((row, tuple(request_of(need, group) for need in needs[row.id])))
        except IntervalError as error:
            answers.failed[row.id] = Fault(f"locks: {error}")
    ours = try_turns(db, {request.dataset for _, each in asked for request in each})
    here = [(row, each) for row, each in asked if all(one.dataset in ours for one in each)]
    away = {row.id for row, _ in asked} - {row.id for row, _ in here}
    answers.waiting |= away
    answers.again |= bool(away)
    return here
