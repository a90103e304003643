"""Reads process instances and their attempts for the master that owns them, and saves them.

Used by the run workers and the queue loop of a master. `common.store.master.save` writes a save.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
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
from sqlalchemy.exc import DataError, IntegrityError

from common.model.cluster import Node, QueueEntry
from common.model.instances import Ownership, ProcessRow, TaskReport, TaskRow
from common.model.retry_policy import reason_from
from common.model.states import (
    FINISHED_TASK_STATES,
    LIVE_PROCESS_STATES,
    LIVE_TASK_STATES,
    TERMINAL_PROCESS_STATES,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskState,
)
from common.model.worker_needs import UNASSIGNED
from common.store.business_times import MOMENT
from common.store.fixed_statement import FixedStatement
from common.store.master.endings import ChildEnd, ProcessEnd, end_parent_attempts
from common.store.master.plain_save import HintTarget, no_hint, plain, save_plainly
from common.store.master.ports import PAGE, Intent, LoadedRun, RunStore, Saved, Step, UnreadableRun
from common.store.master.save import is_owned, ownership_of, run_ids, save
from common.store.master.trees import MOST_SUB_PROCESSES, SUB_PROCESS
from common.store.origins import ORIGIN, origin_of
from common.store.queue_entries import IS_COMPLEMENT, queue_entry
from common.store.tables import (
    WORKERLESS_TASK_TYPES,
    process_definition,
    process_instance,
    project,
    relation_process_instance,
    task_instance,
    worker_group,
)
from common.store.transaction import (
    AnyRow,
    StoreConflictError,
    any_of,
    refusal,
    repeatable,
    single,
    transaction,
)

log = logging.getLogger(__name__)

# Of a run that is being stopped it is settled how it ends; one in line has not begun.
_ASKABLE_PROCESS_STATES: Final = tuple(
    state
    for state in LIVE_PROCESS_STATES
    if state not in (ProcessState.SERIAL_WAIT, ProcessState.READY_STOP)
)
_IS_LIVE: Final = process_instance.c.state.in_(LIVE_PROCESS_STATES)

_PROCESSES: Final = (
    select(
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
        process_instance.c.global_params,
        MOMENT.label("moment"),
        IS_COMPLEMENT.label("complement"),
        process_instance.c.run_scope,
        process_instance.c.wanted_deadline,
        process_instance.c.parent_task_instance_id,
        process_instance.c.timezone_id,
        ORIGIN,
    )
    .outerjoin_from(
        process_instance,
        process_definition,
        process_definition.c.id == process_instance.c.process_definition_id,
    )
    .outerjoin(project, project.c.id == process_definition.c.project_id)
    .where(process_instance.c.id == any_of("ids"))
)

ATTEMPTS: Final = (
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
        task_instance.c.var_pool,
        task_instance.c.branch,
        task_instance.c.failure_reason,
        task_instance.c.memory_factor,
    )
    .where(task_instance.c.process_instance_id == any_of("ids"))
    .order_by(task_instance.c.id)
)

_IS_OWN: Final = and_(
    process_instance.c.host == bindparam("owner_host"),
    process_instance.c.owner_incarnation == bindparam("incarnation"),
    _IS_LIVE,
)
# Not by the bare ids: in their order all that have ended would be looked at for the few that live.
_RUN_PLACE: Final = process_instance.c.id + 0
_TASK_PLACE: Final = task_instance.c.id + 0
_OWNED: Final = FixedStatement(
    select(process_instance.c.id, process_instance.c.host, process_instance.c.owner_epoch)
    .where(_IS_OWN)
    .where(bindparam("after") < _RUN_PLACE)
    .order_by(_RUN_PLACE)
    .limit(bindparam("page")),
    prepared=True,
)
_WANTED: Final = (
    select(
        process_instance.c.id,
        process_instance.c.host,
        process_instance.c.owner_epoch,
        process_instance.c.wanted_state,
        func.coalesce(process_instance.c.wanted_at, func.now()).label("wanted_at"),
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
        task_instance.c.var_pool,
        task_instance.c.failure_reason,
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
)
_UNSETTLED_PAGE: Final = (
    _UNSETTLED.where(bindparam("after") < _TASK_PLACE)
    .order_by(_TASK_PLACE)
    .limit(bindparam("page"))
)
_UNSETTLED_OF: Final = _UNSETTLED.where(task_instance.c.id == any_of("ids")).order_by(
    task_instance.c.id
)
_EFFECTIVE_GROUP: Final = case(
    (task_instance.c.worker_group_id > 0, task_instance.c.worker_group_id),
    else_=process_instance.c.worker_group_id,
)
_IS_UNCLAIMED: Final = and_(
    task_instance.c.host.is_distinct_from(UNASSIGNED),
    _IS_OWN,
    task_instance.c.state == TaskState.SUBMITTED,
    task_instance.c.flag == 1,
    task_instance.c.task_type.not_in(WORKERLESS_TASK_TYPES),
    task_instance.c.submit_time < bindparam("submitted_before"),
)
_IS_ANY_UNCLAIMED: Final = FixedStatement(
    select(
        exists()
        .where(process_instance.c.id == task_instance.c.process_instance_id)
        .where(_IS_UNCLAIMED)
    ),
    prepared=True,
)
_UNCLAIMED: Final = (
    select(
        process_instance.c.process_instance_priority,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        task_instance.c.id,
        _EFFECTIVE_GROUP.label("worker_group_id"),
        worker_group.c.ip_list,
        IS_COMPLEMENT.label("yields"),
        task_instance.c.host.label("worker"),
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .outerjoin(worker_group, worker_group.c.id == _EFFECTIVE_GROUP)
    .where(_IS_UNCLAIMED)
    .where(bindparam("after") < _TASK_PLACE)
    .order_by(_TASK_PLACE)
    .limit(bindparam("page"))
)

WITH_ITS_TASK: Final = "the task that started it was stopped"
"""The reason of a sub process that is stopped with the run above it."""
WITHOUT_ITS_TASK: Final = "the task that started it has ended"
"""The reason of a sub process that is live after the end of its task."""
_CHILD: Final = process_instance.alias("child")
_OWN_CHILDREN: Final = (
    process_instance.join(
        task_instance, task_instance.c.process_instance_id == process_instance.c.id
    )
    .join(
        relation_process_instance,
        relation_process_instance.c.parent_task_instance_id == task_instance.c.id,
    )
    .join(_CHILD, _CHILD.c.id == relation_process_instance.c.process_instance_id)
)
_HAS_CHILD: Final = and_(
    _IS_OWN,
    task_instance.c.state == TaskState.RUNNING,
    task_instance.c.task_type == SUB_PROCESS,
    task_instance.c.flag == 1,
)
_CHILD_INTENT: Final = case(
    (task_instance.c.wanted_state == TaskState.KILL, int(ProcessState.STOP)),
    (task_instance.c.wanted_state == TaskState.PAUSE, int(ProcessState.PAUSE)),
)
# The children alone are locked, in order of id, as all that lock several runs do it.
_UNASKED: Final = (
    select(_CHILD.c.id, _CHILD_INTENT.label("wanted"))
    .select_from(_OWN_CHILDREN)
    .where(_HAS_CHILD)
    .where(_CHILD.c.state.in_(_ASKABLE_PROCESS_STATES))
    .where(
        or_(
            and_(
                task_instance.c.wanted_state == TaskState.KILL,
                _CHILD.c.wanted_state.is_distinct_from(int(ProcessState.STOP)),
            ),
            # A pause never replaces what is wanted already.
            and_(task_instance.c.wanted_state == TaskState.PAUSE, _CHILD.c.wanted_state.is_(None)),
        )
    )
    .order_by(_CHILD.c.id)
    .with_for_update(key_share=True, of=_CHILD)
    .cte("unasked")
)
_PROPAGATE_INTENTS: Final = (
    update(process_instance)
    .where(process_instance.c.id == _UNASKED.c.id)
    .values(
        wanted_state=_UNASKED.c.wanted,
        wanted_at=func.now(),
        update_time=func.now(),
        state_reason=case(
            (_UNASKED.c.wanted == int(ProcessState.STOP), WITH_ITS_TASK),
            else_=process_instance.c.state_reason,
        ),
    )
)
_PARENT: Final = process_instance.alias("parent")
# Its attempt was given up before it heard of that, or is gone with all of its run.
_ORPHANS: Final = (
    select(process_instance.c.id)
    .join_from(
        process_instance,
        task_instance,
        task_instance.c.id == process_instance.c.parent_task_instance_id,
    )
    .join(_PARENT, _PARENT.c.id == task_instance.c.process_instance_id)
    .where(_IS_OWN)
    .where(process_instance.c.state != ProcessState.READY_STOP)
    .where(process_instance.c.wanted_state.is_distinct_from(int(ProcessState.STOP)))
    .where(
        or_(
            task_instance.c.state.in_(FINISHED_TASK_STATES),
            _PARENT.c.state.not_in(LIVE_PROCESS_STATES),
        )
    )
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True, of=process_instance)
    .cte("orphans")
)
_STOP_ORPHANS: Final = (
    update(process_instance)
    .where(process_instance.c.id == _ORPHANS.c.id)
    .values(
        wanted_state=int(ProcessState.STOP),
        wanted_at=func.now(),
        update_time=func.now(),
        state_reason=WITHOUT_ITS_TASK,
    )
)
# Only somebody who ends a process instance by hand leaves one of these behind.
_ENDED_UNTOLD: Final = (
    select(
        task_instance.c.id,
        _CHILD.c.id.label("child_id"),
        _CHILD.c.state,
        _CHILD.c.end_time,
        _CHILD.c.state_reason,
    )
    .select_from(_OWN_CHILDREN)
    .where(_HAS_CHILD)
    .where(_CHILD.c.state.in_(TERMINAL_PROCESS_STATES))
    .where(_CHILD.c.parent_task_instance_id == task_instance.c.id)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True, of=task_instance)
)


class PostgresRunStore(RunStore):
    """`RunStore` on PostgreSQL. A plain save tells the worker that `hint_to` names of it."""

    def __init__(
        self,
        engine: Engine,
        *,
        hint_to: HintTarget = no_hint,
        most_sub_processes: int = MOST_SUB_PROCESSES,
    ) -> None:
        self._engine = engine
        self._most_sub_processes = most_sub_processes
        self._hint_to = hint_to

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun | UnreadableRun, ...]:
        return repeatable(self._engine, lambda db: _load(db, ownerships), begin=transaction)

    def save(self, steps: Sequence[Step]) -> Saved:
        found = plain(steps)
        if found is not None:
            # A row that differs, or one that is refused, is named by the other way to save.
            with suppress(IntegrityError, DataError), single(self._engine) as db:
                saved = save_plainly(db, found, hint_to=self._hint_to)
                if saved is not None:
                    return saved
        try:
            with transaction(self._engine) as db:
                return save(db, steps, most_sub_processes=self._most_sub_processes)
        except (IntegrityError, DataError, ValueError) as error:
            raise StoreConflictError(
                f"PostgreSQL refused a step of one of the process instances {run_ids(steps)}: "
                f"{refusal(error)}"
            ) from error

    def owned(self, node: Node, *, after: int = 0, limit: int = PAGE) -> frozenset[Ownership]:
        asked = _owner(node) | {"after": after, "page": limit}
        rows = repeatable(self._engine, lambda db: _OWNED.rows_alone(db, asked))
        return frozenset(ownership_of(_OWNED.row(row)) for row in rows)

    def reports(
        self,
        node: Node,
        *,
        after: int = 0,
        limit: int = PAGE,
        only: Collection[int] | None = None,
    ) -> tuple[TaskReport, ...]:
        statement, asked = _UNSETTLED_PAGE, _owner(node) | {"after": after, "page": limit}
        if only is not None:
            statement, asked = _UNSETTLED_OF, _owner(node) | {"ids": sorted(only)}
        rows = repeatable(self._engine, lambda db: db.execute(statement, asked).all())
        return tuple(
            TaskReport(
                process_instance_id=row.process_instance_id,
                task_instance_id=row.id,
                name=row.name,
                attempt=row.attempt,
                state=TaskState(row.state),
                end_time=row.end_time,
                reason=row.reason,
                var_pool=row.var_pool,
                has_output=row.var_pool is not None,
                failure=reason_from(row.failure_reason),
            )
            for row in rows
        )

    def wanted(self, node: Node) -> dict[Ownership, Intent]:
        rows = repeatable(self._engine, lambda db: db.execute(_WANTED, _owner(node)).all())
        return {
            ownership_of(row): Intent(state=ProcessState(row.wanted_state), at=row.wanted_at)
            for row in rows
        }

    def propagate_intents(self, node: Node) -> int:
        # Each locks several runs in order of id, which both together would not do.
        with single(self._engine) as db:
            stopped = db.execute(_STOP_ORPHANS, _owner(node)).rowcount
        with transaction(self._engine) as db:
            asked = db.execute(_PROPAGATE_INTENTS, _owner(node)).rowcount
            untold = db.execute(_ENDED_UNTOLD, _owner(node)).all()
            if untold:
                end_parent_attempts(db, [_child_end(row) for row in untold])
        return stopped + asked

    def unclaimed(
        self, node: Node, *, submitted_before: datetime, after: int = 0, limit: int = PAGE
    ) -> tuple[QueueEntry, ...]:
        asked = _owner(node) | {"submitted_before": submitted_before}
        # At each look of a master, and nearly always there is none.
        ((is_any,),) = repeatable(self._engine, lambda db: _IS_ANY_UNCLAIMED.rows_alone(db, asked))
        if not is_any:
            return ()
        parameters = asked | {"after": after, "page": limit}
        rows = repeatable(self._engine, lambda db: db.execute(_UNCLAIMED, parameters).all())
        entries = (
            queue_entry(
                process_priority=row.process_instance_priority,
                process_instance_id=row.process_instance_id,
                task_priority=row.task_instance_priority,
                task_instance_id=row.id,
                worker_group_id=row.worker_group_id,
                ip_list=row.ip_list,
                yields=row.yields,
                worker=row.worker,
            )
            for row in rows
        )
        return tuple(sorted(entries, key=lambda entry: entry.sort_key))


def _child_end(row: AnyRow) -> ChildEnd:
    return ChildEnd(
        process_instance_id=row.child_id,
        parent_task_instance_id=row.id,
        end=ProcessEnd(
            state=ProcessState(row.state), at=row.end_time, reason=row.state_reason or None
        ),
    )


def _owner(node: Node) -> dict[str, Any]:
    return {"owner_host": node.address, "incarnation": node.incarnation}


def _load(db: Connection, ownerships: Sequence[Ownership]) -> tuple[LoadedRun | UnreadableRun, ...]:
    ids = sorted({ownership.process_instance_id for ownership in ownerships})
    if not ids:
        return ()
    # These are two questions, between which no take-over may come.
    db.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    processes = {row.id: row for row in db.execute(_PROCESSES, {"ids": ids})}
    attempts: dict[int, list[AnyRow]] = {run_id: [] for run_id in processes}
    if attempts:
        for row in db.execute(ATTEMPTS, {"ids": list(attempts)}):
            attempts[row.process_instance_id].append(row)
    loaded: list[LoadedRun | UnreadableRun] = []
    for ownership in ownerships:
        if not is_owned(processes, ownership):
            continue
        run_id = ownership.process_instance_id
        try:
            run = LoadedRun(
                ownership=ownership,
                process=_process_row(processes[run_id]),
                tasks=tuple(task_row(row) for row in attempts[run_id]),
            )
        except ValueError as error:
            # No reason to load none of the others.
            loaded.append(
                UnreadableRun(
                    ownership=ownership,
                    reason=f"its rows can't be read: {error}",
                    live=tuple(
                        (row.name, row.attempt)
                        for row in attempts[run_id]
                        if row.state in LIVE_TASK_STATES
                    ),
                )
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
        global_params=row.global_params,
        moment=row.moment,
        complement=row.complement,
        run_scope=names_in(row.run_scope, "run_scope"),
        wanted_deadline=row.wanted_deadline,
        parent_task_instance_id=row.parent_task_instance_id,
        timezone_id=row.timezone_id,
        origin=origin_of(row.origin),
    )


def task_row(row: AnyRow) -> TaskRow:
    """Read an attempt as its owner needs it; `ValueError` if no master wrote such a row."""
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
        pause_requested=row.wanted_state == TaskState.PAUSE,
        var_pool=row.var_pool,
        branch=names_in(row.branch, f"branch of task {row.name!r}"),
        failure=reason_from(row.failure_reason),
        memory_factor=row.memory_factor,
    )


def names_in(text_of_list: str | None, what: str) -> tuple[str, ...] | None:
    """Read a JSON list of names in a column; `ValueError`, naming it as `what`, if it is none."""
    if text_of_list is None:
        return None
    try:
        names = json.loads(text_of_list)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} can't be read as JSON") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} is no list of names")
    return tuple(names)
