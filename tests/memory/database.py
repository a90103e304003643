"""A database in memory: the tables, transactions over them, and the constraints of the real schema.

A transaction is whole or nothing, also when the process "dies" at its commit:
`MemoryDatabase.commit_hook` is called before and after each commit and may raise. Every change of a
row is kept in `MemoryDatabase.changes` for checkers, and what the triggers of the real schema would
call out is kept in `MemoryDatabase.notifications`. Single-threaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, TypeAlias

from common.model.cluster import Node, QueueEntry
from common.model.commands import OWN_RECOVERIES, RESTARTING_COMMANDS, CommandType
from common.model.grants import GrantedObject, GrantKind
from common.model.instances import Ownership
from common.model.memory_factor import MAX_MEMORY_FACTOR
from common.model.schedules import MisfirePolicy
from common.model.states import TERMINAL_PROCESS_STATES, TaskState
from common.model.workers import WorkerMode
from common.store.listen import Channel
from common.store.master.plain_save import HintTarget, channel_of
from common.store.master.trees import MOST_SUB_PROCESSES
from common.store.transaction import unstorable
from tests.memory.fires import FireRows
from tests.memory.lock_rows import LockHolderRecord, LockRecord, LockRequestRecord
from tests.memory.project_slots import project_of_command
from tests.memory.rows import (
    EPOCH,
    AlertRecord,
    CommandRecord,
    ComplementDateRecord,
    ComplementRecord,
    DataSourceRecord,
    DefinitionRecord,
    EnvironmentRecord,
    ErrorCommandRecord,
    FireRecord,
    LedgerRecord,
    LogTailRecord,
    PoolQueueRecord,
    PoolRecord,
    ProcessRecord,
    QualityRecord,
    QueueRecord,
    R,
    Record,
    RelationRecord,
    Rows,
    ScheduleRecord,
    TaskRecord,
    TenantRecord,
    UserRecord,
    WorkerGroupRecord,
    WorkerServerRecord,
)
from tests.memory.stream_rows import (
    OffsetRecord,
    RuntimeRecord,
    SegmentRecord,
    SpecRecord,
    StreamRequestRecord,
    StreamTaskRecord,
)

CommitHook: TypeAlias = Callable[[str, Literal["before", "after"]], None]
By: TypeAlias = Node | Ownership | None

_BIG_COLUMNS = frozenset(
    {
        "owner_incarnation",
        "owner_epoch",
        "worker_incarnation",
        "incarnation",
        "code",
        "environment_code",
        "position",
    }
)

_RECOVERIES = (
    *RESTARTING_COMMANDS,
    CommandType.RECOVER_TOLERANCE_FAULT_PROCESS,
    CommandType.RECOVER_WAITTING_THREAD,
    CommandType.RECOVER_SERIAL_WAIT,
)

_WHEN_IT_FIRES = (
    "process_definition_id",
    "crontab",
    "timezone_id",
    "missing_time",
    "repeated_time",
    "start_time",
    "end_time",
)

_NAMED_IN_PARAM = re.compile(
    r'"(?:ProcessInstanceId|WaittingThreadInstanceId)"\s*:\s*"?\s*([0-9]{1,10})(?![0-9])'
)


class RowRefusedError(Exception):
    """A row breaks a constraint of the schema, for which PostgreSQL has an error of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row before and after one statement; None before an insert, and after a delete.

    `by` is the actor: an incarnation, a run's owner as of its epoch, or None for a person.
    """

    transaction: str
    by: By
    table: str
    id: int
    old: Record | None
    new: Record | None


@dataclass(slots=True)
class Transaction:
    """Changes that their maker sees at once and that can be rolled back until the commit."""

    name: str
    database: MemoryDatabase
    by: By
    _undo: list[tuple[Rows[Any], int, Record | None]] = field(default_factory=list)
    _changes: list[Change] = field(default_factory=list)
    _notifications: list[tuple[str, str]] = field(default_factory=list)

    def insert(self, rows: Rows[R], record: R) -> int:
        """Write a new row; return its id."""
        row_id = record.id or rows.next_id()
        filled_in = _filled_in(record) | self._moved(record)
        if isinstance(record, CommandRecord):
            row = replace(record, **filled_in)
            filled_in["project_id"] = project_of_command(self.database, row)
        self._write(rows, row_id, None, replace(record, id=row_id, **filled_in))
        return row_id

    def update(self, rows: Rows[R], row_id: int, **columns: Any) -> None:
        """Change columns of the row of that id."""
        old = rows.get(row_id)
        assert old is not None, f"{rows.name} has no row {row_id}"
        new = replace(old, **columns)
        filled_in = self._counted_anew(old, new) | self._moved(new)
        self._write(rows, row_id, old, replace(new, **filled_in) if filled_in else new)

    def delete(self, rows: Rows[R], row_id: int) -> None:
        """Remove the row of that id."""
        old = rows.get(row_id)
        assert old is not None, f"{rows.name} has no row {row_id}"
        self._write(rows, row_id, old, None)

    def hint(self, hint_to: HintTarget, offers: Sequence[QueueEntry]) -> bool:
        """Tell a worker of new attempts, as plain saves and takes do; False if there is none."""
        channel = channel_of(hint_to, len(offers))
        hinted = [each.name for each in offers if each.is_for_any]
        if channel is not None and hinted:
            self._notifications.append((channel, " ".join(hinted)))
        return channel is not None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back the changes inside if the block raises."""
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
        """Roll back everything."""
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

    def _counted_anew(self, old: Record, new: Record) -> Any:
        """The trigger's changes to a schedule that comes online, or whose fires change."""
        if not isinstance(old, ScheduleRecord) or not isinstance(new, ScheduleRecord):
            return {}
        came_online = new.release_state == 1 and old.release_state != 1
        if came_online or any(getattr(old, name) != getattr(new, name) for name in _WHEN_IT_FIRES):
            return {
                "counted_from": self._counted_from(old, new),
                "next_fire_time": None,
                "fault": None,
            }
        # Its parameters may be the cause of its error too; once they change, it continues in place.
        return {"fault": None} if new.start_params != old.start_params else {}

    def _counted_from(self, old: ScheduleRecord, new: ScheduleRecord) -> datetime:
        """Due now; but fires that were due stay due if only the window changes."""
        moments = [self.database.now()]
        window = replace(new, start_time=old.start_time, end_time=old.end_time)
        if old.release_state == 1 and all(
            getattr(old, name) == getattr(window, name) for name in _WHEN_IT_FIRES
        ):
            if old.counted_from is not None:
                moments.append(old.counted_from)
            if old.next_fire_time is not None:
                moments.append(old.next_fire_time - timedelta(seconds=1))
        return min(moments)

    def _moved(self, row: Record) -> dict[str, Any]:
        """The column that the trigger of a dataset's offsets fills in."""
        return {"since": self.database.now()} if isinstance(row, OffsetRecord) else {}

    def _notify(self, old: Record | None, new: Record | None) -> None:
        """The notifications of the triggers of `common.store.schema`."""
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
            case PoolRecord(), PoolRecord() if new.group_size != old.group_size:
                calls.append((Channel.HOLD, ""))
            case None, ScheduleRecord():
                calls.append((Channel.SCHEDULE, ""))
            case ScheduleRecord(), ScheduleRecord() if any(
                getattr(old, name) != getattr(new, name)
                for name in ("release_state", "start_params", *_WHEN_IT_FIRES)
            ):
                calls.append((Channel.SCHEDULE, ""))
            case None, ComplementRecord():
                calls.append((Channel.COMPLEMENT, ""))
            case ComplementRecord(), ComplementRecord() if new.state != old.state:
                calls.append((Channel.COMPLEMENT, ""))
            case _, OffsetRecord():
                calls.append((Channel.DATASET, new.dataset))
            case None, StreamTaskRecord():
                calls.append((Channel.DATASET, new.assignment.supervisor))


def _filled_in(record: Record) -> Any:
    """The columns that a trigger fills in before an insert: of a recovery, what it recovers."""
    if (
        not isinstance(record, CommandRecord)
        or record.process_instance_id
        or record.parent_task_instance_id
        or record.command_type not in _RECOVERIES
    ):
        return {}
    found = _NAMED_IN_PARAM.search(record.command_param or "")
    if found is None or not 0 < int(found[1]) < 2**31:
        return {}
    return {"process_instance_id": int(found[1])}


def _report_payload(task: TaskRecord) -> str:
    assert task.end_time is not None
    seconds = task.end_time.timestamp()
    ids = [task.process_instance_id, task.id, task.attempt, task.state]
    output = task.var_pool is not None
    return json.dumps([*ids, seconds, task.name, output, task.failure_reason])


@cache
def _columns(record_type: type[Record]) -> tuple[str, ...]:
    return tuple(column.name for column in fields(record_type))


def _no_hook(_transaction: str, _moment: Literal["before", "after"]) -> None:
    return None


class MemoryDatabase:
    """The tables that the loops use, with the rows that a fresh database holds.

    `commit_hook(name, moment)` is called around each commit that changes something, with the name
    of the store's method. An error raised `before` rolls the transaction back; one raised `after`
    leaves it committed. `begin_hook(name)` is called before a transaction reads anything, so that
    others may act while its maker is suspended, and `read_hook(name)` before the reads that a worker
    asks to learn of an outage. Either may raise. `now` is the server's own clock, read only where a
    statement says `now()`.
    """

    def __init__(self, *, os_user: str = "orcaflow") -> None:
        self.most_sub_processes = MOST_SUB_PROCESSES
        self.commands = Rows("t_ds_command", CommandRecord)
        self.error_commands = Rows("t_ds_error_command", ErrorCommandRecord)
        self.ledger = Rows("t_ds_command_ledger", LedgerRecord)
        self.definitions = Rows("t_ds_process_definition", DefinitionRecord)
        self.processes = Rows("t_ds_process_instance", ProcessRecord)
        self.tasks = Rows("t_ds_task_instance", TaskRecord)
        self.pools = Rows("t_ds_task_group", PoolRecord)
        self.pool_queue = Rows("t_ds_task_group_queue", PoolQueueRecord)
        self.locks = Rows("t_ds_task_lock", LockRecord)
        self.lock_holders = Rows("t_ds_task_lock_holder", LockHolderRecord)
        self.lock_requests = Rows("t_ds_task_lock_request", LockRequestRecord)
        self.relations = Rows("t_ds_relation_process_instance", RelationRecord)
        self.schedules = Rows("t_ds_schedules", ScheduleRecord)
        self.fires = FireRows()
        self.complements = Rows("t_ds_complement", ComplementRecord)
        self.complement_dates = Rows("t_ds_complement_date", ComplementDateRecord)
        self.alerts = Rows("t_ds_alert", AlertRecord)
        self.datasources = Rows("t_ds_datasource", DataSourceRecord)
        self.environments = Rows("t_ds_environment", EnvironmentRecord)
        self.quality = Rows("t_ds_quality_result", QualityRecord)
        self.log_tails = Rows("t_ds_task_log_tail", LogTailRecord)
        self.worker_groups = Rows("t_ds_worker_group", WorkerGroupRecord)
        self.worker_servers = Rows("t_ds_worker_server", WorkerServerRecord)
        self.worker_modes: dict[str, WorkerMode] = {}
        self.supervisor_specs = Rows("t_ds_supervisor", SpecRecord)
        self.supervisors = Rows("t_ds_supervisor_runtime", RuntimeRecord)
        self.supervisor_requests = Rows("t_ds_supervisor_command", StreamRequestRecord)
        self.stream_tasks = Rows("t_ds_stream_task", StreamTaskRecord)
        self.dataset_offsets = Rows("t_ds_dataset_offsets", OffsetRecord)
        self.segments = Rows("t_ds_segment", SegmentRecord)
        self.tenants = Rows("t_ds_tenant", TenantRecord)
        self.queues = Rows("t_ds_queue", QueueRecord)
        self.users = Rows("t_ds_user", UserRecord)
        self.revoked: set[tuple[GrantKind, int, int]] = set()
        """Revoked grants. In memory every project may use all other objects."""
        self.commit_hook: CommitHook = _no_hook
        self.begin_hook: Callable[[str], None] = lambda _name: None
        self.read_hook: Callable[[str], None] = lambda _name: None
        self.now: Callable[[], datetime] = lambda: EPOCH
        self.changes: list[Change] = []
        self.notifications: list[tuple[str, str]] = []
        with self.transaction("seed") as tx:
            tx.insert(self.queues, QueueRecord(queue_name="default", queue="default"))
            tx.insert(self.tenants, TenantRecord(tenant_code=os_user))
            tx.insert(self.users, UserRecord(user_name="admin", tenant_id=1))

    def is_granted(self, kind: GrantKind, number: int, project: int) -> bool:
        """Return True if a project may use an object; False for an id that no project can have."""
        return 0 < project < 2**31 and (kind, number, project) not in self.revoked

    def grants_at_start(self, project: int) -> frozenset[GrantedObject]:
        """Return the environments and worker groups that a project may use."""
        objects = (
            *(GrantedObject(GrantKind.ENVIRONMENT, each.code) for each in self.environments),
            *(GrantedObject(GrantKind.WORKER_GROUP, each.id) for each in self.worker_groups),
        )
        return frozenset(each for each in objects if self.is_granted(*each, project))

    def project_of(self, process: ProcessRecord) -> int:
        """Return the project of a run; 0 if its definition was deleted."""
        definition = self.definitions.get(process.process_definition_id)
        return 0 if definition is None else definition.project_id

    @property
    def tables(self) -> tuple[Rows[Any], ...]:
        """Every table."""
        return tuple(rows for rows in vars(self).values() if isinstance(rows, Rows))

    @contextmanager
    def transaction(self, name: str, *, by: By = None) -> Iterator[Transaction]:
        """One transaction: all changes inside, or none."""
        self.begin_hook(name)
        tx = Transaction(name=name, database=self, by=by)
        try:
            yield tx
        except BaseException:
            tx.roll_back()
            raise
        tx.commit()

    def insert(self, rows: Rows[R], **columns: Any) -> int:
        """Insert a row as a person does; returns its id."""
        with self.transaction("insert") as tx:
            return tx.insert(rows, rows.record_type(**columns))

    def update(self, rows: Rows[R], row_id: int, **columns: Any) -> None:
        """Update a row as a person does."""
        with self.transaction("update") as tx:
            tx.update(rows, row_id, **columns)

    def drain_notifications(self) -> list[tuple[str, str]]:
        """Return the notifications since the last call, as (channel, payload)."""
        drained, self.notifications = self.notifications, []
        return drained

    def live_runs(self, node: Node) -> list[ProcessRecord]:
        """The live runs that this incarnation owns."""
        return [process for process in self.processes if process.is_live and process.owner == node]

    def awaited(self) -> list[int]:
        """The process instances for which a master has put a command that waits."""
        return [
            command.process_instance_id
            for command in self.commands
            if command.command_type in OWN_RECOVERIES
        ]

    def attempts(self, process_instance_id: int) -> list[TaskRecord]:
        """Every attempt of a run, oldest first."""
        return [task for task in self.tasks if task.process_instance_id == process_instance_id]

    def dates(self, complement_id: int) -> list[ComplementDateRecord]:
        """The dates of a complement, in their order."""
        found = [date for date in self.complement_dates if date.complement_id == complement_id]
        return sorted(found, key=lambda date: date.position)

    def check(self, old: Record | None, new: Record) -> None:
        """Raise for rows that the real schema refuses."""
        cause = self._broken_constraint(old, new)
        if cause is not None:
            raise RowRefusedError(cause)

    def _broken_constraint(self, old: Record | None, row: Record) -> str | None:
        for name in _columns(type(row)):
            value = getattr(row, name)
            if old is not None and getattr(old, name) is value:
                continue  # It was checked when it was written.
            if isinstance(value, str) and (cause := unstorable({name: value})):
                return cause
            bits = 63 if name in _BIG_COLUMNS else 31
            if isinstance(value, int) and not -(2**bits) <= value < 2**bits:
                return "integer out of range"
        match row:
            case CommandRecord():
                return self._broken_command(row)
            case ProcessRecord():
                return _broken_process(row)
            case TaskRecord():
                return _broken_task(row) or self._broken_uniqueness(old, row)
            case PoolRecord():
                return self._broken_pool(row)
            case PoolQueueRecord():
                return self._broken_share(old, row)
            case ScheduleRecord():
                return _broken_schedule(row)
            case FireRecord() if old is None and self.fires.of(row.schedule_id, row.fire_time):
                return "a fire twice in the ledger"
            case ComplementRecord() if not 1 <= row.parallelism <= 1000:
                return "parallelism is 1 to 1000"
            case ComplementDateRecord() if old is None:
                return self._broken_date(row)
        return None

    def _broken_command(self, row: CommandRecord) -> str | None:
        # Masters' own recoveries are counted apart: a person's recovery of a live run must not hold
        # up its failover.
        if row.process_instance_id and any(
            other.process_instance_id == row.process_instance_id
            and other.id != row.id
            and (other.command_type in OWN_RECOVERIES) == (row.command_type in OWN_RECOVERIES)
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

    def _broken_date(self, row: ComplementDateRecord) -> str | None:
        if self.complements.get(row.complement_id) is None:
            return "a date of no complement"
        if any(other.schedule_time == row.schedule_time for other in self.dates(row.complement_id)):
            return "a date of a complement twice"
        return None

    def _broken_pool(self, row: PoolRecord) -> str | None:
        if not 1 <= row.group_size <= 1_000_000:
            return "a pool has 1 to 1000000 slots"
        if any(other.name == row.name and other.id != row.id for other in self.pools):
            return "two pools of one name"
        return None

    def _broken_share(self, old: Record | None, row: PoolQueueRecord) -> str | None:
        if row.weight < 1:
            return "less than one slot"
        if old is None and any(
            (other.task_id, other.group_id) == (row.task_id, row.group_id)
            for other in self.pool_queue
        ):
            return "an attempt in a pool twice"
        return None


def _broken_schedule(row: ScheduleRecord) -> str | None:
    checks = {
        "crontab empty": not row.crontab,
        "crontab too long": len(row.crontab) > 256,
        "ends before it starts": row.end_time <= row.start_time,
        "unknown misfire policy": row.misfire_policy not in tuple(MisfirePolicy),
        "misfire limit": not 1 <= row.misfire_limit <= 1000,
        "deadline": row.deadline < 0,
        "unknown execution type": row.execution_type not in (None, 0, 1, 2, 3),
    }
    return next((cause for cause, broken in checks.items() if broken), None)


def _broken_process(row: ProcessRecord) -> str | None:
    checks = {
        "name too long": len(row.name) > 320,
        "name empty": not row.name,
        "ended without an end time": row.state in TERMINAL_PROCESS_STATES and row.end_time is None,
        "unknown wanted state": row.wanted_state not in (None, 3, 5, 6),
    }
    return next((cause for cause, broken in checks.items() if broken), None)


def _broken_task(row: TaskRecord) -> str | None:
    checks = {
        "name too long": len(row.name) > 255,
        "running without a worker": row.state == TaskState.RUNNING
        and not row.is_workerless
        and (row.host is None or row.worker_incarnation is None),
        "finished without an end time": row.is_finished and row.end_time is None,
        "superseded but not finished": row.flag == 0 and not row.is_finished,
        "settled but not finished": row.settled and not row.is_finished,
        "unknown wanted state": row.wanted_state not in (None, 3, 9),
        "memory factor": not 1 <= row.memory_factor <= MAX_MEMORY_FACTOR,
    }
    return next((cause for cause, broken in checks.items() if broken), None)
