"""The store's protocols in memory: what the simulator runs the real loops on.

Rows are frozen, so no caller shares state with the tables. A transaction is whole or nothing, also
when the process "dies" at its commit: `MemoryDatabase.commit_hook` is called before and after each
commit and may raise. It is single-threaded and deterministic: rows are visited in order of id and
nothing iterates over a set. `common.store` and this module pass one conformance suite.

Every change of a row is kept in `MemoryDatabase.changes` for checkers, and what the triggers of the
real schema would call out is kept in `MemoryDatabase.notifications`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, TypeAlias, TypeVar, assert_never

from common.model.cluster import KillEntry, Node, QueueEntry
from common.model.commands import Command, CommandRow, CommandType
from common.model.decisions import (
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.plans import (
    Begin,
    DefinitionSnapshot,
    Drop,
    Handled,
    InstanceSnapshot,
    Plan,
    Reject,
    Resume,
    Signal,
    Snapshot,
)
from common.model.states import (
    LIVE_PROCESS_STATES,
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    TaskState,
)
from common.store.commands import (
    PARAM_LIMIT_BYTES,
    known_state,
    new_process_instance,
    planned,
    refused,
    understand,
)
from common.store.listen import Channel
from common.store.protocol import (
    AttemptEnd,
    AttemptFolders,
    AttemptPaths,
    ClaimedTask,
    LoadedRun,
    Planner,
    Saved,
    Step,
    TaskReport,
)
from common.store.queue_entries import effective_group, queue_entry
from common.store.save import WITHDRAWN
from common.store.transaction import StoreConflictError, storable, unstorable

TERMINAL_PROCESS_STATES = tuple(state for state in ProcessState if state.is_terminal)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CommitHook: TypeAlias = Callable[[str, Literal["before", "after"]], None]
By: TypeAlias = Node | Ownership | None


class RowRefusedError(Exception):
    """A row breaks a constraint of the schema; what PostgreSQL says with an error of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """A row of `t_ds_command`."""

    id: int = 0
    command_type: int
    process_definition_id: int | None = None
    command_param: str | None = None
    task_depend_type: int = 2
    failure_strategy: int = 1
    warning_type: int = 0
    warning_group_id: int = 0
    schedule_time: datetime | None = None
    start_time: datetime = EPOCH
    executor_id: int = 1
    dependence: str | None = None
    update_time: datetime = EPOCH
    process_instance_priority: int = 2
    worker_group_id: int = -1
    process_instance_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCommandRecord:
    """A row of `t_ds_error_command`."""

    id: int = 0
    command_id: int
    command_type: int
    process_definition_id: int | None
    command_param: str | None
    task_depend_type: int
    failure_strategy: int
    warning_type: int
    warning_group_id: int
    schedule_time: datetime | None
    start_time: datetime
    executor_id: int
    dependence: str | None
    update_time: datetime
    process_instance_priority: int
    worker_group_id: int
    process_instance_id: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRecord:
    """A row of `t_ds_process_definition`."""

    id: int = 0
    name: str
    version: int = 1
    release_state: int = 0
    project_id: int = 1
    user_id: int = 1
    process_definition_json: str | None = None
    global_params: str | None = None
    flag: int = 1
    locations: str | None = None
    connects: str | None = None
    timeout: int = 0
    tenant_id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A row of `t_ds_process_instance`."""

    id: int = 0
    name: str
    process_definition_id: int
    state: int
    recovery: int = 0
    start_time: datetime = EPOCH
    end_time: datetime | None = None
    run_times: int = 1
    host: str | None = None
    command_type: int
    command_param: str | None = None
    task_depend_type: int = 2
    max_try_times: int = 0
    failure_strategy: int = 0
    warning_type: int = 0
    warning_group_id: int = 0
    schedule_time: datetime | None = None
    command_start_time: datetime | None = None
    global_params: str | None = None
    process_instance_json: str
    flag: int = 1
    update_time: datetime = EPOCH
    is_sub_process: int = 0
    executor_id: int
    locations: str | None = None
    connects: str | None = None
    history_cmd: str | None = None
    process_instance_priority: int = 2
    worker_group_id: int = -1
    timeout: int = 0
    tenant_id: int = -1
    owner_incarnation: int | None = None
    owner_epoch: int = 0
    wanted_state: int | None = None
    wanted_at: datetime | None = None
    state_reason: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether somebody must own it."""
        return self.state in LIVE_PROCESS_STATES

    @property
    def owner(self) -> Node | None:
        """The incarnation that owns it."""
        if self.host is None or self.owner_incarnation is None:
            return None
        return Node(address=self.host, incarnation=self.owner_incarnation)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A row of `t_ds_task_instance`."""

    id: int = 0
    name: str
    task_type: str
    process_definition_id: int
    process_instance_id: int
    task_json: str
    state: int = 0
    submit_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    host: str | None = None
    execute_path: str | None = None
    log_path: str | None = None
    retry_times: int = 0
    pid: int | None = None
    flag: int = 1
    retry_interval: int = 0
    max_retry_times: int = 0
    task_instance_priority: int = 2
    worker_group_id: int = -1
    executor_id: int | None = None
    attempt: int = 1
    worker_incarnation: int | None = None
    wanted_state: int | None = None
    settled: bool = False
    retry_at: datetime | None = None
    exit_code: int | None = None
    reason: str | None = None
    pid_start_time: float | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the attempt is over."""
        return TaskState(self.state).is_finished


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroupRecord:
    """A row of `t_ds_worker_group`."""

    id: int = 0
    name: str
    ip_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord:
    """A row of `t_ds_tenant`."""

    id: int = 0
    tenant_code: str
    queue_id: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A row of `t_ds_queue`."""

    id: int = 0
    queue_name: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """A row of `t_ds_user`."""

    id: int = 0
    user_name: str
    tenant_id: int = 0
    queue: str | None = None


Record: TypeAlias = (
    CommandRecord
    | ErrorCommandRecord
    | DefinitionRecord
    | ProcessRecord
    | TaskRecord
    | WorkerGroupRecord
    | TenantRecord
    | QueueRecord
    | UserRecord
)
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row before and after one statement; None before an insert, and after a delete.

    `by` is who acted: an incarnation, a run's owner as of its epoch, or None for a person.
    """

    transaction: str
    by: By
    table: str
    id: int
    old: Record | None
    new: Record | None


class Rows(Generic[R]):
    """A table: rows by id, always visited in order of id."""

    def __init__(self, name: str, record_type: type[R]) -> None:
        self.name = name
        self.record_type = record_type
        self._rows: dict[int, R] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[R]:
        # A list, so that a loop may change the rows that it visits.
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, row_id: int | None) -> R | None:
        """The row of that id, if there is one."""
        return None if row_id is None else self._rows.get(row_id)

    def next_id(self) -> int:
        """A new id. As with a real sequence, one that is rolled back is never drawn again."""
        self._last_id += 1
        return self._last_id

    def put(self, row_id: int, row: R | None) -> None:
        """Write or, with None, remove a row; only a transaction calls this."""
        if row is None:
            del self._rows[row_id]
            return
        is_old_again = row_id not in self._rows and row_id < next(reversed(self._rows), 0)
        self._rows[row_id] = row
        self._last_id = max(self._last_id, row_id)
        if is_old_again:
            self._rows = dict(sorted(self._rows.items()))


@dataclass(slots=True)
class Transaction:
    """Changes that stand at once for their maker and can be taken back until the commit."""

    name: str
    database: MemoryDatabase
    by: By
    _undo: list[tuple[Rows[Any], int, Record | None]] = field(default_factory=list)
    _changes: list[Change] = field(default_factory=list)
    _notifications: list[tuple[str, str]] = field(default_factory=list)

    def insert(self, rows: Rows[R], record: R) -> int:
        """Write a new row; its id."""
        row_id = record.id or rows.next_id()
        self._write(rows, row_id, None, replace(record, id=row_id))
        return row_id

    def update(self, rows: Rows[R], row_id: int, **columns: Any) -> None:
        """Change columns of the row of that id."""
        old = rows.get(row_id)
        assert old is not None, f"{rows.name} has no row {row_id}"
        self._write(rows, row_id, old, replace(old, **columns))

    def delete(self, rows: Rows[R], row_id: int) -> None:
        """Remove the row of that id."""
        old = rows.get(row_id)
        assert old is not None, f"{rows.name} has no row {row_id}"
        self._write(rows, row_id, old, None)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back what was done inside if it raises."""
        marks = len(self._undo), len(self._changes), len(self._notifications)
        try:
            yield
        except BaseException:
            self._roll_back(*marks)
            raise

    def commit(self) -> None:
        """Make the changes final, unless the hook raises before."""
        database = self.database
        if not self._changes:
            return
        try:
            database.commit_hook(self.name, "before")
        except BaseException:
            self.roll_back()
            raise
        database.changes.extend(self._changes)
        # PostgreSQL delivers equal notifications of a transaction once.
        database.notifications.extend(dict.fromkeys(self._notifications))
        database.commit_hook(self.name, "after")

    def roll_back(self) -> None:
        """Take everything back."""
        self._roll_back(0, 0, 0)

    def _roll_back(self, undo: int, changes: int, notifications: int) -> None:
        while len(self._undo) > undo:
            rows, row_id, old = self._undo.pop()
            rows.put(row_id, old)
        del self._changes[changes:]
        del self._notifications[notifications:]

    def _write(self, rows: Rows[R], row_id: int, old: R | None, new: R | None) -> None:
        if new is not None:
            self.database.check(old, new)
        rows.put(row_id, new)
        self._undo.append((rows, row_id, old))
        self._changes.append(
            Change(transaction=self.name, by=self.by, table=rows.name, id=row_id, old=old, new=new)
        )
        self._notify(old, new)

    def _notify(self, old: Record | None, new: Record | None) -> None:
        """What the triggers of `common.store.schema` call out."""
        calls = self._notifications
        match old, new:
            case None, CommandRecord():
                calls.append((Channel.COMMAND, ""))
            case DefinitionRecord(release_state=before), DefinitionRecord(release_state=1) if (
                before != 1
            ):
                calls.append((Channel.COMMAND, ""))
            case TaskRecord(), TaskRecord(settled=False) if (
                new.is_finished and new.state != old.state
            ):
                calls.append((Channel.TASK, _report_payload(new)))
            case ProcessRecord(), ProcessRecord():
                if new.wanted_state is not None and new.wanted_state != old.wanted_state:
                    calls.append((Channel.WANTED, str(new.id)))
                if new.state in TERMINAL_PROCESS_STATES and new.state != old.state:
                    calls.append((Channel.PROCESS, str(new.id)))


def _report_payload(task: TaskRecord) -> str:
    assert task.end_time is not None
    seconds = task.end_time.timestamp()
    ids = [task.process_instance_id, task.id, task.attempt, task.state]
    return json.dumps([*ids, seconds, task.name])


def _no_hook(_transaction: str, _moment: Literal["before", "after"]) -> None:
    return None


class MemoryDatabase:
    """The tables that the loops use, with the rows that a fresh database holds.

    `commit_hook(name, moment)` is called around each commit that changes something, with the name
    of the store's method. What it raises `before` takes the transaction back; what it raises
    `after` leaves it done. `begin_hook(name)` is called before a transaction looks at anything, so
    that others may act while its maker is held up.
    """

    def __init__(self, *, os_user: str = "orcaflow") -> None:
        self.commands = Rows("t_ds_command", CommandRecord)
        self.error_commands = Rows("t_ds_error_command", ErrorCommandRecord)
        self.definitions = Rows("t_ds_process_definition", DefinitionRecord)
        self.processes = Rows("t_ds_process_instance", ProcessRecord)
        self.tasks = Rows("t_ds_task_instance", TaskRecord)
        self.worker_groups = Rows("t_ds_worker_group", WorkerGroupRecord)
        self.tenants = Rows("t_ds_tenant", TenantRecord)
        self.queues = Rows("t_ds_queue", QueueRecord)
        self.users = Rows("t_ds_user", UserRecord)
        self.commit_hook: CommitHook = _no_hook
        self.begin_hook: Callable[[str], None] = lambda _name: None
        self.changes: list[Change] = []
        self.notifications: list[tuple[str, str]] = []
        with self.transaction("seed") as tx:
            tx.insert(self.queues, QueueRecord(queue_name="default", queue="default"))
            tx.insert(self.tenants, TenantRecord(tenant_code=os_user))
            tx.insert(self.users, UserRecord(user_name="admin", tenant_id=1))

    @contextmanager
    def transaction(self, name: str, *, by: By = None) -> Iterator[Transaction]:
        """Everything done inside, or nothing."""
        self.begin_hook(name)
        tx = Transaction(name=name, database=self, by=by)
        try:
            yield tx
        except BaseException:
            tx.roll_back()
            raise
        tx.commit()

    def insert(self, rows: Rows[R], **columns: Any) -> int:
        """What a person does with one INSERT; the id of the new row."""
        with self.transaction("insert") as tx:
            return tx.insert(rows, rows.record_type(**columns))

    def update(self, rows: Rows[R], row_id: int, **columns: Any) -> None:
        """What a person does with one UPDATE."""
        with self.transaction("update") as tx:
            tx.update(rows, row_id, **columns)

    def drain_notifications(self) -> list[tuple[str, str]]:
        """What the triggers have called out since the last time, as (channel, payload)."""
        drained, self.notifications = self.notifications, []
        return drained

    def check(self, old: Record | None, new: Record) -> None:
        """Refuse what the real schema refuses."""
        cause = self._broken_constraint(old, new)
        if cause is not None:
            raise RowRefusedError(cause)

    def _broken_constraint(self, old: Record | None, row: Record) -> str | None:
        for column in fields(row):
            value = getattr(row, column.name)
            if isinstance(value, str) and (cause := unstorable({column.name: value})):
                return cause
            bits = 63 if column.name in _BIG_COLUMNS else 31
            if isinstance(value, int) and not -(2**bits) <= value < 2**bits:
                return "integer out of range"
        match row:
            case CommandRecord():
                return self._broken_command(row)
            case ProcessRecord():
                return _broken_process(row)
            case TaskRecord():
                return _broken_task(row) or self._broken_uniqueness(old, row)
        return None

    def _broken_command(self, row: CommandRecord) -> str | None:
        if row.process_instance_id and any(
            other.process_instance_id == row.process_instance_id and other.id != row.id
            for other in self.commands
        ):
            return "a recovery of this process instance waits already"
        return None

    def _broken_uniqueness(self, old: Record | None, row: TaskRecord) -> str | None:
        if isinstance(old, TaskRecord) and (old.flag, old.attempt) == (row.flag, row.attempt):
            return None
        if self.processes.get(row.process_instance_id) is None:
            return "an unknown process instance"
        for other in self.tasks:
            if (
                other.process_instance_id != row.process_instance_id
                or other.name != row.name
                or other.id == row.id
            ):
                continue
            if other.attempt == row.attempt:
                return "an attempt number twice"
            if other.flag == row.flag == 1:
                return "two valid attempts"
        return None


_BIG_COLUMNS = frozenset({"owner_incarnation", "owner_epoch", "worker_incarnation"})


def _broken_process(row: ProcessRecord) -> str | None:
    checks = {
        "name too long": len(row.name) > 320,
        "name empty": not row.name,
        "ended without an end time": row.state in TERMINAL_PROCESS_STATES and row.end_time is None,
    }
    return next((cause for cause, broken in checks.items() if broken), None)


def _broken_task(row: TaskRecord) -> str | None:
    checks = {
        "name too long": len(row.name) > 255,
        "running without a worker": row.state == TaskState.RUNNING
        and (row.host is None or row.worker_incarnation is None),
        "finished without an end time": row.is_finished and row.end_time is None,
        "superseded but not finished": row.flag == 0 and not row.is_finished,
        "settled but not finished": row.settled and not row.is_finished,
    }
    return next((cause for cause, broken in checks.items() if broken), None)


class MemoryCommandStore:
    """`CommandStore` in memory."""

    def __init__(
        self, database: MemoryDatabase, *, param_limit_bytes: int = PARAM_LIMIT_BYTES
    ) -> None:
        self._db = database
        self._param_limit_bytes = param_limit_bytes

    def waiting(self) -> bool:
        return len(self._db.commands) > 0

    def take(
        self,
        *,
        node: Node,
        limit: int,
        live_masters: frozenset[Node],
        planner: Planner,
        now: datetime,
    ) -> tuple[Handled, ...]:
        waiting = sorted(
            self._db.commands,
            key=lambda row: (row.process_instance_priority, row.update_time, row.id),
        )
        with self._db.transaction("take", by=node) as tx:
            batch = [
                (row, self._plan(row, live_masters, planner)) for row in waiting[: max(limit, 0)]
            ]
            return tuple(self._carry_out(tx, row, plan, node, now) for row, plan in batch)

    def _plan(self, row: CommandRecord, live_masters: frozenset[Node], planner: Planner) -> Plan:
        command = understand(
            _command_row(row, self._param_limit_bytes), param_limit_bytes=self._param_limit_bytes
        )
        if isinstance(command, Reject):
            return command
        return planned(command, lambda: self._snapshot(command, live_masters), planner)

    def _snapshot(self, command: Command, live_masters: frozenset[Node]) -> Snapshot:
        definition = self._db.definitions.get(command.process_definition_id)
        process = self._db.processes.get(command.process_instance_id)
        return Snapshot(
            definition=None if definition is None else _definition_snapshot(definition),
            instance=None
            if process is None
            else InstanceSnapshot(
                id=process.id,
                state=known_state(process.id, process.state),
                owner=process.owner,
                owner_epoch=process.owner_epoch,
            ),
            live_masters=live_masters,
        )

    def _carry_out(
        self, tx: Transaction, row: CommandRecord, plan: Plan, node: Node, now: datetime
    ) -> Handled:
        handled = self._attempt(tx, row, plan, node, now)
        if isinstance(handled.plan, Reject):
            columns = {f.name: getattr(row, f.name) for f in fields(row) if f.name != "id"}
            tx.insert(
                self._db.error_commands,
                ErrorCommandRecord(
                    command_id=row.id, message=storable(handled.plan.reason), **columns
                ),
            )
        tx.delete(self._db.commands, row.id)
        return handled

    def _attempt(
        self, tx: Transaction, row: CommandRecord, plan: Plan, node: Node, now: datetime
    ) -> Handled:
        match plan:
            case Begin():
                columns = new_process_instance(plan, node=node, now=now)
                try:
                    with tx.savepoint():
                        process_id = tx.insert(self._db.processes, ProcessRecord(**columns))
                except RowRefusedError as error:
                    return Handled(command_id=row.id, plan=refused(str(error)))
                owned = Ownership(process_instance_id=process_id, host=node.address, epoch=1)
                return Handled(command_id=row.id, plan=plan, ownership=owned)
            case Resume():
                return self._resume(tx, row, plan, node, now)
            case Signal():
                return self._signal(tx, row, plan, now)
            case Drop() | Reject():
                return Handled(command_id=row.id, plan=plan)
            case _:
                assert_never(plan)

    def _resume(
        self, tx: Transaction, row: CommandRecord, plan: Resume, node: Node, now: datetime
    ) -> Handled:
        process = self._db.processes.get(plan.process_instance_id)
        if process is None or not process.is_live or process.owner_epoch != plan.epoch:
            reason = f"process instance {plan.process_instance_id} has been taken over or has ended"
            return Handled(command_id=row.id, plan=Drop(reason=reason))
        resumed_as = CommandType.RECOVER_TOLERANCE_FAULT_PROCESS
        tx.update(
            self._db.processes,
            process.id,
            host=node.address,
            owner_incarnation=node.incarnation,
            owner_epoch=plan.epoch + 1,
            recovery=1,
            command_type=int(resumed_as),
            history_cmd=_history(process, resumed_as),
            update_time=now,
        )
        owned = Ownership(process_instance_id=process.id, host=node.address, epoch=plan.epoch + 1)
        return Handled(command_id=row.id, plan=plan, ownership=owned)

    def _signal(self, tx: Transaction, row: CommandRecord, plan: Signal, now: datetime) -> Handled:
        process = self._db.processes.get(plan.process_instance_id)
        if process is None or not process.is_live or process.wanted_state == plan.wanted_state:
            reason = (
                f"process instance {plan.process_instance_id} has ended or is asked for "
                f"{plan.wanted_state.name} already"
            )
            return Handled(command_id=row.id, plan=Drop(reason=reason))
        tx.update(
            self._db.processes,
            process.id,
            wanted_state=int(plan.wanted_state),
            wanted_at=now,
            command_type=int(plan.command_type),
            history_cmd=_history(process, plan.command_type),
            update_time=now,
        )
        return Handled(command_id=row.id, plan=plan)


def _command_row(row: CommandRecord, param_limit_bytes: int) -> CommandRow:
    param_bytes = len((row.command_param or "").encode())
    return CommandRow(
        id=row.id,
        command_type=row.command_type,
        process_definition_id=row.process_definition_id,
        command_param=None if param_bytes > param_limit_bytes else row.command_param,
        param_bytes=param_bytes,
        task_depend_type=row.task_depend_type,
        failure_strategy=row.failure_strategy,
        warning_type=row.warning_type,
        warning_group_id=row.warning_group_id,
        schedule_time=row.schedule_time,
        start_time=row.start_time,
        executor_id=row.executor_id,
        process_instance_priority=row.process_instance_priority,
        worker_group_id=row.worker_group_id,
    )


def _definition_snapshot(row: DefinitionRecord) -> DefinitionSnapshot:
    return DefinitionSnapshot(
        id=row.id,
        name=row.name,
        version=row.version,
        release_state=ReleaseState(row.release_state),
        usable=row.flag == 1,
        process_definition_json=row.process_definition_json or "",
        global_params=row.global_params,
        timeout_minutes=row.timeout,
        tenant_id=row.tenant_id,
        locations=row.locations,
        connects=row.connects,
    )


def _history(process: ProcessRecord, command_type: CommandType) -> str:
    return (
        f"{process.history_cmd},{command_type.name}" if process.history_cmd else command_type.name
    )


@dataclass(slots=True)
class _Wake:
    """What the registry has to be told once a save stands."""

    offered: list[int] = field(default_factory=list)
    kills: list[KillEntry] = field(default_factory=list)
    withdrawn: list[QueueEntry] = field(default_factory=list)


class MemoryRunStore:
    """`RunStore` in memory. The simulator plants a mistake by overriding `_is_owned`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
        return tuple(
            LoadedRun(
                ownership=ownership,
                process=_process_row(process),
                tasks=tuple(_task_row(task) for task in self._tasks(process.id)),
            )
            for ownership in ownerships
            if (process := self._db.processes.get(ownership.process_instance_id)) is not None
            and self._is_owned(process, ownership)
        )

    def save(self, steps: Sequence[Step]) -> Saved:
        lost: list[Ownership] = []
        wake = _Wake()
        with self._db.transaction("save") as tx:
            for step in steps:
                process = self._db.processes.get(step.ownership.process_instance_id)
                if process is None or not self._is_owned(process, step.ownership):
                    lost.append(step.ownership)
            for step in steps:
                if step.ownership in lost:
                    continue
                tx.by = step.ownership
                for decision in step.decisions:
                    try:
                        self._write(tx, step, decision, wake)
                    except RowRefusedError as error:
                        raise StoreConflictError(
                            f"process instance {step.ownership.process_instance_id}: "
                            f"{decision!r}: {error}"
                        ) from error
        gone = [entry.task_instance_id for entry in wake.withdrawn]
        return Saved(
            lost=frozenset(lost),
            offers=tuple(self._entry(task_id) for task_id in wake.offered if task_id not in gone),
            kills=tuple(wake.kills),
            withdrawn=tuple(wake.withdrawn),
        )

    def owned(self, node: Node) -> frozenset[Ownership]:
        return frozenset(_ownership(process) for process in self._live_runs(node))

    def reports(self, node: Node) -> tuple[TaskReport, ...]:
        mine = [process.id for process in self._live_runs(node)]
        return tuple(
            TaskReport(
                process_instance_id=task.process_instance_id,
                task_instance_id=task.id,
                name=task.name,
                attempt=task.attempt,
                state=TaskState(task.state),
                end_time=task.end_time or EPOCH,
                reason=task.reason,
            )
            for task in self._db.tasks
            if task.process_instance_id in mine
            and task.is_finished
            and not task.settled
            and task.flag == 1
        )

    def wanted(self, node: Node) -> dict[Ownership, ProcessState]:
        return {
            _ownership(process): ProcessState(process.wanted_state)
            for process in self._live_runs(node)
            if process.wanted_state is not None
        }

    def unclaimed(self, node: Node, *, submitted_before: datetime) -> tuple[QueueEntry, ...]:
        mine = [process.id for process in self._live_runs(node)]
        entries = [
            self._entry(task.id)
            for task in self._db.tasks
            if task.process_instance_id in mine
            and task.state == TaskState.SUBMITTED
            and task.submit_time is not None
            and task.submit_time < submitted_before
        ]
        return tuple(sorted(entries, key=lambda entry: entry.sort_key))

    def _is_owned(self, process: ProcessRecord, ownership: Ownership) -> bool:
        return process.host == ownership.host and process.owner_epoch == ownership.epoch

    def _live_runs(self, node: Node) -> list[ProcessRecord]:
        return [
            process for process in self._db.processes if process.is_live and process.owner == node
        ]

    def _tasks(self, process_instance_id: int) -> list[TaskRecord]:
        return [task for task in self._db.tasks if task.process_instance_id == process_instance_id]

    def _write(self, tx: Transaction, step: Step, decision: Decision, wake: _Wake) -> None:
        run_id = step.ownership.process_instance_id
        match decision:
            case SubmitTask():
                wake.offered.append(self._submit(tx, run_id, decision, step.at))
            case FinishTask() | RetryTask():
                task = self._attempt(run_id, decision.name, decision.attempt)
                if task.state != decision.state or task.settled:
                    raise _conflict(run_id, decision.name, decision.attempt)
                retry_at = decision.at if isinstance(decision, RetryTask) else None
                tx.update(self._db.tasks, task.id, settled=True, retry_at=retry_at)
            case GiveUpRetry():
                task = self._attempt(run_id, decision.name, decision.attempt)
                if task.retry_at is None:
                    raise _conflict(run_id, decision.name, decision.attempt)
                tx.update(self._db.tasks, task.id, retry_at=None)
            case KillTask():
                task = self._attempt(run_id, decision.name, decision.attempt)
                if task.state == TaskState.SUBMITTED:
                    tx.update(
                        self._db.tasks,
                        task.id,
                        state=int(TaskState.KILL),
                        wanted_state=int(TaskState.KILL),
                        end_time=step.at,
                        reason=WITHDRAWN,
                    )
                    wake.withdrawn.append(self._entry(task.id))
                else:
                    # Also on one that has just ended: its report is read with the wish in mind.
                    tx.update(self._db.tasks, task.id, wanted_state=int(TaskState.KILL))
                    if task.state == TaskState.RUNNING and task.host is not None:
                        wake.kills.append(KillEntry(address=task.host, task_instance_id=task.id))
            case StopProcess():
                self._live(run_id)
                tx.update(
                    self._db.processes,
                    run_id,
                    state=int(ProcessState.READY_STOP),
                    update_time=step.at,
                )
            case FinishProcess():
                self._live(run_id)
                tx.update(
                    self._db.processes,
                    run_id,
                    state=int(decision.state),
                    end_time=step.at,
                    state_reason=None if decision.reason is None else storable(decision.reason),
                    update_time=step.at,
                )
            case PassForbidden():
                pass
            case _:
                assert_never(decision)

    def _submit(self, tx: Transaction, run_id: int, decision: SubmitTask, at: datetime) -> int:
        process = self._live(run_id)
        for task in self._tasks(run_id):
            if task.name == decision.name and task.flag == 1:
                tx.update(self._db.tasks, task.id, flag=0)
        return tx.insert(
            self._db.tasks,
            TaskRecord(
                name=decision.name,
                task_type=decision.task_type,
                process_definition_id=process.process_definition_id,
                process_instance_id=run_id,
                task_json=decision.task_json,
                state=int(TaskState.SUBMITTED),
                submit_time=at,
                start_time=at,
                retry_times=decision.retry_times,
                retry_interval=decision.retry_interval // timedelta(minutes=1),
                max_retry_times=decision.max_retry_times,
                task_instance_priority=int(decision.priority),
                worker_group_id=decision.worker_group_id,
                executor_id=process.executor_id,
                attempt=decision.attempt,
            ),
        )

    def _attempt(self, run_id: int, name: str, attempt: int) -> TaskRecord:
        for task in self._tasks(run_id):
            if task.name == name and task.attempt == attempt:
                return task
        raise _conflict(run_id, name, attempt)

    def _live(self, run_id: int) -> ProcessRecord:
        process = self._db.processes.get(run_id)
        if process is None or not process.is_live:
            raise StoreConflictError(f"process instance {run_id} has ended already")
        return process

    def _entry(self, task_instance_id: int) -> QueueEntry:
        task = self._db.tasks.get(task_instance_id)
        assert task is not None
        process = self._db.processes.get(task.process_instance_id)
        assert process is not None
        group_id = effective_group(task.worker_group_id, process.worker_group_id)
        group = self._db.worker_groups.get(group_id)
        return queue_entry(
            process_priority=process.process_instance_priority,
            process_instance_id=process.id,
            task_priority=task.task_instance_priority,
            task_instance_id=task.id,
            worker_group_id=group_id,
            ip_list=None if group is None else group.ip_list,
        )


def _ownership(process: ProcessRecord) -> Ownership:
    assert process.host is not None
    return Ownership(process_instance_id=process.id, host=process.host, epoch=process.owner_epoch)


def _conflict(run_id: int, name: str, attempt: int) -> StoreConflictError:
    return StoreConflictError(
        f"process instance {run_id}: attempt {attempt} of task {name!r} is not as its owner believes"
    )


def _process_row(process: ProcessRecord) -> ProcessRow:
    return ProcessRow(
        id=process.id,
        name=process.name,
        state=ProcessState(process.state),
        wanted_state=None if process.wanted_state is None else ProcessState(process.wanted_state),
        failure_strategy=FailureStrategy(process.failure_strategy),
        priority=Priority(process.process_instance_priority),
        worker_group_id=process.worker_group_id,
        task_depend_type=process.task_depend_type,
        command_param=process.command_param or "",
        process_definition_id=process.process_definition_id,
        process_instance_json=process.process_instance_json,
        executor_id=process.executor_id,
        start_time=process.start_time,
    )


def _task_row(task: TaskRecord) -> TaskRow:
    return TaskRow(
        id=task.id,
        name=task.name,
        attempt=task.attempt,
        state=TaskState(task.state),
        retry_times=task.retry_times,
        valid=task.flag == 1,
        settled=task.settled,
        end_time=task.end_time,
        retry_at=task.retry_at,
        kill_requested=task.wanted_state == TaskState.KILL,
    )


class MemoryTaskStore:
    """`TaskStore` in memory. The simulator plants mistakes by overriding `_may_start`, `_holds`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
    ) -> tuple[ClaimedTask, ...]:
        claimed = []
        with self._db.transaction("claim", by=node) as tx:
            for task_id in dict.fromkeys(task_instance_ids):
                task = self._db.tasks.get(task_id)
                if task is None or not self._may_start(task):
                    continue
                places = folders.paths(
                    task.process_definition_id, task.process_instance_id, task.id
                )
                tx.update(
                    self._db.tasks,
                    task.id,
                    state=int(TaskState.RUNNING),
                    host=node.address,
                    worker_incarnation=node.incarnation,
                    start_time=now,
                    execute_path=places.execute_path,
                    log_path=places.log_path,
                )
                claimed.append(self._claimed(task, places, now))
        return tuple(claimed)

    def started(self, node: Node, pids: dict[int, tuple[int, float]]) -> None:
        with self._db.transaction("started", by=node) as tx:
            for task_id, (pid, start_time) in pids.items():
                task = self._db.tasks.get(task_id)
                if task is not None and self._holds(task, node):
                    tx.update(self._db.tasks, task_id, pid=pid, pid_start_time=start_time)

    def report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        reported = []
        with self._db.transaction("report", by=node) as tx:
            for end in ends:
                task = self._db.tasks.get(end.task_instance_id)
                if task is None or not self._holds(task, node):
                    continue
                tx.update(
                    self._db.tasks,
                    task.id,
                    state=int(end.state),
                    end_time=end.end_time,
                    exit_code=end.exit_code,
                    pid=task.pid if end.pid is None else end.pid,
                    reason=None if end.reason is None else storable(end.reason),
                )
                reported.append(task.id)
        return frozenset(reported)

    def running(self, node: Node) -> dict[int, bool]:
        return {
            task.id: task.wanted_state == TaskState.KILL
            for task in self._db.tasks
            if self._holds(task, node)
        }

    def adopt(self, node: Node, task_instance_ids: Collection[int]) -> frozenset[int]:
        adopted = []
        with self._db.transaction("adopt", by=node) as tx:
            for task_id in dict.fromkeys(task_instance_ids):
                task = self._db.tasks.get(task_id)
                if (
                    task is not None
                    and task.state == TaskState.RUNNING
                    and task.host == node.address
                    and task.worker_incarnation != node.incarnation
                ):
                    tx.update(self._db.tasks, task_id, worker_incarnation=node.incarnation)
                    adopted.append(task_id)
        return frozenset(adopted)

    def _may_start(self, task: TaskRecord) -> bool:
        process = self._db.processes.get(task.process_instance_id)
        return (
            task.state == TaskState.SUBMITTED
            and task.flag == 1
            and task.wanted_state is None
            and process is not None
            and process.is_live
        )

    def _holds(self, task: TaskRecord, node: Node) -> bool:
        return (
            task.state == TaskState.RUNNING
            and task.host == node.address
            and task.worker_incarnation == node.incarnation
        )

    def _claimed(self, task: TaskRecord, paths: AttemptPaths, now: datetime) -> ClaimedTask:
        process = self._db.processes.get(task.process_instance_id)
        assert process is not None
        tenant = self._tenant(process)
        return ClaimedTask(
            id=task.id,
            process_instance_id=process.id,
            process_definition_id=task.process_definition_id,
            process_name=process.name,
            name=task.name,
            attempt=task.attempt,
            task_type=task.task_type,
            task_json=task.task_json,
            global_params=process.global_params,
            schedule_time=process.schedule_time,
            complement=(process.history_cmd or "").split(",")[0]
            == CommandType.COMPLEMENT_DATA.name,
            tenant_code=None if tenant is None else tenant.tenant_code,
            queue=self._queue(process, tenant),
            executor_id=process.executor_id,
            execute_path=paths.execute_path,
            log_path=paths.log_path,
            start_time=now,
            submit_time=task.submit_time,
        )

    def _tenant(self, process: ProcessRecord) -> TenantRecord | None:
        definition = self._db.definitions.get(process.process_definition_id)
        if definition is None:
            return None
        own = self._db.tenants.get(process.tenant_id)
        creator = self._db.users.get(definition.user_id)
        if own is not None or creator is None:
            return own
        return self._db.tenants.get(creator.tenant_id)

    def _queue(self, process: ProcessRecord, tenant: TenantRecord | None) -> str | None:
        executor = self._db.users.get(process.executor_id)
        if executor is not None and executor.queue:
            return executor.queue
        queue = None if tenant is None else self._db.queues.get(tenant.queue_id)
        return None if queue is None else queue.queue


class MemoryFailoverStore:
    """`FailoverStore` in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def run_owners(self) -> frozenset[Node]:
        awaited = [command.process_instance_id for command in self._db.commands]
        return frozenset(
            process.owner
            for process in self._db.processes
            if process.is_live and process.owner is not None and process.id not in awaited
        )

    def task_owners(self) -> frozenset[Node]:
        return frozenset(
            Node(address=task.host, incarnation=task.worker_incarnation)
            for task in self._running()
            if task.host is not None and task.worker_incarnation is not None
        )

    def recover_runs(self, dead: Node, *, now: datetime) -> int:
        awaited = [command.process_instance_id for command in self._db.commands]
        recovered = 0
        with self._db.transaction("recover_runs") as tx:
            for process in self._db.processes:
                if not process.is_live or process.owner != dead or process.id in awaited:
                    continue
                tx.insert(
                    self._db.commands,
                    CommandRecord(
                        command_type=int(CommandType.RECOVER_TOLERANCE_FAULT_PROCESS),
                        process_definition_id=process.process_definition_id,
                        command_param=json.dumps(
                            {"ProcessInstanceId": process.id}, separators=(",", ":")
                        ),
                        start_time=now,
                        update_time=now,
                        executor_id=process.executor_id,
                        process_instance_priority=process.process_instance_priority,
                        process_instance_id=process.id,
                    ),
                )
                recovered += 1
        return recovered

    def fail_tasks_over(self, dead: Node, *, now: datetime) -> int:
        failed_over = 0
        with self._db.transaction("fail_tasks_over") as tx:
            for task in self._running():
                if task.host != dead.address or task.worker_incarnation != dead.incarnation:
                    continue
                tx.update(
                    self._db.tasks,
                    task.id,
                    state=int(TaskState.NEED_FAULT_TOLERANCE),
                    end_time=now,
                    reason=f"worker {dead.address} was lost",
                )
                failed_over += 1
        return failed_over

    def _running(self) -> list[TaskRecord]:
        live = [process.id for process in self._db.processes if process.is_live]
        return [
            task
            for task in self._db.tasks
            if task.state == TaskState.RUNNING
            and task.flag == 1
            and task.process_instance_id in live
        ]
