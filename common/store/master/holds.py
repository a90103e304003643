"""Releases held attempts, which wait for a delay or for slots, and runs in line.

A run is *in line* while others of its serial definition go first.

Any master does this for all owners, one at a time: a lock of its own ensures that two masters never
release more than fits. Slots in use are never counted up and down but derived from the live
attempts, so that none can leak. Used by the hold loop of a master.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    DateTime,
    Engine,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from common.model.cluster import QueueEntry
from common.model.command_param import ParamKey
from common.model.commands import OWN_RECOVERIES, CommandType
from common.model.failures import FailureReason
from common.model.states import (
    HELD_TASK_STATES,
    LIVE_TASK_STATES,
    ProcessState,
    TaskState,
)
from common.store.master.attempts import Place, queue_entries
from common.store.master.ports import HoldStore, Released
from common.store.master.recoveries import BEGUN, ENDED_WAITING
from common.store.master.serial import is_serial_no_more, lock_definitions
from common.store.queue_entries import IS_COMPLEMENT, effective_group
from common.store.tables import (
    OWN_RECOVERY,
    command,
    process_instance,
    task_group,
    task_group_queue,
    task_instance,
)
from common.store.transaction import AnyRow, any_of, repeatable, storable, transaction, unnested

# Any number will do that nobody else takes; it is held until the transaction ends.
_RELEASE_LOCK: Final = 0x0CAF_1036

_WAITING: Final = -1
_TAKEN: Final = 1
_RELEASED: Final = 2
_CLOSED: Final = 0
_CHUNK: Final = 500

_IS_HELD: Final = and_(task_instance.c.state.in_(HELD_TASK_STATES), task_instance.c.flag == 1)
# Two conditions, not one of two values: so each finds the partial index that is made for it.
_IS_QUEUED: Final = or_(task_group_queue.c.status == _WAITING, task_group_queue.c.status == _TAKEN)
_ANYTHING: Final = select(
    or_(
        exists().where(task_instance.c.state.in_(HELD_TASK_STATES)),
        exists().where(task_group_queue.c.status == _WAITING),
        exists().where(task_group_queue.c.status == _TAKEN),
        exists().where(process_instance.c.state == ProcessState.SERIAL_WAIT),
    )
)

_STOPPED: Final = (
    select(process_instance.c.id)
    .where(process_instance.c.state == ProcessState.SERIAL_WAIT)
    .where(process_instance.c.wanted_state.in_((ProcessState.STOP, ProcessState.FAILURE)))
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True)
    .cte("stopped")
)
_END_STOPPED: Final = (
    update(process_instance)
    .where(process_instance.c.id == _STOPPED.c.id)
    .where(process_instance.c.state == ProcessState.SERIAL_WAIT)
    .values(
        state=int(ProcessState.STOP),
        end_time=bindparam("now"),
        update_time=bindparam("now"),
        state_reason=ENDED_WAITING,
    )
)

# Compared with the few attempts that are live: those that have ended are all that ever were.
_SWEEP: Final = (
    update(task_group_queue)
    .where(_IS_QUEUED)
    .where(
        ~exists()
        .where(task_instance.c.id == task_group_queue.c.task_id)
        .where(task_instance.c.state.in_(LIVE_TASK_STATES))
    )
    .values(status=_RELEASED, in_queue=0, update_time=bindparam("now"))
)
_ASKED_POOLS: Final = (
    select(task_group_queue.c.group_id).distinct().where(task_group_queue.c.status == _WAITING)
)
# Locked against their removal, as `requests.lock_pool` promises; the size may change meanwhile.
_POOLS: Final = (
    select(task_group.c.id, task_group.c.group_size, task_group.c.status)
    .where(task_group.c.id == any_of("ids"))
    .order_by(task_group.c.id)
    .with_for_update(read=True, key_share=True)
)
_IN_USE: Final = (
    select(task_group_queue.c.group_id, func.sum(task_group_queue.c.weight).label("slots"))
    .join_from(task_group_queue, task_instance, task_instance.c.id == task_group_queue.c.task_id)
    .where(task_group_queue.c.status == _TAKEN)
    .where(task_instance.c.state.in_((TaskState.SUBMITTED, TaskState.RUNNING)))
    .group_by(task_group_queue.c.group_id)
)
_IS_DUE: Final = or_(
    task_instance.c.state == TaskState.WAITING_DEPEND,
    task_instance.c.due_at.is_(None),
    task_instance.c.due_at <= bindparam("now"),
)
# Not joined with the next: both are known by partial indexes, of whose size PostgreSQL has no idea
# after a burst, and a wrong guess would cost seconds.
_HELD: Final = (
    select(
        task_instance.c.id,
        task_instance.c.state,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        task_instance.c.worker_group_id,
        process_instance.c.process_instance_priority,
        process_instance.c.worker_group_id.label("process_group_id"),
        IS_COMPLEMENT.label("yields"),
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(_IS_HELD)
    .where(_IS_DUE)
    .where(process_instance.c.state.in_(BEGUN))
    .order_by(task_instance.c.id)
)
_HIGHEST: Final = (
    select(task_group_queue.c.task_id, func.max(task_group_queue.c.priority).label("priority"))
    .where(task_group_queue.c.status == _WAITING)
    .group_by(task_group_queue.c.task_id)
)
_SHARES: Final = (
    select(
        task_group_queue.c.task_id,
        task_group_queue.c.group_id,
        task_group_queue.c.group_name,
        task_group_queue.c.weight,
    )
    .where(task_group_queue.c.task_id == any_of("ids"))
    .where(task_group_queue.c.status == _WAITING)
    .order_by(task_group_queue.c.id)
)
_NEXT_DUE: Final = (
    select(func.min(task_instance.c.due_at))
    .where(_IS_HELD)
    .where(task_instance.c.state == TaskState.DELAY_EXECUTION)
    .where(task_instance.c.due_at > bindparam("now"))
)

_MOVED: Final = unnested("moved", id=Integer, state=Integer, reason=Text)
# Locked in order of id, as all that lock several attempts do it. One that was withdrawn meanwhile
# is left as it is.
_STILL_HELD: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(_IS_HELD)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True)
    .cte("still_held")
)
_MOVE: Final = (
    update(task_instance)
    .where(task_instance.c.id == _MOVED.c.id)
    .where(task_instance.c.id == _STILL_HELD.c.id)
    .where(_IS_HELD)
    .values(
        state=_MOVED.c.state,
        reason=func.coalesce(_MOVED.c.reason, task_instance.c.reason),
        end_time=case(
            (_MOVED.c.state == TaskState.FAILURE, bindparam("now", type_=DateTime(timezone=True))),
            else_=task_instance.c.end_time,
        ),
        failure_reason=case(
            (_MOVED.c.state == TaskState.FAILURE, FailureReason.CONFIGURATION.value),
            else_=task_instance.c.failure_reason,
        ),
    )
    .returning(task_instance.c.id)
)
_TAKE_SLOTS: Final = (
    update(task_group_queue)
    .where(task_group_queue.c.task_id == any_of("ids"))
    .where(task_group_queue.c.status == _WAITING)
    .values(status=_TAKEN, in_queue=0, update_time=bindparam("now"))
)

_WAITING_RUN: Final = process_instance.alias("waiting_run")
_OTHER: Final = process_instance.alias("other")
_FIRST: Final = (
    select(func.min(_OTHER.c.id))
    .where(_OTHER.c.process_definition_id == _WAITING_RUN.c.process_definition_id)
    .where(_OTHER.c.state == ProcessState.SERIAL_WAIT)
    .scalar_subquery()
)
_RUNNING_OTHER: Final = (
    exists()
    .where(_OTHER.c.process_definition_id == _WAITING_RUN.c.process_definition_id)
    .where(_OTHER.c.is_sub_process == 0)
    .where(_OTHER.c.state.in_(BEGUN))
)
_COMMANDED: Final = (
    exists()
    # Said so that the index of these is used, which leaves the others out.
    .where(command.c.process_instance_id != 0)
    .where(command.c.command_type.in_(OWN_RECOVERIES))
    .where(command.c.process_instance_id == _OTHER.c.id)
    .where(_OTHER.c.process_definition_id == _WAITING_RUN.c.process_definition_id)
    .where(_OTHER.c.state == ProcessState.SERIAL_WAIT)
)
_COMMANDED_ITSELF: Final = (
    exists()
    .where(command.c.process_instance_id != 0)
    .where(command.c.command_type.in_(OWN_RECOVERIES))
    .where(command.c.process_instance_id == _WAITING_RUN.c.id)
)
_IS_ITS_TURN: Final = and_(
    _WAITING_RUN.c.state == ProcessState.SERIAL_WAIT,
    or_(
        and_(_WAITING_RUN.c.id == _FIRST, ~_RUNNING_OTHER, ~_COMMANDED),
        # Nobody is in anybody's way any more: all begin that have waited.
        and_(is_serial_no_more(_WAITING_RUN), ~_COMMANDED_ITSELF),
    ),
)
_FREE_DEFINITIONS: Final = select(_WAITING_RUN.c.process_definition_id).where(_IS_ITS_TURN)
_LET_BEGIN: Final = (
    insert(command)
    .from_select(
        [
            "command_type",
            "process_definition_id",
            "command_param",
            "executor_id",
            "process_instance_priority",
            "process_instance_id",
            "start_time",
            "update_time",
        ],
        select(
            literal(int(CommandType.RECOVER_SERIAL_WAIT)),
            _WAITING_RUN.c.process_definition_id,
            func.concat(f'{{"{ParamKey.PROCESS_INSTANCE_ID}":', cast(_WAITING_RUN.c.id, Text), "}"),
            _WAITING_RUN.c.executor_id,
            _WAITING_RUN.c.process_instance_priority,
            _WAITING_RUN.c.id,
            bindparam("now"),
            bindparam("now"),
        )
        .where(_WAITING_RUN.c.process_definition_id == any_of("ids"))
        .where(_IS_ITS_TURN)
        .order_by(_WAITING_RUN.c.process_definition_id, _WAITING_RUN.c.id),
    )
    .on_conflict_do_nothing(
        index_elements=[command.c.process_instance_id],
        index_where=text(OWN_RECOVERY),
    )
)


@dataclass(slots=True)
class _Pool:
    """A pool, before and after this release."""

    size: int
    closed: bool
    free: int
    barred: bool = False
    """Close the pool: an attempt ahead found no room here or elsewhere, and none may pass it."""

    @property
    def is_open(self) -> bool:
        """Return True if there may be room for an attempt."""
        return not self.closed and not self.barred and self.free > 0


@dataclass(slots=True)
class _Verdicts:
    """The results for attempts that stood in line for slots, by id."""

    let_go: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)


class PostgresHoldStore(HoldStore):
    """`HoldStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def release(self, *, now: datetime) -> Released:
        if not repeatable(self._engine, lambda db: bool(db.scalar(_ANYTHING))):
            return Released(offers=(), instances=0, next_due=None)
        with transaction(self._engine) as db:
            db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _RELEASE_LOCK})
            # Instances are locked first, then attempts, then definitions: as in a `take`.
            db.execute(_END_STOPPED, {"now": now})
            offers = _release_attempts(db, now)
            next_due = db.scalar(_NEXT_DUE, {"now": now})
            instances = _release_instances(db, now)
        return Released(offers=tuple(offers), instances=instances, next_due=next_due)


def _release_attempts(db: Connection, now: datetime) -> list[QueueEntry]:
    db.execute(_SWEEP, {"now": now})
    held = {row.id: row for row in db.execute(_HELD, {"now": now})}
    if not held:
        return []
    highest = {row.task_id: row.priority for row in db.execute(_HIGHEST)}

    def turn(task_id: int) -> tuple[int, bool, int, int]:
        one = held[task_id]
        return one.process_instance_priority, one.yields, -highest[task_id], task_id

    line = sorted((task_id for task_id in held if task_id in highest), key=turn)
    verdicts = _judge_line(db, line)
    states = dict.fromkeys(line, TaskState.WAITING_DEPEND)
    states |= dict.fromkeys(verdicts.let_go, TaskState.SUBMITTED)
    states |= dict.fromkeys(verdicts.failed, TaskState.FAILURE)
    states |= {task_id: TaskState.SUBMITTED for task_id in held if task_id not in highest}
    moves = {task_id: state for task_id, state in states.items() if state != held[task_id].state}
    moved = _move(db, moves, verdicts.failed, now)
    took = [task_id for task_id in verdicts.let_go if task_id in moved]
    if took:
        db.execute(_TAKE_SLOTS, {"ids": took, "now": now})
    offered = {
        task_id: _place(held[task_id])
        for task_id, state in moves.items()
        if state is TaskState.SUBMITTED and task_id in moved
    }
    return queue_entries(db, [offered])[0]


def _judge_line(db: Connection, line: Sequence[int]) -> _Verdicts:
    """Judge the line a few at a time: mostly the first ones take all the slots."""
    verdicts = _Verdicts()
    if not line:
        return verdicts
    pools = _pools(db)
    for start in range(0, len(line), _CHUNK):
        chunk = line[start : start + _CHUNK]
        shares: dict[int, list[AnyRow]] = {task_id: [] for task_id in chunk}
        for share in db.execute(_SHARES, {"ids": chunk}):
            shares[share.task_id].append(share)
        for task_id in chunk:
            _judge(task_id, shares[task_id], pools, verdicts)
        if not any(pool.is_open for pool in pools.values()):
            break
    return verdicts


def _pools(db: Connection) -> dict[int, _Pool]:
    in_use = {row.group_id: row.slots for row in db.execute(_IN_USE)}
    return {
        row.id: _Pool(
            size=row.group_size,
            closed=row.status == _CLOSED,
            free=row.group_size - in_use.get(row.id, 0),
        )
        for row in db.execute(_POOLS, {"ids": list(db.scalars(_ASKED_POOLS))})
    }


def _judge(
    task_id: int, wanted: Sequence[AnyRow], pools: Mapping[int, _Pool], verdicts: _Verdicts
) -> None:
    fault = next(filter(None, (_fault(share, pools) for share in wanted)), None)
    if fault is not None:
        verdicts.failed[task_id] = fault
        return
    full = [
        pool
        for share in wanted
        if (pool := pools[share.group_id]).closed or pool.barred or pool.free < share.weight
    ]
    if full:
        # All that it wants are kept for it: else its pools might never be free at the same time.
        # Not so for a closed one, of which nobody knows when it opens again.
        is_kept_out = any(pool.closed for pool in full)
        for pool in full if is_kept_out else [pools[share.group_id] for share in wanted]:
            pool.barred = True
        return
    for share in wanted:
        pools[share.group_id].free -= share.weight
    verdicts.let_go.append(task_id)


def _fault(share: AnyRow, pools: Mapping[int, _Pool]) -> str | None:
    """Return the reason why this attempt can never have its slots; None if it can."""
    name = repr(share.group_name or str(share.group_id))
    pool = pools.get(share.group_id)
    if pool is None:
        return f"pool {name} does not exist"
    if share.weight > pool.size:
        return f"pool {name} has {pool.size} slots, the task needs {share.weight}"
    return None


def _move(
    db: Connection, moves: Mapping[int, TaskState], reasons: Mapping[int, str], now: datetime
) -> frozenset[int]:
    """Write the new states; return the ids of the attempts that were still held."""
    if not moves:
        return frozenset()
    rows: dict[str, Any] = {
        "ids": list(moves),
        "now": now,
        "moved_id": list(moves),
        "moved_state": [int(state) for state in moves.values()],
        "moved_reason": [
            None if (reason := reasons.get(task_id)) is None else storable(reason)
            for task_id in moves
        ],
    }
    return frozenset(db.scalars(_MOVE, rows))


def _place(row: AnyRow) -> Place:
    return Place(
        process_priority=row.process_instance_priority,
        process_instance_id=row.process_instance_id,
        task_priority=row.task_instance_priority,
        worker_group_id=effective_group(row.worker_group_id, row.process_group_id),
        yields=row.yields,
    )


def _release_instances(db: Connection, now: datetime) -> int:
    free = frozenset(db.scalars(_FREE_DEFINITIONS))
    # Those alone are locked of which a run may begin, as it seems.
    free -= lock_definitions(db, free) if free else frozenset()
    if not free:
        return 0
    # A statement of its own, so that it sees what was committed before the locks were had.
    return db.execute(_LET_BEGIN, {"ids": sorted(free), "now": now}).rowcount
