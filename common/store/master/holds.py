"""Releases held attempts, which wait for a delay, slots or locks, and runs in line.

A run is *in line* while others of its serial definition go first.

Any master does this for all owners, one at a time: a lock of its own ensures that two masters never
release more than fits. Slots in use are never counted up and down but derived from the live
attempts, so that none can leak. Used by the hold loop of a master.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    DateTime,
    Engine,
    Integer,
    Text,
    all_,
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
    true,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert

from common.model.cluster import QueueEntry
from common.model.command_param import ParamKey
from common.model.commands import OWN_RECOVERIES, CommandType
from common.model.states import (
    HELD_TASK_STATES,
    LIVE_TASK_STATES,
    ProcessState,
    TaskState,
)
from common.model.worker_needs import UNASSIGNED
from common.store.fixed_statement import FixedStatement
from common.store.master.attempts import Place, queue_entries
from common.store.master.endings import give_up_promises
from common.store.master.held_locks import get_locks, needs_of, out_of_reach
from common.store.master.pool_grants import IS_GRANTED, Fault, no_pool
from common.store.master.ports import HoldStore, Released
from common.store.master.recoveries import BEGUN
from common.store.master.serial import ended_waiting, is_serial_no_more, lock_definitions
from common.store.queue_entries import IS_COMPLEMENT, effective_group
from common.store.tables import (
    OWN_RECOVERY,
    command,
    process_instance,
    task_group,
    task_group_queue,
    task_instance,
    task_lock_request,
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
_ANYTHING: Final = FixedStatement(
    select(
        or_(
            exists().where(task_instance.c.state.in_(HELD_TASK_STATES)),
            exists().where(task_group_queue.c.status == _WAITING),
            exists().where(task_group_queue.c.status == _TAKEN),
            exists().where(process_instance.c.state == ProcessState.SERIAL_WAIT),
        )
    ),
    prepared=True,
)

_NOW: Final = bindparam("now", type_=DateTime(timezone=True))
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
    .values(**ended_waiting(_NOW), update_time=_NOW)
    .returning(process_instance.c.id)
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
_HELD_COLUMNS: Final = (
    task_instance.c.id,
    task_instance.c.state,
    task_instance.c.process_instance_id,
    task_instance.c.task_instance_priority,
    task_instance.c.worker_group_id,
    task_instance.c.host,
    process_instance.c.process_instance_priority,
    process_instance.c.worker_group_id.label("process_group_id"),
    IS_COMPLEMENT.label("yields"),
)
# Not by the bare id: in its order all that have ended would be looked at for the few that are held.
_HELD_PLACE: Final = task_instance.c.id + 0
_HELD: Final = (
    select(*_HELD_COLUMNS)
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(_IS_HELD)
    .where(process_instance.c.state.in_(BEGUN))
    .order_by(_HELD_PLACE)
    .limit(_CHUNK)
)
# Those that wait for locks, of whatever else they wait for.
_LOCKING_AFTER: Final = (
    _HELD.where(task_instance.c.state == TaskState.WAITING_DEPEND)
    .where(bindparam("after") < _HELD_PLACE)
    .where(exists().where(task_lock_request.c.task_id == task_instance.c.id))
)
_DUE: Final = _HELD.where(task_instance.c.state == TaskState.DELAY_EXECUTION).where(
    or_(task_instance.c.due_at.is_(None), task_instance.c.due_at <= bindparam("now"))
)
_HELD_AFTER: Final = _HELD.where(task_instance.c.state == TaskState.WAITING_DEPEND).where(
    bindparam("after") < _HELD_PLACE
)
_IN_LINE: Final = (
    select(task_group_queue.c.task_id)
    .distinct()
    .where(task_group_queue.c.task_id == any_of("ids"))
    .where(task_group_queue.c.status == _WAITING)
)
# `due`: attempts whose delay is over just now.
_IS_CANDIDATE: Final = and_(
    or_(
        task_instance.c.state == TaskState.WAITING_DEPEND,
        and_(
            task_instance.c.state == TaskState.DELAY_EXECUTION, task_instance.c.id == any_of("due")
        ),
    ),
    task_instance.c.flag == 1,
    process_instance.c.state.in_(BEGUN),
)
# Only those that want an open pool: of all others nothing can come, and they may be very many.
_ASKING: Final = (
    select(task_group_queue.c.task_id, func.max(task_group_queue.c.priority).label("priority"))
    .where(task_group_queue.c.status == _WAITING)
    .group_by(task_group_queue.c.task_id)
    .having(func.bool_or(task_group_queue.c.group_id == any_of("open")))
    .subquery("asking")
)
# Looked up one by one: PostgreSQL has no idea how many wait after a burst, and a wrong guess would
# have it read all attempts that ever were. The offset keeps it from joining them otherwise.
_ELIGIBLE: Final = (
    select(*_HELD_COLUMNS)
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(_IS_CANDIDATE)
    .where(task_instance.c.id == _ASKING.c.task_id)
    .offset(0)
    .correlate(_ASKING)
    .lateral("eligible")
)
_LINE: Final = (
    select(*_ELIGIBLE.c)
    .select_from(_ASKING)
    .join(_ELIGIBLE, true())
    .where(_ASKING.c.task_id != all_(cast(bindparam("judged"), ARRAY(Integer))))
    .order_by(
        _ELIGIBLE.c.process_instance_priority,
        _ELIGIBLE.c.yields,
        _ASKING.c.priority.desc(),
        _ELIGIBLE.c.id,
    )
    .limit(_CHUNK)
)
_HOPELESS: Final = (
    select(
        task_group_queue.c.task_id,
        task_group_queue.c.group_id,
        task_group_queue.c.group_name,
        task_group_queue.c.weight,
    )
    .outerjoin_from(task_group_queue, task_group, task_group.c.id == task_group_queue.c.group_id)
    .join(
        select(task_instance.c.id)
        .join_from(
            task_instance,
            process_instance,
            process_instance.c.id == task_instance.c.process_instance_id,
        )
        .where(_IS_CANDIDATE)
        .where(task_instance.c.id == task_group_queue.c.task_id)
        .offset(0)
        .correlate(task_group_queue)
        .lateral("candidate"),
        true(),
    )
    .where(task_group_queue.c.status == _WAITING)
    .where(or_(task_group.c.id.is_(None), task_group_queue.c.weight > task_group.c.group_size))
    .order_by(task_group_queue.c.task_id, task_group_queue.c.id)
    .limit(_CHUNK)
)
_SHARES: Final = (
    select(
        task_group_queue.c.task_id,
        task_group_queue.c.group_id,
        task_group_queue.c.group_name,
        task_group_queue.c.weight,
        IS_GRANTED.label("is_granted"),
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

_MOVED: Final = unnested("moved", id=Integer, state=Integer, reason=Text, failure=Text)
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
            (_MOVED.c.state == TaskState.FAILURE, _MOVED.c.failure),
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

    let_go: dict[int, AnyRow] = field(default_factory=dict)
    failed: dict[int, Fault] = field(default_factory=dict)


class PostgresHoldStore(HoldStore):
    """`HoldStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # The last attempt of the page whose places in line were checked; 0 after the last page.
        self._checked = 0
        self._asked_locks = 0

    def release(self, *, now: datetime) -> Released:
        ((is_anything,),) = repeatable(self._engine, lambda db: _ANYTHING.rows_alone(db, {}))
        if not is_anything:
            return Released(offers=(), instances=0, next_due=None)
        with transaction(self._engine) as db:
            db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _RELEASE_LOCK})
            # Instances are locked first, then attempts, then definitions: as in a `take`.
            if stopped := db.scalars(_END_STOPPED, {"now": now}).all():
                give_up_promises(db, stopped)
            db.execute(_SWEEP, {"now": now})
            due = db.execute(_DUE, {"now": now}).all()
            held = db.execute(_HELD_AFTER, {"after": self._checked}).all()
            locking = db.execute(_LOCKING_AFTER, {"after": self._asked_locks}).all()
            offers, asks, again = _release_attempts(db, due, [*held, *locking], now)
            is_soon = again or len(due) == _CHUNK
            next_due = now if is_soon else db.scalar(_NEXT_DUE, {"now": now})
            instances = _release_instances(db, now)
        self._checked = held[-1].id if len(held) == _CHUNK else 0
        self._asked_locks = locking[-1].id if len(locking) == _CHUNK else 0
        return Released(offers=tuple(offers), instances=instances, next_due=next_due, asks=asks)


def _release_attempts(
    db: Connection, due: Sequence[AnyRow], held: Sequence[AnyRow], now: datetime
) -> tuple[list[QueueEntry], bool, bool]:
    """Submit what nothing holds any more; return what to offer.

    And whether some ask for a worker first, and whether some locks must be asked for soon.
    That is what its pools have room for, and of the pages `due` (their delay is over) and `held`
    (they wait for slots or locks) what stands in no line, if it gets its locks. One that waited for
    slots alone is in no line if somebody has deleted its rows there.
    """
    either = {row.id: row for row in (*due, *held)}
    in_line = frozenset(db.scalars(_IN_LINE, {"ids": list(either)})) if either else frozenset()
    free = {task_id: row for task_id, row in either.items() if task_id not in in_line}
    put_in_line = [row.id for row in due if row.id in in_line]
    needs = needs_of(db, list(either))
    both = [row for row in either.values() if row.id in in_line]
    verdicts = _judge_line(db, put_in_line, without=out_of_reach(db, both, needs))
    if verdicts.let_go:
        needs = {**needs, **needs_of(db, list(verdicts.let_go))}
    locks = get_locks(db, (*free.values(), *verdicts.let_go.values()), needs)
    for task_id in (*locks.waiting, *locks.failed):
        free.pop(task_id, None)
        verdicts.let_go.pop(task_id, None)
    verdicts.failed.update(locks.failed)
    moves = dict.fromkeys((*put_in_line, *(row.id for row in due)), TaskState.WAITING_DEPEND)
    moves |= dict.fromkeys((*free, *verdicts.let_go), TaskState.SUBMITTED)
    moves |= dict.fromkeys(verdicts.failed, TaskState.FAILURE)
    moved = _move(db, moves, verdicts.failed, now)
    took = [task_id for task_id in verdicts.let_go if task_id in moved]
    if took:
        db.execute(_TAKE_SLOTS, {"ids": took, "now": now})
    released = free | verdicts.let_go
    gone = {task_id: row for task_id, row in released.items() if task_id in moved}
    offered = {task_id: _place(row) for task_id, row in gone.items() if row.host != UNASSIGNED}
    entries = queue_entries(db, [offered])[0] if offered else []
    return entries, len(offered) < len(gone), locks.again


def _judge_line(db: Connection, due: Sequence[int], *, without: Collection[int]) -> _Verdicts:
    """Judge the line a few at a time: mostly the first ones take all the slots.

    Those in `without` go on waiting for something else, and no slots are kept for them.
    """
    verdicts = _Verdicts()
    pools = _pools(db)
    for share in db.execute(_HOPELESS, {"due": due}):
        # Grants are checked when the attempt's turn comes, because very many attempts may wait.
        is_asked = share.group_id in pools
        fault = _fault(share, pools, is_granted=True) if is_asked else None
        if fault is not None:
            verdicts.failed.setdefault(share.task_id, fault)
    judged = [*verdicts.failed, *without]
    while still_open := [pool_id for pool_id, pool in pools.items() if pool and pool.is_open]:
        chunk = db.execute(_LINE, {"open": still_open, "judged": judged, "due": due}).all()
        shares: dict[int, list[AnyRow]] = {row.id: [] for row in chunk}
        for share in db.execute(_SHARES, {"ids": list(shares)}):
            shares[share.task_id].append(share)
        for row in chunk:
            # One that came after the look at the pools, and wants another, is the next pass's.
            if all(share.group_id in pools for share in shares[row.id]):
                _judge(row, shares[row.id], pools, verdicts)
        judged += shares
        if len(chunk) < _CHUNK:
            break
    return verdicts


def _pools(db: Connection) -> dict[int, _Pool | None]:
    """Read the pools that are asked for now; None stands for one that does not exist."""
    in_use = {row.group_id: row.slots for row in db.execute(_IN_USE)}
    pools: dict[int, _Pool | None] = dict.fromkeys(db.scalars(_ASKED_POOLS))
    for row in db.execute(_POOLS, {"ids": list(pools)}):
        pools[row.id] = _Pool(
            size=row.group_size,
            closed=row.status == _CLOSED,
            free=row.group_size - in_use.get(row.id, 0),
        )
    return pools


def _judge(
    row: AnyRow, wanted: Sequence[AnyRow], pools: Mapping[int, _Pool | None], verdicts: _Verdicts
) -> None:
    faults = (_fault(share, pools, is_granted=share.is_granted) for share in wanted)
    fault = next(filter(None, faults), None)
    if fault is not None:
        verdicts.failed[row.id] = fault
        return
    asked = [(pool, share.weight) for share in wanted if (pool := pools[share.group_id])]
    full = [pool for pool, weight in asked if pool.closed or pool.barred or pool.free < weight]
    if full:
        # All that it wants are kept for it: else its pools might never be free at the same time.
        # Not so for a closed one, of which nobody knows when it opens again.
        is_kept_out = any(pool.closed for pool in full)
        for pool in full if is_kept_out else [pool for pool, _ in asked]:
            pool.barred = True
        return
    for pool, weight in asked:
        pool.free -= weight
    verdicts.let_go[row.id] = row


def _fault(share: AnyRow, pools: Mapping[int, _Pool | None], *, is_granted: bool) -> Fault | None:
    """Return the reason why this attempt can never have its slots; None if it can."""
    name = share.group_name or str(share.group_id)
    pool = pools.get(share.group_id)
    if pool is None or not is_granted:
        return no_pool(name)
    if share.weight > pool.size:
        return Fault(f"pool {name!r} has {pool.size} slots, the task needs {share.weight}")
    return None


def _move(
    db: Connection, moves: Mapping[int, TaskState], faults: Mapping[int, Fault], now: datetime
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
            None if (fault := faults.get(task_id)) is None else storable(fault.reason)
            for task_id in moves
        ],
        "moved_failure": [
            None if (fault := faults.get(task_id)) is None else fault.failure.value
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
