"""Supervisors of streams in memory: leases, steps, requests of people, orders, reports.

The rules are those of `common.store.master.supervisors` and `common.store.worker.stream_tasks`.
Publications into the dataset are in `tests.memory.datasets`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.commands import CommandOutcome, CommandType
from common.model.plans import LedgerLine
from common.model.states import FailureStrategy, ProcessState, TaskState
from common.model.streams.requests import Request, RequestKind
from common.model.streams.tasks import TASK_PARAMETER, Assignment, Orders, TaskReport
from common.store.listen import ORDERS, hint_channel
from common.store.master.supervisor_ports import (
    AddOffsets,
    Change,
    DropOffsets,
    EndTask,
    GiveOrders,
    Lease,
    LeaseLostError,
    OutdatedStepError,
    Pulse,
    PutOffsets,
    PutSpec,
    StartAssignment,
    StreamTaskRow,
    SupervisorRows,
    SupervisorStep,
    TellPeople,
)
from common.store.transaction import StoreConflictError
from common.store.worker.stream_tasks import StreamWork
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.ledger import enter
from tests.memory.rows import CommandRecord, ProcessRecord, Rows, TaskRecord

_GOOD = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRecord:
    """A row of `t_ds_supervisor`."""

    id: int = 0
    name: str
    version: int
    document: Any
    suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """A row of `t_ds_supervisor_runtime`; `writer` and `writer_epoch` are for checkers."""

    id: int = 0
    name: str
    version: int
    definition_id: int
    owner: Node | None = None
    owner_epoch: int = 0
    lease_until: datetime | None = None
    writer: Node | None = None
    writer_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequestRecord:
    """A row of `t_ds_supervisor_command`."""

    id: int = 0
    supervisor: str
    kind: str
    body: Any = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTaskRecord:
    """A row of `t_ds_stream_task`."""

    id: int = 0
    assignment: Assignment
    command_id: int
    orders: Orders = field(default_factory=Orders)
    ending_since: datetime | None = None
    killed: bool = False
    closed: bool = False
    task_instance_id: int = 0
    report: TaskReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A row of `t_ds_dataset_offsets`."""

    id: int = 0
    dataset: str
    stream: str
    partition: int
    position: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """A row of `t_ds_segment`; its file is named by a path. `beside`: the lock that replaces."""

    id: int = 0
    dataset: str
    chunk: int
    sequence: str
    path: str
    task_id: int
    used: bool = True
    beside: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldRecord:
    """An alert of a supervisor."""

    id: int = 0
    supervisor: str
    text: str


class StreamTables:
    """The tables of supervisors and datasets beside those of the database."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.db = database
        self.specs = Rows("t_ds_supervisor", SpecRecord)
        self.runtimes = Rows("t_ds_supervisor_runtime", RuntimeRecord)
        self.requests = Rows("t_ds_supervisor_command", StreamRequestRecord)
        self.tasks = Rows("t_ds_stream_task", StreamTaskRecord)
        self.offsets = Rows("t_ds_dataset_offsets", OffsetRecord)
        self.segments = Rows("t_ds_segment", SegmentRecord)
        self.told = Rows("t_ds_alert", ToldRecord)
        self.batches: set[int] = set()
        """Holders of locks that are no attempts: batch writers, by numbers below zero."""
        self._runs: dict[int, int] = {}

    def runtime(self, name: str) -> RuntimeRecord | None:
        return next((row for row in self.runtimes if row.name == name), None)

    def stored(self, dataset: str) -> dict[int, OffsetRecord]:
        return {row.partition: row for row in self.offsets if row.dataset == dataset}

    def run_of(self, command_id: int) -> ProcessRecord | None:
        """Return the run that a command became."""
        found = self._runs.get(command_id)
        if found is not None:
            return self.db.processes.the(found)
        for process in self.db.processes:
            if process.command_id is not None:
                self._runs.setdefault(process.command_id, process.id)
        found = self._runs.get(command_id)
        return None if found is None else self.db.processes.the(found)

    def attempt_of(self, task: StreamTaskRecord) -> TaskRecord | None:
        """Return the newest valid attempt of a stream task."""
        run = self.run_of(task.command_id)
        if run is None:
            return None
        valid = [each for each in self.db.attempts(run.id) if each.flag == 1]
        return valid[-1] if valid else None

    def of_attempt(self, node: Node, task_id: int) -> StreamTaskRecord | None:
        """Return the stream task of an attempt that this worker runs."""
        task = self.db.tasks.get(task_id)
        if (
            task is None
            or task.state != TaskState.RUNNING
            or (task.host, task.worker_incarnation) != (node.address, node.incarnation)
        ):
            return None
        command = self.db.processes.the(task.process_instance_id).command_id
        return next((row for row in self.tasks if row.command_id == command), None)


class MemorySupervisorStore:
    """The keeper's port in memory."""

    def __init__(self, tables: StreamTables) -> None:
        self._tables = tables
        self._db = tables.db

    def claim(self, node: Node, *, lease: timedelta, limit: int) -> tuple[Lease, ...]:
        now = self._db.now()
        with self._db.transaction("claim_supervisors", by=node) as tx:
            free = [
                row
                for row in self._tables.runtimes
                if row.lease_until is None or row.lease_until <= now
            ][:limit]
            for row in free:
                tx.update(
                    self._tables.runtimes,
                    row.id,
                    owner=node,
                    owner_epoch=row.owner_epoch + 1,
                    lease_until=now + lease,
                )
        return tuple(Lease(supervisor=row.name, epoch=row.owner_epoch + 1) for row in free)

    def renew(
        self, node: Node, leases: Collection[Lease], *, lease: timedelta
    ) -> Mapping[Lease, Pulse]:
        pulses: dict[Lease, Pulse] = {}
        with self._db.transaction("renew_supervisors", by=node) as tx:
            for each in leases:
                row = self._owned(node, each)
                if row is None:
                    continue
                until = self._db.now() + lease
                tx.update(self._tables.runtimes, row.id, lease_until=until)
                asked = [one.id for one in self._tables.requests if one.supervisor == row.name]
                pulses[each] = Pulse(
                    version=row.version, last_request=max(asked, default=0), tasks=self._digest()
                )
        return pulses

    def release(self, node: Node, leases: Collection[Lease]) -> None:
        with self._db.transaction("release_supervisors", by=node) as tx:
            for each in leases:
                row = self._tables.runtime(each.supervisor)
                if row is not None and (row.owner, row.owner_epoch) == (node, each.epoch):
                    tx.update(self._tables.runtimes, row.id, lease_until=None, owner=None)

    def load(self, lease: Lease) -> SupervisorRows | None:
        self._db.read_hook("load_supervisor")
        row = self._tables.runtime(lease.supervisor)
        if row is None:
            return None
        spec = max(
            (one for one in self._tables.specs if one.name == row.name),
            key=lambda one: one.version,
        )
        return SupervisorRows(
            version=row.version,
            is_tombstone=False,
            spec_version=spec.version,
            document=spec.document,
            suspended=spec.suspended,
            stored={
                partition: (each.stream, each.position)
                for partition, each in self._tables.stored(row.name).items()
            },
            tasks=tuple(self._task(each) for each in self._tables.tasks if not each.closed),
            requests=tuple(
                Request.of(one.id, one.kind, one.body)
                for one in self._tables.requests
                if one.supervisor == row.name
            ),
        )

    def apply(self, node: Node, lease: Lease, step: SupervisorStep, *, now: datetime) -> None:
        with self._db.transaction("apply_step", by=node) as tx:
            row = self._owned(node, lease)
            if row is None:
                raise LeaseLostError(f"supervisor {lease.supervisor!r} is not this master's")
            tx.update(self._tables.runtimes, row.id, writer=node, writer_epoch=lease.epoch)
            for change in step.changes:
                self._write(tx, node, row, step, change, now=now)
            for task in list(self._tables.tasks):
                if task.assignment.name in step.closed:
                    tx.update(self._tables.tasks, task.id, closed=True)
            for request in step.requests:
                if self._tables.requests.get(request) is None:
                    raise StoreConflictError("a request is gone")
                tx.delete(self._tables.requests, request)

    def _owned(self, node: Node, lease: Lease) -> RuntimeRecord | None:
        row = self._tables.runtime(lease.supervisor)
        if row is None or (row.owner, row.owner_epoch) != (node, lease.epoch):
            return None
        is_over = row.lease_until is None or row.lease_until <= self._db.now()
        return None if is_over else row

    def _digest(self) -> str:
        said = []
        for each in self._tables.tasks:
            if each.closed:
                continue
            row = self._task(each)
            run = self._tables.run_of(each.command_id)
            report = row.report
            said.append(
                f"{each.id}:{run is None or run.state}:{row.attempt}:{row.succeeded}"
                f":{row.assigned}:{report.state}:{report.obeyed}:{report.full}"
            )
        return ",".join(said)

    def _task(self, row: StreamTaskRecord) -> StreamTaskRow:
        attempt = self._tables.attempt_of(row)
        assigned = attempt is not None and attempt.state == TaskState.RUNNING
        is_news = attempt is not None and row.task_instance_id == attempt.id
        return StreamTaskRow(
            assignment=row.assignment,
            orders=row.orders,
            ending_since=row.ending_since,
            killed=row.killed,
            attempt=None if attempt is None else attempt.id,
            assigned=assigned,
            assigned_at=attempt.start_time if attempt is not None and assigned else None,
            report=row.report if is_news and row.report is not None else TaskReport(),
            succeeded=self._success(row, attempt),
        )

    def _success(self, row: StreamTaskRecord, attempt: TaskRecord | None) -> bool | None:
        if attempt is not None and attempt.is_finished:
            return attempt.state in _GOOD
        run = self._tables.run_of(row.command_id)
        if run is None:
            return None if self._db.commands.get(row.command_id) is not None else False
        return None if run.is_live else run.state == ProcessState.SUCCESS

    def _write(
        self,
        tx: Transaction,
        node: Node,
        owned: RuntimeRecord,
        step: SupervisorStep,
        change: Change,
        *,
        now: datetime,
    ) -> None:
        match change:
            case StartAssignment():
                param = CommandParam.of(start_params={TASK_PARAMETER: change.assignment.name})
                command_id = tx.insert(
                    self._db.commands,
                    CommandRecord(
                        command_type=int(CommandType.START_PROCESS),
                        process_definition_id=owned.definition_id,
                        command_param=param.row_text(),
                        failure_strategy=int(FailureStrategy.END),
                        start_time=now,
                    ),
                )
                row = StreamTaskRecord(assignment=change.assignment, command_id=command_id)
                tx.insert(self._tables.tasks, row)
            case GiveOrders():
                task = self._open(change.task)
                if task.orders.version >= change.orders.version:
                    raise StoreConflictError("orders go back")
                tx.update(self._tables.tasks, task.id, orders=change.orders)
                attempt = self._tables.attempt_of(task)
                if attempt is not None and attempt.state == TaskState.RUNNING and attempt.host:
                    tx._notifications.append((hint_channel(attempt.host), ORDERS))
            case EndTask():
                self._end(tx, node, change, now)
            case AddOffsets() | PutOffsets():
                stored = self._tables.stored(owned.name)
                for partition, offset in change.offsets.items():
                    if partition not in stored:
                        record = OffsetRecord(
                            dataset=owned.name,
                            stream=step.stream,
                            partition=partition,
                            position=offset,
                        )
                        tx.insert(self._tables.offsets, record)
                    elif isinstance(change, PutOffsets):
                        tx.update(self._tables.offsets, stored[partition].id, position=offset)
            case DropOffsets():
                self._drop_offsets(tx, owned, change)
            case TellPeople():
                tx.insert(self._tables.told, ToldRecord(supervisor=owned.name, text=change.text))
            case PutSpec():
                pass
            case _:
                assert_never(change)

    def _drop_offsets(self, tx: Transaction, owned: RuntimeRecord, change: DropOffsets) -> None:
        for partition, each in self._tables.stored(owned.name).items():
            if change.partitions is None or partition in change.partitions:
                wanted = each.position if change.expected is None else change.expected[partition]
                if wanted != each.position:
                    raise OutdatedStepError(f"partition {partition} is at {each.position} now")
                tx.delete(self._tables.offsets, each.id)

    def _open(self, name: str) -> StreamTaskRecord:
        for row in self._tables.tasks:
            if row.assignment.name == name and not row.closed:
                return row
        raise StoreConflictError(f"there is no open task {name}")

    def _end(self, tx: Transaction, node: Node, change: EndTask, now: datetime) -> None:
        task = self._open(change.task)
        since = task.ending_since or now
        killed = task.killed or change.kill
        tx.update(self._tables.tasks, task.id, ending_since=since, killed=killed)
        if not change.kill:
            return
        command = self._db.commands.get(task.command_id)
        if command is not None:
            line = LedgerLine(
                command_id=command.id,
                process_instance_id=None,
                outcome=CommandOutcome.DROPPED,
                reason=f"the stream task was withdrawn: {change.reason}",
            )
            enter(tx, command, line, host=node.address, now=now)
            return
        run = self._tables.run_of(task.command_id)
        if run is not None and run.is_live and run.wanted_state in (None, ProcessState.PAUSE):
            stop = int(ProcessState.STOP)
            tx.update(self._db.processes, run.id, wanted_state=stop, wanted_at=now)


class MemoryStreamTasks:
    """The stream tasks of one worker in memory."""

    def __init__(self, tables: StreamTables) -> None:
        self._tables = tables

    def work(self, node: Node, task_instance_id: int) -> StreamWork | None:
        self._tables.db.read_hook("stream_work")
        row = self._tables.of_attempt(node, task_instance_id)
        if row is None:
            return None
        return StreamWork(assignment=row.assignment, document={}, orders=row.orders)

    def orders(self, node: Node, task_instance_ids: Collection[int]) -> Mapping[int, Orders]:
        self._tables.db.read_hook("stream_orders")
        found = {each: self._tables.of_attempt(node, each) for each in task_instance_ids}
        return {each: row.orders for each, row in found.items() if row is not None}

    def report(self, node: Node, task_instance_id: int, report: TaskReport) -> bool:
        tables = self._tables
        with tables.db.transaction("stream_report", by=node) as tx:
            row = tables.of_attempt(node, task_instance_id)
            if row is None:
                return False
            tx.update(tables.tasks, row.id, report=report, task_instance_id=task_instance_id)
        return True


def put_request(
    tables: StreamTables, supervisor: str, kind: RequestKind, body: Mapping[str, Any]
) -> None:
    """Put a request as a person does."""
    tables.db.insert(tables.requests, supervisor=supervisor, kind=kind.value, body=dict(body))


def put_suspended(tables: StreamTables, supervisor: str, *, suspended: bool) -> None:
    """Add a version of the specification that is suspended, or not."""
    row = tables.runtime(supervisor)
    assert row is not None
    spec = next(each for each in tables.specs if each.version == row.version)
    with tables.db.transaction("person") as tx:
        tx.insert(
            tables.specs,
            SpecRecord(
                name=supervisor,
                version=row.version + 1,
                document=spec.document,
                suspended=suspended,
            ),
        )
        tx.update(tables.runtimes, row.id, version=row.version + 1)
