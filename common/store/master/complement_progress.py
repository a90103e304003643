"""Advances complements: settles dates whose runs have ended, and begins the next ones.

The decider that is passed in decides; counts and writes happen here, under the lock of the
complement's row. The command of a date and the date's row are written together, and a date becomes
RUNNING in the transaction that makes its process instance, so the next pass repairs whatever a dead
master left.

A date is *lost* if its command is gone without a process instance, and *withdrawn* if its command
is deleted before a master took it. Lock order: process instances before a complement, so intents
for instances are written in a transaction of their own. Used by the complement loop of a master.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import DBAPIError

from common.errors import ServiceUnreachableError
from common.model.commands import CommandType
from common.model.complement_states import ComplementState, DateState, OnFailure
from common.model.complements import ComplementDecider, ComplementSnapshot, ComplementStep
from common.model.date_rules import DateRule
from common.model.states import LIVE_PROCESS_CODES, LIVE_PROCESS_STATES, ProcessState
from common.store.complements import date_command_param
from common.store.master.ledger import withdrawn
from common.store.master.ports import ComplementStore, Progressed
from common.store.master.serial import IS_STOPPABLE, want_stopped
from common.store.tables import (
    command,
    complement,
    complement_date,
    error_command,
    process_instance,
)
from common.store.transaction import (
    LOCK_NOT_AVAILABLE,
    AnyRow,
    repeatable,
    storable,
    transaction,
)

log = logging.getLogger(__name__)

_MOMENT: Final = DateTime(timezone=True)
_MOVING: Final = (
    ComplementState.SUBMITTED,
    ComplementState.RUNNING,
    ComplementState.READY_PAUSE,
    ComplementState.READY_STOP,
)
_WINDING_DOWN: Final = (ComplementState.READY_PAUSE, ComplementState.READY_STOP)
# A statement has a time limit, which a million dates would reach.
_CHUNK: Final = 50_000
# Dates are counted only so far, unless the complement ends and its message has the number: no more
# than a thousand ever begin at once.
_COUNTED: Final = 2_000
_RUN: Final = process_instance.alias("run")

_OWN: Final = complement_date.c.complement_id == bindparam("which", type_=Integer)
_NOW: Final = bindparam("now", type_=_MOMENT)
_FORMER: Final = complement.alias("former")
_LOOKED_AT: Final = complement_date.alias("looked_at")
_IS_LOOKED_AT: Final = _LOOKED_AT.c.complement_id == bindparam("which", type_=Integer)

_IS_LIVE: Final = _RUN.c.state.in_(LIVE_PROCESS_CODES)


def _has_ended(state: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition that a run has ended; a paused one has only if its complement is to end."""
    is_over = ~_IS_LIVE & or_(
        _RUN.c.state != ProcessState.PAUSE, state == ComplementState.READY_STOP
    )
    return or_(_RUN.c.id.is_(None), is_over)


_SEEN_STATE: Final = bindparam("seen_state", type_=Integer)
# The cancellation has stopped or kept these runs: their dates did not fail.
_IS_CANCELLED: Final = and_(
    _SEEN_STATE == ComplementState.READY_STOP,
    _RUN.c.state.in_((ProcessState.STOP, ProcessState.PAUSE)),
)
_HOW_ENDED: Final = case((_RUN.c.state == ProcessState.STOP, " was stopped"), else_=" failed")
_ENDED: Final = (
    select(
        _LOOKED_AT.c.id,
        case(
            (_RUN.c.state == ProcessState.SUCCESS, DateState.SUCCESS.value),
            (_IS_CANCELLED, DateState.CANCELLED.value),
            else_=DateState.FAILURE.value,
        ).label("state"),
        case(
            (_RUN.c.id.is_(None), "its process instance is gone"),
            (_RUN.c.state == ProcessState.SUCCESS, null()),
            (
                _RUN.c.state == ProcessState.PAUSE,
                func.concat(
                    "process instance ",
                    _RUN.c.id,
                    " was paused when the complement was cancelled",
                ),
            ),
            (func.coalesce(_RUN.c.state_reason, "") != "", _RUN.c.state_reason),
            else_=func.concat("process instance ", _RUN.c.id, _HOW_ENDED),
        ).label("reason"),
    )
    .outerjoin_from(_LOOKED_AT, _RUN, _RUN.c.id == _LOOKED_AT.c.process_instance_id)
    .where(_IS_LOOKED_AT)
    .where(_LOOKED_AT.c.state == DateState.RUNNING)
    .where(_has_ended(_SEEN_STATE))
    .subquery("ended")
)
_SETTLE: Final = (
    update(complement_date)
    .where(complement_date.c.id == _ENDED.c.id)
    .where(complement_date.c.state == DateState.RUNNING)
    .values(state=_ENDED.c.state, reason=_ENDED.c.reason, update_time=_NOW)
)
_IS_RECOVERED: Final = or_(_IS_LIVE, _RUN.c.state == ProcessState.SUCCESS)
_RECOVERED: Final = (
    select(
        _LOOKED_AT.c.id,
        case(
            (_RUN.c.state == ProcessState.SUCCESS, DateState.SUCCESS.value),
            else_=DateState.RUNNING.value,
        ).label("state"),
    )
    .join_from(_LOOKED_AT, _RUN, _RUN.c.id == _LOOKED_AT.c.process_instance_id)
    .where(_IS_LOOKED_AT)
    .where(_LOOKED_AT.c.state == DateState.FAILURE)
    .where(_IS_RECOVERED)
    .subquery("recovered")
)
_UNFAIL: Final = (
    update(complement_date)
    .where(complement_date.c.id == _RECOVERED.c.id)
    .where(complement_date.c.state == DateState.FAILURE)
    .values(state=_RECOVERED.c.state, reason=null(), update_time=_NOW)
)

_COMMAND: Final = (
    select(command.c.id)
    .where(command.c.id == _LOOKED_AT.c.command_id)
    .where(command.c.complement_date_id == _LOOKED_AT.c.id)
    .limit(1)
    .correlate(_LOOKED_AT)
    # Looked up for the few dates concerned; as EXISTS it might be made a set of all there are.
    .scalar_subquery()
)
_HAS_NO_COMMAND: Final = _COMMAND.is_(None)
_REFUSAL: Final = (
    select(func.coalesce(error_command.c.message, "its command was rejected"))
    .where(error_command.c.command_id == _LOOKED_AT.c.command_id)
    .order_by(error_command.c.id.desc())
    .limit(1)
    .correlate(_LOOKED_AT)
    .scalar_subquery()
)
_LOST: Final = (
    select(_LOOKED_AT.c.id, _REFUSAL.label("refusal"))
    .where(_IS_LOOKED_AT)
    .where(_LOOKED_AT.c.state == DateState.SUBMITTED)
    .where(_HAS_NO_COMMAND)
    .subquery("lost")
)
_FIND: Final = (
    update(complement_date)
    .where(complement_date.c.id == _LOST.c.id)
    .where(complement_date.c.state == DateState.SUBMITTED)
    .values(
        state=case(
            (_LOST.c.refusal.is_(None), DateState.PENDING.value), else_=DateState.FAILURE.value
        ),
        command_id=case((_LOST.c.refusal.is_(None), 0), else_=complement_date.c.command_id),
        process_instance_id=0,
        reason=_LOST.c.refusal,
        update_time=_NOW,
    )
)

# Those that a master has in hand are passed over: their dates begin, or are lost, in a moment.
_FREE: Final = (
    select(command.c.id, command.c.complement_date_id)
    .join_from(_LOOKED_AT, command, command.c.id == _LOOKED_AT.c.command_id)
    .where(_IS_LOOKED_AT)
    .where(_LOOKED_AT.c.state == DateState.SUBMITTED)
    .where(command.c.complement_date_id == _LOOKED_AT.c.id)
    .order_by(command.c.id)
    .with_for_update(of=command, skip_locked=True)
    .cte("free")
)
_DELETED, _ENTERED = withdrawn(_FREE)
_WITHDRAW: Final = (
    update(complement_date)
    .add_cte(_ENTERED)
    .where(complement_date.c.id == _DELETED.c.complement_date_id)
    .where(complement_date.c.state == DateState.SUBMITTED)
    .values(state=DateState.PENDING.value, command_id=0, process_instance_id=0, update_time=_NOW)
)


def _number(*states: DateState) -> ColumnElement[int]:
    some = (
        select(literal(1))
        .select_from(complement_date)
        .where(complement_date.c.complement_id == complement.c.id)
        .where(complement_date.c.state.in_(states))
        # Said so that the index is used, and nobody walks through all that have ended.
        .order_by(complement_date.c.position)
        .limit(bindparam("counted", type_=BigInteger))
        .correlate(complement)
        .subquery()
    )
    return select(func.count()).select_from(some).scalar_subquery()


_IS_MOVING: Final = complement.c.state.in_(_MOVING)
_IS_FAILED: Final = complement.c.state == ComplementState.FAILURE
_SIGHTS: Final = select(
    complement.c.id,
    complement.c.state,
    complement.c.parallelism,
    complement.c.on_failure,
    complement.c.after_id,
    _FORMER.c.state.label("after_state"),
    _number(DateState.PENDING).label("pending"),
    _number(DateState.SUBMITTED, DateState.RUNNING).label("live"),
    _number(DateState.FAILURE).label("failed"),
    _number(DateState.CANCELLED).label("cancelled"),
).outerjoin_from(
    complement, _FORMER, (_FORMER.c.id == complement.c.after_id) & (complement.c.after_id != 0)
)
_SIGHT: Final = _SIGHTS.where(complement.c.id == bindparam("which", type_=Integer))

_DATES_OF: Final = _LOOKED_AT.c.complement_id == complement.c.id
_SOME_RUN_ENDED: Final = (
    select(literal(1))
    .outerjoin_from(_LOOKED_AT, _RUN, _RUN.c.id == _LOOKED_AT.c.process_instance_id)
    .where(_DATES_OF)
    .where(_LOOKED_AT.c.state == DateState.RUNNING)
    .where(_has_ended(complement.c.state))
    .correlate(complement)
    .exists()
)
_SOME_LOST: Final = (
    select(literal(1))
    .select_from(_LOOKED_AT)
    .where(_DATES_OF)
    .where(_LOOKED_AT.c.state == DateState.SUBMITTED)
    .where(or_(complement.c.state.in_(_WINDING_DOWN), _HAS_NO_COMMAND))
    .correlate(complement)
    .exists()
)
_SOME_RECOVERED: Final = (
    select(literal(1))
    .join_from(_LOOKED_AT, _RUN, _RUN.c.id == _LOOKED_AT.c.process_instance_id)
    .where(_DATES_OF)
    .where(_LOOKED_AT.c.state == DateState.FAILURE)
    .where(_IS_RECOVERED)
    .correlate(complement)
    .exists()
)
# It failed only since the one before it did, which is a success by now: a master died, or its row
# was locked, as that came about.
_MAY_FOLLOW: Final = and_(
    _FORMER.c.state == ComplementState.SUCCESS,
    select(literal(1))
    .select_from(_LOOKED_AT)
    .where(_DATES_OF)
    .where(_LOOKED_AT.c.state == DateState.PENDING)
    .correlate(complement)
    .exists(),
    ~(
        select(literal(1))
        .select_from(_LOOKED_AT)
        .where(_DATES_OF)
        .where(_LOOKED_AT.c.state == DateState.FAILURE)
        .correlate(complement)
        .exists()
    ),
)
# All that are to be looked at, and whether the dates of each have to be settled first.
_LOOK: Final = (
    _SIGHTS.add_columns(or_(_SOME_RUN_ENDED, _SOME_LOST).label("unsettled"))
    .where(_IS_MOVING)
    .order_by(complement.c.id)
)
_THOROUGH_LOOK: Final = (
    _SIGHTS.add_columns(
        or_(_IS_FAILED, _SOME_RUN_ENDED, _SOME_LOST, _SOME_RECOVERED).label("unsettled")
    )
    .where(or_(_IS_MOVING, _IS_FAILED & or_(_SOME_RECOVERED, _MAY_FOLLOW)))
    .order_by(complement.c.id)
)
_FOLLOWERS: Final = (
    select(complement.c.id)
    .where(complement.c.after_id == bindparam("which", type_=Integer))
    # Said so that the index of these is used, which leaves the others out.
    .where(complement.c.after_id != 0)
    # One that failed because the former one did goes on if that is a success after all.
    .where(complement.c.state.in_((ComplementState.SUBMITTED, ComplementState.FAILURE)))
    .order_by(complement.c.id)
)
_LOCK: Final = (
    select(
        complement.c.id,
        complement.c.state,
        complement.c.timezone_id,
        complement.c.start_node_names,
        complement.c.start_params,
        complement.c.environment_code,
        complement.c.date_rule,
    )
    .where(complement.c.id == bindparam("which", type_=Integer))
    .where(or_(_IS_MOVING, _IS_FAILED))
    .with_for_update(key_share=True, skip_locked=True)
)
_STILL_MOVING: Final = select(exists().where(_IS_MOVING))

_NEXT: Final = (
    select(complement_date.c.id, complement_date.c.position, complement_date.c.schedule_time)
    .where(_OWN)
    .where(complement_date.c.state == DateState.PENDING)
    .order_by(complement_date.c.position, complement_date.c.id)
    .limit(bindparam("begin", type_=Integer))
    .with_for_update(key_share=True)
    .cte("next")
)
_COMMAND_COLUMNS: Final = (
    "command_type",
    "process_definition_id",
    "command_param",
    "task_depend_type",
    "failure_strategy",
    "warning_type",
    "warning_group_id",
    "schedule_time",
    "start_time",
    "update_time",
    "executor_id",
    "process_instance_priority",
    "worker_group_id",
    "complement_date_id",
)
_PUT: Final = (
    insert(command)
    .from_select(
        _COMMAND_COLUMNS,
        select(
            literal(int(CommandType.COMPLEMENT_DATA)),
            complement.c.process_definition_id,
            bindparam("param", type_=Text),
            complement.c.task_depend_type,
            complement.c.failure_strategy,
            complement.c.warning_type,
            complement.c.warning_group_id,
            _NEXT.c.schedule_time,
            _NOW,
            _NOW,
            complement.c.executor_id,
            complement.c.process_instance_priority,
            complement.c.worker_group_id,
            _NEXT.c.id,
        )
        .join_from(_NEXT, complement, true())
        .where(complement.c.id == bindparam("which", type_=Integer))
        .order_by(_NEXT.c.position, _NEXT.c.id),
    )
    .returning(command.c.id, command.c.complement_date_id)
    .cte("put")
)
_BEGIN: Final = (
    update(complement_date)
    .where(complement_date.c.id == _PUT.c.complement_date_id)
    .values(
        state=DateState.SUBMITTED.value,
        command_id=_PUT.c.id,
        process_instance_id=0,
        reason=null(),
        update_time=_NOW,
    )
)
_CHANGE: Final = (
    update(complement)
    .where(complement.c.id == bindparam("which", type_=Integer))
    .values(
        state=bindparam("new_state", type_=Integer),
        state_reason=bindparam("why", type_=Text),
        end_time=bindparam("ended_at", type_=_MOMENT),
        update_time=_NOW,
    )
)
_PENDING_PLACES: Final = (
    select(func.min(complement_date.c.position), func.max(complement_date.c.position))
    .where(_OWN)
    .where(complement_date.c.state == DateState.PENDING)
)
_CANCEL: Final = (
    update(complement_date)
    .where(_OWN)
    .where(complement_date.c.state == DateState.PENDING)
    .where(complement_date.c.position.between(bindparam("first"), bindparam("last")))
    .values(state=DateState.CANCELLED.value, update_time=_NOW)
)

# Asked of all complements at once, for those that are not being stopped already.
_TO_STOP: Final = (
    select(process_instance.c.id, complement.c.id.label("complement_id"))
    .select_from(complement)
    .join(complement_date, complement_date.c.complement_id == complement.c.id)
    .join(process_instance, process_instance.c.id == complement_date.c.process_instance_id)
    .where(complement.c.state == ComplementState.READY_STOP)
    .where(complement_date.c.state == DateState.RUNNING)
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    .where(IS_STOPPABLE)
)


class PostgresComplementStore(ComplementStore):
    """`ComplementStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def advance(self, *, decide: ComplementDecider, now: datetime, thorough: bool) -> Progressed:
        look = _THOROUGH_LOOK if thorough else _LOOK
        found = repeatable(self._engine, lambda db: db.execute(look, {"counted": _COUNTED}).all())
        if any(row.state == ComplementState.READY_STOP for row in found):
            self._stop_runs(now)
        # Mostly there is nothing to do, and what is needs no lock to be seen.
        line = deque(row.id for row in found if row.unsettled or _is_due(row, decide))
        if not line:
            return Progressed(begun=0, moving=bool(found))
        begun = 0
        while line:
            moved = self._move_on(line.popleft(), decide, now, thorough=thorough)
            begun += moved.begun
            line.extend(each for each in moved.followers if each not in line)
        moving = repeatable(self._engine, lambda db: bool(db.scalar(_STILL_MOVING)))
        return Progressed(begun=begun, moving=moving)

    def _stop_runs(self, now: datetime) -> None:
        """Request a stop of the runs of complements that are being cancelled."""
        rows = repeatable(self._engine, lambda db: db.execute(_TO_STOP).all())
        if rows:
            reasons = {row.id: f"complement {row.complement_id} was cancelled" for row in rows}
            with transaction(self._engine) as db:
                want_stopped(db, reasons, now=now)

    def _move_on(
        self, complement_id: int, decide: ComplementDecider, now: datetime, *, thorough: bool
    ) -> _Moved:
        """Advance one complement in a transaction of its own, whose failure delays no other."""
        extra = {"complement_id": complement_id}
        try:
            with transaction(self._engine) as db:
                return _move_on(db, complement_id, decide, now, thorough=thorough)
        except ServiceUnreachableError as error:
            if not _stayed_locked(error):
                raise
            log.warning("dates of a complement stayed locked", extra=extra)
        except (DBAPIError, ValueError):
            # Somebody has spoilt its rows.
            log.exception("complement could not be moved on", extra=extra)
        return _Moved()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """The number of dates begun, and the complements that waited for the end of this one.

    The second are empty unless it has ended just now.
    """

    begun: int = 0
    followers: Sequence[int] = ()


def _move_on(
    db: Connection, complement_id: int, decide: ComplementDecider, now: datetime, *, thorough: bool
) -> _Moved:
    which = {"which": complement_id}
    row = db.execute(_LOCK, which).first()
    if row is None:
        return _Moved()
    at = which | {"now": now}
    if thorough:
        db.execute(_UNFAIL, at)
    db.execute(_SETTLE, at | {"seen_state": row.state})
    db.execute(_FIND, at)
    if row.state in _WINDING_DOWN:
        db.execute(_WITHDRAW, at)
    step = _decided(db, complement_id, decide)
    if step.begin:
        param = date_command_param(
            row.timezone_id,
            row.start_node_names,
            row.start_params,
            row.environment_code,
            DateRule(row.date_rule),
        )
        begun = db.execute(_BEGIN, at | {"begin": step.begin, "param": param}).rowcount
    else:
        begun = 0
    if step.state == row.state:
        return _Moved(begun=begun)
    if step.state is ComplementState.STOP:
        _cancel_pending(db, at)
    ended = step.state.is_ended
    db.execute(
        _CHANGE,
        at
        | {
            "new_state": int(step.state),
            "why": None if step.reason is None else storable(step.reason),
            "ended_at": now if ended else None,
        },
    )
    followers = db.scalars(_FOLLOWERS, which).all() if ended else ()
    return _Moved(begun=begun, followers=followers)


def _cancel_pending(db: Connection, at: dict[str, Any]) -> None:
    first, last = db.execute(_PENDING_PLACES, at).one()
    if first is None:
        return
    for start in range(first, last + 1, _CHUNK):
        db.execute(_CANCEL, at | {"first": start, "last": start + _CHUNK - 1})


def _stayed_locked(error: ServiceUnreachableError) -> bool:
    cause = error.__cause__
    return isinstance(cause, DBAPIError) and (
        getattr(cause.orig, "pgcode", None) == LOCK_NOT_AVAILABLE
    )


def _is_due(row: AnyRow, decide: ComplementDecider) -> bool:
    """Return True if a complement with no unsettled date can change as it stands."""
    try:
        step = decide(_snapshot(row))
    except ValueError:
        # Told of where it holds up no other.
        return True
    return step.begin > 0 or step.state != row.state


def _decided(db: Connection, complement_id: int, decide: ComplementDecider) -> ComplementStep:
    step = decide(_sight(db, complement_id, counted=_COUNTED))
    if not step.state.is_ended:
        return step
    # The message then has the number of dates not begun, so all of them are counted.
    return decide(_sight(db, complement_id, counted=None))


def _sight(db: Connection, complement_id: int, *, counted: int | None) -> ComplementSnapshot:
    return _snapshot(db.execute(_SIGHT, {"which": complement_id, "counted": counted}).one())


def _snapshot(row: AnyRow) -> ComplementSnapshot:
    return ComplementSnapshot(
        id=row.id,
        state=ComplementState(row.state),
        parallelism=row.parallelism,
        on_failure=OnFailure(row.on_failure),
        pending=row.pending,
        live=row.live,
        failed=row.failed,
        cancelled=row.cancelled,
        after_id=row.after_id,
        after_state=None if row.after_state is None else ComplementState(row.after_state),
    )
