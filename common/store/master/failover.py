"""Finds runs and attempts of lost daemons, and hands them on: runs as commands, tasks as ended.

It never decides who is lost: the caller compares the owners found here with the live daemons. Used
by the failover loop of a master; several masters may do the same work at once and it is done once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Engine,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import Insert, insert

from common.model.cluster import Node, NodeKind
from common.model.command_param import ParamKey
from common.model.commands import OWN_RECOVERIES, CommandType
from common.model.states import LIVE_PROCESS_STATES, ProcessState, TaskState
from common.store.fixed_statement import FixedStatement
from common.store.master.alerts import alert_of_lost_daemon
from common.store.master.ports import FailoverStore
from common.store.tables import OWN_RECOVERY, command, process_instance, task_instance
from common.store.transaction import repeatable, transaction

_IS_LIVE: Final = process_instance.c.state.in_(LIVE_PROCESS_STATES)

_DRIVEN: Final = (ProcessState.RUNNING, ProcessState.READY_PAUSE, ProcessState.READY_STOP)

_IS_AWAITED: Final = (
    exists()
    # Said so that the index of these is used, which leaves the others out.
    .where(command.c.process_instance_id != 0)
    .where(command.c.command_type.in_(OWN_RECOVERIES))
    .where(command.c.process_instance_id == process_instance.c.id)
)

_RUN_OWNERS: Final = FixedStatement(
    select(process_instance.c.host, process_instance.c.owner_incarnation)
    .distinct()
    .where(_IS_LIVE)
    .where(process_instance.c.host.is_not(None))
    .where(process_instance.c.owner_incarnation.is_not(None))
    .where(~_IS_AWAITED),
    prepared=True,
)

# Attempts of ended runs are nobody's concern any more (T76), and neither are superseded ones.
_IS_RUNNING: Final = and_(
    task_instance.c.state == TaskState.RUNNING,
    task_instance.c.flag == 1,
    # What a master carries out itself has no worker, and goes on with whoever takes the run over.
    task_instance.c.host.is_not(None),
    process_instance.c.id == task_instance.c.process_instance_id,
    _IS_LIVE,
)
_TASK_OWNERS: Final = FixedStatement(
    select(task_instance.c.host, task_instance.c.worker_incarnation).distinct().where(_IS_RUNNING),
    prepared=True,
)


def _recovery(whose: ColumnElement[bool]) -> Insert:
    """Build the insert of a command for each of these runs without one."""
    return (
        insert(command)
        .from_select(
            [
                "command_type",
                "process_definition_id",
                "command_param",
                "executor_id",
                "process_instance_priority",
                "process_instance_id",
                "parent_task_instance_id",
                "start_time",
                "update_time",
            ],
            select(
                literal(int(CommandType.RECOVER_TOLERANCE_FAULT_PROCESS)),
                process_instance.c.process_definition_id,
                func.concat(
                    f'{{"{ParamKey.PROCESS_INSTANCE_ID}":', cast(process_instance.c.id, Text), "}"
                ),
                process_instance.c.executor_id,
                process_instance.c.process_instance_priority,
                process_instance.c.id,
                # One of a sub process needs no room, as its own beginning did not (trap T36d).
                process_instance.c.parent_task_instance_id,
                bindparam("now"),
                bindparam("now"),
            )
            .where(whose)
            # A conflict costs an id, and ids are few; it is left to two masters at one moment.
            .where(~_IS_AWAITED)
            .order_by(process_instance.c.id),
        )
        .on_conflict_do_nothing(
            index_elements=[command.c.process_instance_id],
            index_where=text(OWN_RECOVERY),
        )
    )


_RECOVER_RUNS: Final = _recovery(
    and_(
        process_instance.c.host == bindparam("dead_host"),
        process_instance.c.owner_incarnation == bindparam("incarnation"),
        _IS_LIVE,
    )
)
_IS_OWNERLESS: Final = and_(
    or_(process_instance.c.host.is_(None), process_instance.c.owner_incarnation.is_(None)),
    process_instance.c.state.in_(_DRIVEN),
    # Said so that the index of the live ones is used.
    _IS_LIVE,
)
_IS_ANY_OWNERLESS: Final = FixedStatement(
    select(exists().where(_IS_OWNERLESS).where(~_IS_AWAITED)), prepared=True
)
_OWN_RUNS: Final = (
    select(process_instance.c.id)
    .where(process_instance.c.host == bindparam("dead_host"))
    .where(process_instance.c.owner_incarnation == bindparam("incarnation"))
    .where(process_instance.c.state.in_(_DRIVEN))
    # Said so that the index of the live ones is used.
    .where(_IS_LIVE)
    # In order of id, as all that lock several runs do it.
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True)
    .cte("own_runs")
)
_HAND_OVER: Final = (
    update(process_instance)
    .where(process_instance.c.id == _OWN_RUNS.c.id)
    .where(process_instance.c.host == bindparam("dead_host"))
    .where(process_instance.c.owner_incarnation == bindparam("incarnation"))
    .values(host=None, owner_incarnation=None, update_time=bindparam("now"))
)
_RECOVER_OWNERLESS: Final = _recovery(_IS_OWNERLESS)

_IS_HELD: Final = and_(
    task_instance.c.state == TaskState.RUNNING,
    task_instance.c.host == bindparam("dead_host"),
    task_instance.c.worker_incarnation == bindparam("incarnation"),
)
_IS_UNMARKED: Final = task_instance.c.lost_at.is_(None)
_IS_MARKED: Final = task_instance.c.lost_at.is_not(None)


def _locked(which: ColumnElement[bool], name: str) -> CTE:
    """Build the selection of a worker's attempts in live runs, locked for their change."""
    return (
        select(task_instance.c.id)
        .where(_IS_RUNNING)
        .where(_IS_HELD)
        .where(which)
        # In order of id, as all that lock several attempts do it.
        .order_by(task_instance.c.id)
        .with_for_update(key_share=True, of=task_instance)
        .cte(name)
    )


_MISSING: Final = _locked(_IS_UNMARKED, "missing")
_MARK: Final = (
    update(task_instance)
    .where(task_instance.c.id == _MISSING.c.id)
    .where(_IS_HELD)
    .where(_IS_UNMARKED)
    .values(lost_at=bindparam("now"))
)
_ABANDONED: Final = _locked(_IS_MARKED, "abandoned")
_FAIL_OVER: Final = (
    update(task_instance)
    .where(task_instance.c.id == _ABANDONED.c.id)
    .where(_IS_HELD)
    .where(_IS_MARKED)
    .values(
        state=int(TaskState.NEED_FAULT_TOLERANCE),
        end_time=bindparam("now"),
        reason=bindparam("why"),
    )
)


class PostgresFailoverStore(FailoverStore):
    """`FailoverStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run_owners(self) -> frozenset[Node]:
        rows = repeatable(self._engine, lambda db: _RUN_OWNERS.rows_alone(db, {}))
        return frozenset(Node(address=host, incarnation=number) for host, number in rows)

    def task_owners(self) -> frozenset[Node]:
        rows = repeatable(self._engine, lambda db: _TASK_OWNERS.rows_alone(db, {}))
        return frozenset(Node(address=host, incarnation=number) for host, number in rows)

    def recover_ownerless(self, *, now: datetime) -> int:
        def recover(db: Connection) -> int:
            return db.execute(_RECOVER_OWNERLESS, {"now": now}).rowcount

        # Nearly always there is none, which a look without a transaction shows.
        ((is_any,),) = repeatable(self._engine, lambda db: _IS_ANY_OWNERLESS.rows_alone(db, {}))
        if not is_any:
            return 0
        return repeatable(self._engine, recover, begin=transaction)

    def hand_over(self, leaving: Node, *, now: datetime) -> int:
        with transaction(self._engine) as db:
            return db.execute(_HAND_OVER, _lost(leaving, now)).rowcount

    def recover_runs(self, dead: Node, *, now: datetime) -> int:
        # Twice is harmless, hence once more if the connection was lost: one recovery waits for a
        # process instance at most (a unique index), and one for a run that lives is dropped.
        def recover(db: Connection) -> int:
            recovered = db.execute(_RECOVER_RUNS, _lost(dead, now)).rowcount
            if recovered:
                alert_of_lost_daemon(db, NodeKind.MASTER, dead, now)
            return recovered

        return repeatable(self._engine, recover, begin=transaction)

    def mark_lost(self, missing: Node, *, now: datetime) -> int:
        # Twice is harmless, and an answer means that the marks are there, whoever made them.
        def mark(db: Connection) -> int:
            return db.execute(_MARK, _lost(missing, now)).rowcount

        return repeatable(self._engine, mark, begin=transaction)

    def fail_tasks_over(self, dead: Node, *, now: datetime) -> int:
        why = {"why": f"worker {dead.address} was lost"}
        with transaction(self._engine) as db:
            failed = db.execute(_FAIL_OVER, _lost(dead, now) | why).rowcount
            if failed:
                alert_of_lost_daemon(db, NodeKind.WORKER, dead, now)
            return failed


def _lost(dead: Node, now: datetime) -> dict[str, Any]:
    return {"dead_host": dead.address, "incarnation": dead.incarnation, "now": now}
