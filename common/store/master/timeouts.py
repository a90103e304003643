"""Finds process instances and attempts that take too long, and alerts or fails them.

Each once, whoever owns them and however often they are taken over: its flag is set in the
transaction that writes the alert. Attempts on workers are ended by their workers. The report of
such an end writes the alert if this loop has not. Used by the time-out loop of a master.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
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
    or_,
    select,
    text,
    update,
)

from common.model.failures import FailureReason
from common.model.states import (
    LIVE_PROCESS_STATES,
    ProcessState,
    TaskState,
    TimeoutStrategy,
)
from common.store.alerts import (
    WARNING_STRATEGIES,
    alert_of_slow_attempts,
    alert_of_slow_processes,
)
from common.store.fixed_statement import FixedStatement
from common.store.master.ports import TimeoutStore
from common.store.master.submissions import DEPENDENT
from common.store.master.trees import SUB_PROCESS
from common.store.tables import process_instance, relation_process_instance, task_instance
from common.store.transaction import AnyRow, any_of, repeatable, transaction, unnested

_FAILING: Final = (TimeoutStrategy.FAILED, TimeoutStrategy.WARNFAILED)

_NOW: Final = bindparam("now", type_=DateTime(timezone=True))


def _is_past(start: ColumnElement[Any], length: ColumnElement[Any], unit: str) -> Any:
    return start + length * text(f"INTERVAL '1 {unit}'") <= _NOW


# Seconds are compared, not minutes rounded up (trap T46b).
_IS_SLOW_PROCESS: Final = and_(
    process_instance.c.timeout > 0,
    process_instance.c.timeout_flag == 0,
    process_instance.c.state.in_((ProcessState.RUNNING, ProcessState.READY_PAUSE)),
    _is_past(
        func.coalesce(process_instance.c.restart_time, process_instance.c.start_time),
        process_instance.c.timeout,
        "minute",
    ),
)
# Locked in order of id, as all that lock several runs do it.
_SLOW_PROCESSES: Final = (
    select(process_instance.c.id)
    .where(_IS_SLOW_PROCESS)
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True)
    .cte("slow")
)
_IS_TO_FAIL: Final = and_(
    process_instance.c.timeout_strategy.in_(_FAILING),
    or_(
        process_instance.c.wanted_state.is_(None),
        process_instance.c.wanted_state == ProcessState.PAUSE,
    ),
)
_TIME_PROCESSES_OUT: Final = (
    update(process_instance)
    .where(process_instance.c.id == _SLOW_PROCESSES.c.id)
    .where(_IS_SLOW_PROCESS)
    .values(
        timeout_flag=1,
        wanted_state=case(
            (_IS_TO_FAIL, int(ProcessState.FAILURE)), else_=process_instance.c.wanted_state
        ),
        wanted_at=case((_IS_TO_FAIL, _NOW), else_=process_instance.c.wanted_at),
        update_time=_NOW,
    )
    .returning(
        process_instance.c.id,
        process_instance.c.name,
        process_instance.c.warning_group_id,
        process_instance.c.timeout_strategy,
    )
)

_IS_SLOW: Final = and_(
    task_instance.c.state == TaskState.RUNNING,
    task_instance.c.flag == 1,
    task_instance.c.timeout_seconds.is_not(None),
    _is_past(task_instance.c.start_time, task_instance.c.timeout_seconds, "second"),
)
_IS_OF_LIVE_RUN: Final = and_(
    process_instance.c.id == task_instance.c.process_instance_id,
    process_instance.c.state.in_(LIVE_PROCESS_STATES),
)
_IS_TO_WARN_OF: Final = and_(
    _IS_SLOW,
    task_instance.c.alert_flag == 0,
    task_instance.c.timeout_strategy.in_(WARNING_STRATEGIES),
)
_SLOW_ATTEMPTS: Final = (
    select(
        task_instance.c.id,
        task_instance.c.name,
        process_instance.c.name.label("run_name"),
        process_instance.c.warning_group_id,
    )
    .where(_IS_TO_WARN_OF)
    .where(_IS_OF_LIVE_RUN)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True, of=task_instance)
    .cte("slow")
)
_WARN_OF_ATTEMPTS: Final = (
    update(task_instance)
    .where(task_instance.c.id == _SLOW_ATTEMPTS.c.id)
    .where(_IS_TO_WARN_OF)
    .values(alert_flag=1)
    .returning(
        task_instance.c.id,
        task_instance.c.name,
        _SLOW_ATTEMPTS.c.run_name,
        _SLOW_ATTEMPTS.c.warning_group_id,
    )
)

# Only a sub process that is being stopped for this has a reason while it runs.
_IS_TO_BE_ENDED: Final = and_(
    _IS_SLOW,
    task_instance.c.timeout_strategy.in_(_FAILING),
    or_(
        task_instance.c.task_type == DEPENDENT,
        and_(task_instance.c.task_type == SUB_PROCESS, task_instance.c.reason.is_(None)),
    ),
)
_TO_BE_ENDED: Final = (
    select(
        task_instance.c.id,
        task_instance.c.task_type,
        task_instance.c.timeout_seconds,
        task_instance.c.timeout_strategy,
        relation_process_instance.c.process_instance_id.label("child_id"),
    )
    .join_from(task_instance, process_instance, _IS_OF_LIVE_RUN)
    .outerjoin(
        relation_process_instance,
        relation_process_instance.c.parent_task_instance_id == task_instance.c.id,
    )
    .where(_IS_TO_BE_ENDED)
    .order_by(task_instance.c.id)
)
_CHILDREN: Final = (
    select(process_instance.c.id)
    .where(process_instance.c.id == any_of("ids"))
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    # Of one that is being stopped it is settled how it ends.
    .where(process_instance.c.state != ProcessState.READY_STOP)
    .where(process_instance.c.wanted_state.is_distinct_from(int(ProcessState.STOP)))
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True)
    .cte("children")
)
AFTER_ITS_TASK: Final = "the task that started it timed out"
"""The reason of a sub process that is stopped with the time-out of its task."""
_STOP_CHILDREN: Final = (
    update(process_instance)
    .where(process_instance.c.id == _CHILDREN.c.id)
    .values(
        wanted_state=int(ProcessState.STOP),
        wanted_at=_NOW,
        update_time=_NOW,
        state_reason=AFTER_ITS_TASK,
    )
)
_SLOW: Final = unnested("slow", id=Integer, reason=Text)
_STILL: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(_IS_TO_BE_ENDED)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True)
    .cte("still")
)
_IS_DEPENDENT: Final = task_instance.c.task_type == DEPENDENT
_END_ATTEMPTS: Final = (
    update(task_instance)
    .where(task_instance.c.id == _SLOW.c.id)
    .where(task_instance.c.id == _STILL.c.id)
    .where(_IS_TO_BE_ENDED)
    .values(
        reason=_SLOW.c.reason,
        failure_reason=FailureReason.TIMED_OUT.value,
        state=case((_IS_DEPENDENT, int(TaskState.FAILURE)), else_=task_instance.c.state),
        end_time=case((_IS_DEPENDENT, _NOW), else_=task_instance.c.end_time),
    )
)

_ANYTHING: Final = FixedStatement(
    select(
        or_(
            exists().where(_IS_SLOW_PROCESS),
            exists().where(_IS_TO_WARN_OF),
            exists().where(_IS_TO_BE_ENDED),
        )
    ),
    prepared=True,
)


class PostgresTimeoutStore(TimeoutStore):
    """`TimeoutStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def time_out(self, *, now: datetime) -> int:
        ((is_anything,),) = repeatable(
            self._engine, lambda db: _ANYTHING.rows_alone(db, {"now": now})
        )
        if not is_anything:
            return 0
        # A transaction each: every one locks its rows in an order of its own.
        done = 0
        for carry_out in (_processes, _warnings, _failures):
            with transaction(self._engine) as db:
                done += carry_out(db, now)
        return done


def _processes(db: Connection, now: datetime) -> int:
    slow = db.execute(_TIME_PROCESSES_OUT, {"now": now}).all()
    warned = sorted((row for row in slow if row.timeout_strategy in WARNING_STRATEGIES), key=_by_id)
    alert_of_slow_processes(db, warned, now)
    return len(slow)


def _warnings(db: Connection, now: datetime) -> int:
    slow = sorted(db.execute(_WARN_OF_ATTEMPTS, {"now": now}).all(), key=_by_id)
    alert_of_slow_attempts(db, slow, now)
    return len(slow)


def _failures(db: Connection, now: datetime) -> int:
    slow = {row.id: row for row in db.execute(_TO_BE_ENDED, {"now": now})}
    if not slow:
        return 0
    children = [row.child_id for row in slow.values() if row.child_id and _has_child(row)]
    if children:
        db.execute(_STOP_CHILDREN, {"ids": children, "now": now})
    return db.execute(
        _END_ATTEMPTS,
        {
            "ids": list(slow),
            "now": now,
            "slow_id": list(slow),
            "slow_reason": [_reason(row) for row in slow.values()],
        },
    ).rowcount


def _has_child(row: AnyRow) -> bool:
    return bool(row.task_type == SUB_PROCESS)


def _by_id(row: AnyRow) -> int:
    task_or_process_id: int = row.id
    return task_or_process_id


def _reason(row: AnyRow) -> str:
    minutes = f"{row.timeout_seconds / 60:g}"
    strategy = TimeoutStrategy(row.timeout_strategy).name
    unit = "minute" if minutes == "1" else "minutes"
    return f"timed out after {minutes} {unit} (timeout strategy {strategy})"
