"""Supervisors of streams in memory: leases, steps, requests of people, orders, reports.

The rules are those of `common.store.master.supervisors` and `common.store.worker.stream_tasks`.
Publications into the dataset are in `tests.memory.datasets`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.commands import CommandOutcome, CommandType
from common.model.plans import LedgerLine
from common.model.states import FailureStrategy, ProcessState, TaskState
from common.model.streams.partitions import topic_of
from common.model.streams.requests import Request, RequestKind
from common.model.streams.tasks import TASK_PARAMETER, Orders, TaskReport
from common.store.listen import ORDERS, hint_channel
from common.store.master.supervisor_ports import (
    AddOffsets,
    BadRequest,
    Change,
    DropOffsets,
    EndTask,
    GiveAssignment,
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
from tests.memory.alerts import alert_of_supervisor
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.ledger import enter
from tests.memory.rows import CommandRecord, ProcessRecord, TaskRecord
from tests.memory.stream_rows import (
    OffsetRecord,
    RuntimeRecord,
    SpecRecord,
    StreamRequestRecord,
    StreamTaskRecord,
)

_GOOD = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)


class StreamTables:
    """The tables of supervisors and datasets, and what is looked up in them."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.db = database
        self.specs = database.supervisor_specs
        self.runtimes = database.supervisors
        self.requests = database.supervisor_requests
        self.tasks = database.stream_tasks
        self.offsets = database.dataset_offsets
        self.segments = database.segments
        self.batches: set[int] = set()
        """Holders of locks that are no attempts: batch writers, by numbers below zero."""
        self._runs: dict[int, int] = {}

    def told(self, name: str) -> list[str]:
        """Return the alerts of a supervisor."""
        return [row.content for row in self.db.alerts if row.title == f"supervisor {name}"]

    def spec(self, name: str, version: int) -> SpecRecord | None:
        return next((row for row in self.specs if (row.name, row.version) == (name, version)), None)

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
                if row.active and (row.lease_until is None or row.lease_until <= now)
            ]
            free = sorted(free, key=lambda row: (row.lease_until is not None, row.lease_until))
            free = free[:limit]
            for row in free:
                tx.update(
                    self._tables.runtimes,
                    row.id,
                    owner=node,
                    owner_epoch=row.owner_epoch + 1,
                    lease_until=now + lease,
                )
        return tuple(sorted(Lease(supervisor=row.name, epoch=row.owner_epoch + 1) for row in free))

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
                    project_id=row.project_id,
                    version=row.version,
                    last_request=max(asked, default=0),
                    tasks=self._digest(row.name),
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
        newest = self._tables.spec(row.name, row.version)
        specs = [
            one for one in self._tables.specs if one.name == row.name and one.document is not None
        ]
        if newest is None or not specs:
            return None
        spec = max(specs, key=lambda one: one.version)
        assert spec.document is not None
        return SupervisorRows(
            version=row.version,
            is_tombstone=newest.document is None,
            spec_version=spec.version,
            document=spec.document,
            suspended=spec.suspended,
            stored={
                partition: (each.stream, each.position)
                for partition, each in self._tables.stored(row.name).items()
            },
            tasks=tuple(self._task(each) for each in self._open_tasks(row.name)),
            requests=tuple(
                _request(one) for one in self._tables.requests if one.supervisor == row.name
            ),
        )

    def _open_tasks(self, name: str) -> list[StreamTaskRecord]:
        return [
            row
            for row in self._tables.tasks
            if row.assignment.supervisor == name and not row.closed
        ]

    def apply(self, node: Node, lease: Lease, step: SupervisorStep, *, now: datetime) -> None:
        with self._db.transaction("apply_step", by=node) as tx:
            row = self._owned(node, lease)
            if row is None:
                raise LeaseLostError(f"supervisor {lease.supervisor!r} is not this master's")
            tx.update(self._tables.runtimes, row.id, writer=node, writer_epoch=lease.epoch)
            for change in step.changes:
                self._write(tx, node, row, step, change, now=now)
            for task in self._open_tasks(row.name):
                if task.assignment.name in step.closed:
                    tx.update(self._tables.tasks, task.id, closed=True)
            for request in step.requests:
                asked = self._tables.requests.get(request)
                if asked is None or asked.supervisor != row.name:
                    raise StoreConflictError(f"0 instead of 1 requests are as expected: {request}")
                tx.delete(self._tables.requests, request)
            if step.standing is not None:
                standing = step.standing
                if standing.status is None:
                    standing = replace(standing, status=row.standing.status)
                tx.update(self._tables.runtimes, row.id, standing=standing)
            if step.ends and row.version == step.version:
                tx.update(self._tables.runtimes, row.id, active=False, lease_until=None, owner=None)

    def _owned(self, node: Node, lease: Lease) -> RuntimeRecord | None:
        row = self._tables.runtime(lease.supervisor)
        if row is None or (row.owner, row.owner_epoch) != (node, lease.epoch) or not row.active:
            return None
        is_over = row.lease_until is None or row.lease_until <= self._db.now()
        return None if is_over else row

    def _digest(self, name: str) -> str:
        said = []
        for each in self._open_tasks(name):
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
            case GiveAssignment():
                name = change.assignment.name
                tasks = [row for row in self._open_tasks(owned.name) if row.assignment.name == name]
                if not tasks or not tasks[0].assignment.is_standby or tasks[0].ending_since:
                    raise StoreConflictError(f"0 instead of 1 rows of the standby {name}")
                task = tasks[0]
                tx.update(self._tables.tasks, task.id, assignment=change.assignment)
            case GiveOrders():
                task = self._open(owned.name, change.task)
                if task.orders.version >= change.orders.version:
                    raise StoreConflictError("orders go back")
                tx.update(self._tables.tasks, task.id, orders=change.orders)
                attempt = self._tables.attempt_of(task)
                if attempt is not None and attempt.state == TaskState.RUNNING and attempt.host:
                    tx._notifications.append((hint_channel(attempt.host), ORDERS))
            case EndTask():
                self._end(tx, node, self._open(owned.name, change.task), change, now)
            case AddOffsets() | PutOffsets():
                stored = self._tables.stored(owned.name)
                for partition, offset in change.offsets.items():
                    stream = topic_of(partition, step.stream)
                    if partition not in stored:
                        record = OffsetRecord(
                            dataset=owned.name,
                            stream=stream,
                            partition=partition,
                            position=offset,
                        )
                        tx.insert(self._tables.offsets, record)
                    elif isinstance(change, PutOffsets):
                        former = stored[partition]
                        goes_on = former.stream == stream and former.position <= offset
                        tx.update(
                            self._tables.offsets,
                            former.id,
                            stream=stream,
                            position=offset,
                            latest_event=former.latest_event if goes_on else None,
                        )
            case DropOffsets():
                self._drop_offsets(tx, owned, change)
            case TellPeople():
                alert_of_supervisor(tx, owned.name, change.text, now)
            case PutSpec():
                if owned.version == step.version:
                    put_version(tx, self._tables, owned, change.document)
            case _:
                assert_never(change)

    def _drop_offsets(self, tx: Transaction, owned: RuntimeRecord, change: DropOffsets) -> None:
        stored = self._tables.stored(owned.name)
        for partition, wanted in (change.expected or {}).items():
            if partition not in stored or stored[partition].position != wanted:
                raise OutdatedStepError(f"partition {partition} is not at {wanted} any more")
        for partition, each in stored.items():
            if change.partitions is None or partition in change.partitions:
                tx.delete(self._tables.offsets, each.id)

    def _open(self, supervisor: str, name: str) -> StreamTaskRecord:
        for row in self._open_tasks(supervisor):
            if row.assignment.name == name:
                return row
        raise StoreConflictError(f"there is no open task {name}")

    def _end(
        self, tx: Transaction, node: Node, task: StreamTaskRecord, change: EndTask, now: datetime
    ) -> None:
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
            tx.update(
                self._db.processes,
                run.id,
                wanted_state=int(ProcessState.STOP),
                wanted_at=now,
                state_reason=f"the supervisor withdrew the task: {change.reason}",
            )


class MemoryStreamTasks:
    """The stream tasks of one worker in memory."""

    def __init__(self, tables: StreamTables) -> None:
        self._tables = tables

    def work(self, node: Node, task_instance_id: int) -> StreamWork | None:
        self._tables.db.read_hook("stream_work")
        row = self._tables.of_attempt(node, task_instance_id)
        if row is None:
            return None
        spec = self._tables.spec(row.assignment.supervisor, row.assignment.version)
        if spec is None or spec.document is None:
            return None
        return StreamWork(assignment=row.assignment, document=spec.document, orders=row.orders)

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


def _request(row: StreamRequestRecord) -> Request | BadRequest:
    try:
        return Request.of(row.id, row.kind, row.body)
    except ValueError as error:
        return BadRequest(id=row.id, problem=str(error))


def put_request(
    tables: StreamTables, supervisor: str, kind: RequestKind, body: Mapping[str, Any]
) -> int:
    """Put a request as a person does."""
    return tables.db.insert(
        tables.requests, supervisor=supervisor, kind=kind.value, body=dict(body)
    )


def put_version(
    tx: Transaction,
    tables: StreamTables,
    row: RuntimeRecord,
    document: Mapping[str, Any] | None,
    *,
    suspended: bool = False,
) -> None:
    """Add a version of the specification, a tombstone if it has no document."""
    version = row.version + 1
    spec = SpecRecord(name=row.name, version=version, document=document, suspended=suspended)
    tx.insert(tables.specs, spec)
    active = row.active or document is not None
    tx.update(tables.runtimes, row.id, version=version, active=active)


def put_suspended(tables: StreamTables, supervisor: str, *, suspended: bool) -> None:
    """Add a version of the specification that is suspended, or not."""
    row = tables.runtime(supervisor)
    assert row is not None
    spec = tables.spec(supervisor, row.version)
    assert spec is not None
    with tables.db.transaction("person") as tx:
        put_version(tx, tables, row, spec.document, suspended=suspended)
