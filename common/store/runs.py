"""Reads process instances and their attempts for the master that owns them, and has them saved.

Used by the run workers and the queue loop of a master. How a save is written stands in
`common.store.save`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    and_,
    bindparam,
    case,
    select,
    text,
)
from sqlalchemy.exc import DataError, IntegrityError

from common.model.cluster import Node, QueueEntry
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.states import (
    FINISHED_TASK_STATES,
    LIVE_PROCESS_STATES,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskState,
)
from common.store.protocol import LoadedRun, Saved, Step, TaskReport
from common.store.queue_entries import queue_entry
from common.store.save import is_owned, ownership_of, run_ids, save
from common.store.tables import process_instance, task_instance, worker_group
from common.store.transaction import (
    AnyRow,
    StoreConflictError,
    any_of,
    refusal,
    repeatable,
    transaction,
)

log = logging.getLogger(__name__)

_IS_LIVE: Final = process_instance.c.state.in_(LIVE_PROCESS_STATES)

_PROCESSES: Final = select(
    process_instance.c.id,
    process_instance.c.host,
    process_instance.c.owner_epoch,
    process_instance.c.name,
    process_instance.c.state,
    process_instance.c.wanted_state,
    process_instance.c.failure_strategy,
    process_instance.c.process_instance_priority,
    process_instance.c.worker_group_id,
    process_instance.c.task_depend_type,
    process_instance.c.command_param,
    process_instance.c.process_definition_id,
    process_instance.c.process_instance_json,
    process_instance.c.executor_id,
    process_instance.c.start_time,
).where(process_instance.c.id == any_of("ids"))

_ATTEMPTS: Final = (
    select(
        task_instance.c.id,
        task_instance.c.process_instance_id,
        task_instance.c.name,
        task_instance.c.attempt,
        task_instance.c.state,
        task_instance.c.retry_times,
        task_instance.c.flag,
        task_instance.c.settled,
        task_instance.c.end_time,
        task_instance.c.retry_at,
        task_instance.c.wanted_state,
    )
    .where(task_instance.c.process_instance_id == any_of("ids"))
    .order_by(task_instance.c.id)
)

_IS_OWN: Final = and_(
    process_instance.c.host == bindparam("owner_host"),
    process_instance.c.owner_incarnation == bindparam("incarnation"),
    _IS_LIVE,
)
_OWNED: Final = select(
    process_instance.c.id, process_instance.c.host, process_instance.c.owner_epoch
).where(_IS_OWN)
_WANTED: Final = (
    select(
        process_instance.c.id,
        process_instance.c.host,
        process_instance.c.owner_epoch,
        process_instance.c.wanted_state,
    )
    .where(_IS_OWN)
    .where(process_instance.c.wanted_state.is_not(None))
    .order_by(process_instance.c.id)
)
_UNSETTLED: Final = (
    select(
        task_instance.c.process_instance_id,
        task_instance.c.id,
        task_instance.c.name,
        task_instance.c.attempt,
        task_instance.c.state,
        task_instance.c.end_time,
        task_instance.c.reason,
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(_IS_OWN)
    .where(task_instance.c.state.in_(FINISHED_TASK_STATES))
    .where(~task_instance.c.settled)
    .where(task_instance.c.flag == 1)
    .order_by(task_instance.c.id)
)
_EFFECTIVE_GROUP: Final = case(
    (task_instance.c.worker_group_id > 0, task_instance.c.worker_group_id),
    else_=process_instance.c.worker_group_id,
)
_UNCLAIMED: Final = (
    select(
        process_instance.c.process_instance_priority,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        task_instance.c.id,
        _EFFECTIVE_GROUP.label("worker_group_id"),
        worker_group.c.ip_list,
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .outerjoin(worker_group, worker_group.c.id == _EFFECTIVE_GROUP)
    .where(_IS_OWN)
    .where(task_instance.c.state == TaskState.SUBMITTED)
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.submit_time < bindparam("submitted_before"))
    .order_by(
        process_instance.c.process_instance_priority,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        task_instance.c.id,
    )
)


class PostgresRunStore:
    """`RunStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
        return repeatable(self._engine, lambda db: _load(db, ownerships), begin=transaction)

    def save(self, steps: Sequence[Step]) -> Saved:
        try:
            with transaction(self._engine) as db:
                return save(db, steps)
        except (IntegrityError, DataError, ValueError) as error:
            raise StoreConflictError(
                f"PostgreSQL refused a step of one of the process instances {run_ids(steps)}: "
                f"{refusal(error)}"
            ) from error

    def owned(self, node: Node) -> frozenset[Ownership]:
        rows = repeatable(self._engine, lambda db: db.execute(_OWNED, _owner(node)).all())
        return frozenset(ownership_of(row) for row in rows)

    def reports(self, node: Node) -> tuple[TaskReport, ...]:
        rows = repeatable(self._engine, lambda db: db.execute(_UNSETTLED, _owner(node)).all())
        return tuple(
            TaskReport(
                process_instance_id=row.process_instance_id,
                task_instance_id=row.id,
                name=row.name,
                attempt=row.attempt,
                state=TaskState(row.state),
                end_time=row.end_time,
                reason=row.reason,
            )
            for row in rows
        )

    def wanted(self, node: Node) -> dict[Ownership, ProcessState]:
        rows = repeatable(self._engine, lambda db: db.execute(_WANTED, _owner(node)).all())
        return {ownership_of(row): ProcessState(row.wanted_state) for row in rows}

    def unclaimed(self, node: Node, *, submitted_before: datetime) -> tuple[QueueEntry, ...]:
        parameters = _owner(node) | {"submitted_before": submitted_before}
        rows = repeatable(self._engine, lambda db: db.execute(_UNCLAIMED, parameters).all())
        return tuple(
            queue_entry(
                process_priority=row.process_instance_priority,
                process_instance_id=row.process_instance_id,
                task_priority=row.task_instance_priority,
                task_instance_id=row.id,
                worker_group_id=row.worker_group_id,
                ip_list=row.ip_list,
            )
            for row in rows
        )


def _owner(node: Node) -> dict[str, Any]:
    return {"owner_host": node.address, "incarnation": node.incarnation}


def _load(db: Connection, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
    ids = sorted({ownership.process_instance_id for ownership in ownerships})
    if not ids:
        return ()
    # These are two questions, between which no take-over may come.
    db.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    processes = {row.id: row for row in db.execute(_PROCESSES, {"ids": ids})}
    attempts: dict[int, list[AnyRow]] = {run_id: [] for run_id in processes}
    if attempts:
        for row in db.execute(_ATTEMPTS, {"ids": list(attempts)}):
            attempts[row.process_instance_id].append(row)
    loaded = []
    for ownership in ownerships:
        if not is_owned(processes, ownership):
            continue
        run_id = ownership.process_instance_id
        try:
            run = LoadedRun(
                ownership=ownership,
                process=_process_row(processes[run_id]),
                tasks=tuple(_task_row(row) for row in attempts[run_id]),
            )
        except ValueError as error:
            # A code that this version does not know: no reason to load none of the others.
            log.error(  # noqa: TRY400  # The text of the error is the whole story.
                "process instance can't be read",
                extra={"process_instance_id": run_id, "cause": str(error)},
            )
            continue
        loaded.append(run)
    return tuple(loaded)


def _process_row(row: AnyRow) -> ProcessRow:
    return ProcessRow(
        id=row.id,
        name=row.name,
        state=ProcessState(row.state),
        wanted_state=None if row.wanted_state is None else ProcessState(row.wanted_state),
        failure_strategy=FailureStrategy(row.failure_strategy),
        priority=Priority(row.process_instance_priority),
        worker_group_id=row.worker_group_id,
        task_depend_type=row.task_depend_type,
        command_param=row.command_param or "",
        process_definition_id=row.process_definition_id,
        process_instance_json=row.process_instance_json,
        executor_id=row.executor_id,
        start_time=row.start_time,
    )


def _task_row(row: AnyRow) -> TaskRow:
    return TaskRow(
        id=row.id,
        name=row.name,
        attempt=row.attempt,
        state=TaskState(row.state),
        retry_times=row.retry_times,
        valid=row.flag == 1,
        settled=row.settled,
        end_time=row.end_time,
        retry_at=row.retry_at,
        kill_requested=row.wanted_state == TaskState.KILL,
    )


# An attempt as the decisions name it: process instance, task, attempt.
