"""Supervisors of streams in PostgreSQL: leases, the rows that a run looks at, and its steps.

A stream task is a run of the supervisor's process definition, begun by a command as any other; its
row in `t_ds_stream_task` names that command. So the queue, claims, logs, kills and failover know
nothing of streams. Leases are judged by the database's clock alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, assert_never

from sqlalchemy import (
    Connection,
    Engine,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, aggregate_order_by

from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.commands import CommandOutcome, CommandType
from common.model.plans import LedgerLine
from common.model.states import (
    FailureStrategy,
    ProcessState,
    TaskState,
)
from common.model.streams.spec import Offsets
from common.model.streams.tasks import (
    TASK_PARAMETER,
    Assignment,
)
from common.store.listen import ORDERS, Channel, hint_channel
from common.store.master.alerts import alert_of_supervisor
from common.store.master.ledger import enter
from common.store.master.recoveries import BEGUN
from common.store.master.serial import IS_STOPPABLE
from common.store.master.supervisor_ports import (
    AddOffsets,
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
    SupervisorRows,
    SupervisorStep,
    TellPeople,
)
from common.store.master.supervisor_reading import (
    ATTEMPT,
    IS_NEWS,
    OPEN,
    requests_of,
    stored_offsets,
    tasks_of,
)
from common.store.streams.connections import connection_of_supervisor
from common.store.streams.offsets import drop_offsets, put_offsets
from common.store.tables import (
    command,
    process_instance,
    stream_task,
    supervisor,
    supervisor_command,
    supervisor_runtime,
    task_instance,
)
from common.store.transaction import AnyRow, StoreConflictError, storable, transaction

_NAMES: Final = any_(cast(bindparam("names"), ARRAY(Text)))

# All that a run decides by, but the offsets that tasks have reached.
_DIGEST: Final = func.concat_ws(
    ":",
    stream_task.c.id,
    command.c.id,
    process_instance.c.state,
    ATTEMPT.c.id,
    ATTEMPT.c.state,
    case((IS_NEWS, stream_task.c.status["state"].astext)),
    case((IS_NEWS, stream_task.c.status["obeyed"].astext)),
    case((IS_NEWS, stream_task.c.status["full"].astext)),
)
_HOST: Final = (
    select(task_instance.c.host)
    .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
    .where(process_instance.c.command_id == stream_task.c.command_id)
    .where(task_instance.c.state == int(TaskState.RUNNING))
    .limit(1)
    .correlate(stream_task)
    .scalar_subquery()
)
_TASKS_DIGEST: Final = (
    select(func.string_agg(_DIGEST, aggregate_order_by(literal(","), stream_task.c.id)))
    .select_from(OPEN)
    .where(stream_task.c.supervisor == supervisor_runtime.c.id)
    .where(stream_task.c.closed.is_(False))
    .correlate(supervisor_runtime)
    .scalar_subquery()
)
_LAST_REQUEST: Final = (
    select(func.max(supervisor_command.c.id))
    .where(supervisor_command.c.supervisor == supervisor_runtime.c.id)
    .correlate(supervisor_runtime)
    .scalar_subquery()
)
_IS_FREE: Final = or_(
    supervisor_runtime.c.lease_until.is_(None), supervisor_runtime.c.lease_until <= func.now()
)


class PostgresSupervisorStore:
    """The keeper's port on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def claim(self, node: Node, *, lease: timedelta, limit: int) -> tuple[Lease, ...]:
        """Take over supervisors whose lease is over; two masters never get the same one."""
        free = (
            select(supervisor_runtime.c.id)
            .where(supervisor_runtime.c.active)
            .where(_IS_FREE)
            .order_by(supervisor_runtime.c.lease_until.asc().nulls_first())
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        with transaction(self._engine) as db:
            ids = list(db.scalars(free))
            if not ids:
                return ()
            rows = db.execute(
                update(supervisor_runtime)
                .where(supervisor_runtime.c.id.in_(ids))
                .values(
                    owner=node.address,
                    owner_incarnation=node.incarnation,
                    epoch=supervisor_runtime.c.epoch + 1,
                    lease_until=func.now() + lease,
                )
                .returning(supervisor_runtime.c.id, supervisor_runtime.c.epoch)
            ).all()
            return tuple(sorted(Lease(supervisor=row.id, epoch=row.epoch) for row in rows))

    def renew(
        self, node: Node, leases: Collection[Lease], *, lease: timedelta
    ) -> Mapping[Lease, Pulse]:
        """Prolong what is this master's, and has not been over."""
        if not leases:
            return {}
        with transaction(self._engine) as db:
            rows = db.execute(
                update(supervisor_runtime)
                .where(_is_among(leases))
                .where(_is_owned_by(node))
                .where(supervisor_runtime.c.lease_until > func.now())
                .values(lease_until=func.now() + lease)
                .returning(
                    supervisor_runtime.c.id,
                    supervisor_runtime.c.epoch,
                    supervisor_runtime.c.project_id,
                    supervisor_runtime.c.version,
                    _LAST_REQUEST.label("last_request"),
                    _TASKS_DIGEST.label("tasks"),
                )
            ).all()
        return {
            Lease(supervisor=row.id, epoch=row.epoch): Pulse(
                project_id=row.project_id,
                version=row.version,
                last_request=row.last_request or 0,
                tasks=row.tasks or "",
            )
            for row in rows
        }

    def release(self, node: Node, leases: Collection[Lease]) -> None:
        """End leases; those that another master has by now stay."""
        if not leases:
            return
        with transaction(self._engine) as db:
            db.execute(
                update(supervisor_runtime)
                .where(_is_among(leases))
                .where(_is_owned_by(node))
                .values(lease_until=None, owner=None, owner_incarnation=None)
            )

    def connection(self, supervisor_id: str, name: str) -> str | None:
        """Return `connection_params` of a connection that a supervisor may use, or None."""
        with transaction(self._engine) as db:
            return connection_of_supervisor(db, supervisor_id, name)

    def load(self, lease: Lease) -> SupervisorRows | None:
        """Return the rows of one supervisor, from one snapshot."""
        with transaction(self._engine) as db:
            db.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            version = db.scalar(
                select(supervisor_runtime.c.version).where(
                    supervisor_runtime.c.id == lease.supervisor
                )
            )
            if version is None:
                return None
            versions = db.execute(
                select(
                    supervisor.c.version,
                    supervisor.c.spec,
                    supervisor.c.suspended,
                    supervisor.c.tombstone,
                )
                .where(supervisor.c.id == lease.supervisor)
                .where(supervisor.c.version <= version)
                .order_by(supervisor.c.version.desc())
                .limit(2)
            ).all()
            with_spec = next((row for row in versions if not row.tombstone), None)
            if with_spec is None:
                return None
            return SupervisorRows(
                version=version,
                is_tombstone=versions[0].tombstone,
                spec_version=with_spec.version,
                document=with_spec.spec,
                suspended=with_spec.suspended,
                stored=stored_offsets(db, lease.supervisor),
                tasks=tasks_of(db, lease.supervisor),
                requests=requests_of(db, lease.supervisor),
            )

    def apply(self, node: Node, lease: Lease, step: SupervisorStep, *, now: datetime) -> None:
        """Write a step, under the lock of the supervisor's row."""
        with transaction(self._engine) as db:
            owned = db.execute(
                select(
                    supervisor_runtime.c.version,
                    supervisor_runtime.c.process_definition_id,
                )
                .where(_is_among((lease,)))
                .where(_is_owned_by(node))
                .where(supervisor_runtime.c.lease_until > func.now())
                .with_for_update()
            ).first()
            if owned is None:
                raise LeaseLostError(
                    f"supervisor {lease.supervisor!r} is not this master's any more, or its lease"
                    f" of epoch {lease.epoch} is over"
                )
            _Writer(db, node, lease, step=step, owned=owned, now=now).write()


class _Writer:
    """One step in its transaction."""

    def __init__(
        self,
        db: Connection,
        node: Node,
        lease: Lease,
        *,
        step: SupervisorStep,
        owned: AnyRow,
        now: datetime,
    ) -> None:
        self._db = db
        self._node = node
        self._id = lease.supervisor
        self._epoch = lease.epoch
        self._step = step
        self._owned = owned
        self._now = now

    def write(self) -> None:
        step = self._step
        for is_start, changes in groupby(
            step.changes, key=lambda each: isinstance(each, StartAssignment)
        ):
            if is_start:
                self._start(
                    [each.assignment for each in changes if isinstance(each, StartAssignment)]
                )
            else:
                for change in changes:
                    self._write(change)
        if step.closed or not step.goes_on:
            self._link()
        self._close(step.closed)
        if step.requests:
            gone = self._db.execute(
                delete(supervisor_command)
                .where(supervisor_command.c.supervisor == self._id)
                .where(supervisor_command.c.id.in_(step.requests))
            ).rowcount
            self._expect(gone, len(step.requests), "requests")
        columns: dict[str, Any] = {"update_time": self._now}
        if step.standing is not None:
            columns |= {
                "state": step.standing.state,
                "detailed_state": step.standing.detailed_state,
                "healthy": step.standing.healthy,
                "recent_errors": list(step.standing.recent_errors),
            }
            if step.standing.status is not None:
                columns["status"] = dict(step.standing.status)
        if step.ends and self._owned.version == step.version:
            # One that was submitted anew meanwhile goes on.
            columns |= {"active": False, "lease_until": None, "owner": None}
        self._db.execute(
            update(supervisor_runtime).where(supervisor_runtime.c.id == self._id).values(columns)
        )

    def _write(self, change: Change) -> None:
        match change:
            case StartAssignment():
                self._start([change.assignment])
            case GiveAssignment():
                self._assign(change.assignment)
            case GiveOrders():
                self._order(change)
            case EndTask():
                self._end(change)
            case AddOffsets():
                self._put_offsets(change.offsets, replace=False)
            case PutOffsets():
                self._put_offsets(change.offsets, replace=True)
            case DropOffsets():
                self._drop_offsets(change)
            case PutSpec():
                self._put_spec(change)
            case TellPeople():
                alert_of_supervisor(self._db, self._id, change.text, self._now)
            case _:
                assert_never(change)

    def _start(self, assignments: Sequence[Assignment]) -> None:
        params = {
            CommandParam.of(start_params={TASK_PARAMETER: each.name}).row_text(): each
            for each in assignments
        }
        made = self._db.execute(
            insert(command)
            .values(
                [
                    {
                        "command_type": int(CommandType.START_PROCESS),
                        "process_definition_id": self._owned.process_definition_id,
                        "command_param": param,
                        "failure_strategy": int(FailureStrategy.END),
                    }
                    for param in params
                ]
            )
            .returning(command.c.id, command.c.command_param)
        ).all()
        ids = {row.command_param: row.id for row in made}
        self._db.execute(
            insert(stream_task),
            [
                {
                    "name": each.name,
                    "supervisor": self._id,
                    "version": each.version,
                    "epoch": self._epoch,
                    "group_id": each.group_id,
                    "base_sequence": each.base_sequence,
                    "assignment": each.document(),
                    "command_id": ids[param],
                }
                for param, each in params.items()
            ],
        )

    def _assign(self, assignment: Assignment) -> None:
        """Give a standby its work, once; who waits for intervals is told, as of a new task."""
        changed = self._db.execute(
            update(stream_task)
            .where(stream_task.c.name == assignment.name)
            .where(stream_task.c.supervisor == self._id)
            .where(stream_task.c.closed.is_(False))
            .where(stream_task.c.ending_since.is_(None))
            .where(stream_task.c.assignment["checkpoints"] == cast({}, JSONB))
            .values(
                version=assignment.version,
                epoch=self._epoch,
                group_id=assignment.group_id,
                base_sequence=assignment.base_sequence,
                assignment=assignment.document(),
            )
        ).rowcount
        self._expect(changed, 1, f"rows of the standby {assignment.name}")
        self._db.execute(select(func.pg_notify(Channel.DATASET, self._id)))

    def _order(self, change: GiveOrders) -> None:
        row = self._db.execute(
            update(stream_task)
            .where(stream_task.c.name == change.task)
            .where(stream_task.c.supervisor == self._id)
            .where(stream_task.c.closed.is_(False))
            .where(stream_task.c.orders_version < change.orders.version)
            .values(orders=change.orders.document(), orders_version=change.orders.version)
            .returning(_HOST.label("host"))
        ).first()
        self._expect(0 if row is None else 1, 1, f"rows of the task {change.task}")
        if row is not None and row.host:
            self._db.execute(select(func.pg_notify(hint_channel(row.host), ORDERS)))

    def _end(self, change: EndTask) -> None:
        """Note the end; a kill withdraws the task's command, or wants its run stopped."""
        row = self._db.execute(
            update(stream_task)
            .where(stream_task.c.name == change.task)
            .where(stream_task.c.supervisor == self._id)
            .where(stream_task.c.closed.is_(False))
            .values(
                ending_since=func.coalesce(stream_task.c.ending_since, self._now),
                ending_reason=func.coalesce(
                    stream_task.c.ending_reason, storable(change.reason, 1000)
                ),
                killed=stream_task.c.killed | change.kill,
            )
            .returning(stream_task.c.command_id)
        ).first()
        self._expect(0 if row is None else 1, 1, f"rows of the task {change.task}")
        if row is None or not change.kill:
            return
        waits = self._db.scalar(
            select(command.c.id).where(command.c.id == row.command_id).with_for_update()
        )
        if waits is not None:
            line = LedgerLine(
                command_id=waits,
                process_instance_id=None,
                outcome=CommandOutcome.DROPPED,
                reason=f"the stream task was withdrawn: {change.reason}",
            )
            enter(self._db, (line,), host=self._node.address, now=self._now)
            return
        # A master that took the command meanwhile has committed: the run is there, or refused.
        self._db.execute(
            update(process_instance)
            .where(process_instance.c.command_id == row.command_id)
            .where(process_instance.c.state.in_(BEGUN))
            .where(IS_STOPPABLE)
            .values(
                wanted_state=int(ProcessState.STOP),
                wanted_at=self._now,
                update_time=self._now,
                state_reason=storable(f"the supervisor withdrew the task: {change.reason}"),
            )
        )

    def _put_offsets(self, offsets: Offsets, *, replace: bool) -> None:
        put_offsets(self._db, self._id, offsets, stream=self._step.stream, replace=replace)

    def _drop_offsets(self, change: DropOffsets) -> None:
        # A publication in its last moment is waited for, and then its offset counts.
        count = drop_offsets(self._db, self._id, change.partitions, expected=change.expected)
        if change.expected is not None and count != len(change.expected):
            raise OutdatedStepError(
                f"the offsets of {self._id!r} that had expired are not those that are stored now"
            )

    def _put_spec(self, change: PutSpec) -> None:
        if self._owned.version != self._step.version:
            # A person has submitted another meanwhile: that one counts.
            return
        version = self._step.version + 1
        self._db.execute(
            insert(supervisor).values(id=self._id, version=version, spec=dict(change.document))
        )
        self._db.execute(
            update(supervisor_runtime)
            .where(supervisor_runtime.c.id == self._id)
            .values(version=version)
        )

    def _link(self) -> None:
        """Have tasks go with their runs when these are deleted for their age."""
        self._db.execute(
            update(stream_task)
            .where(stream_task.c.supervisor == self._id)
            .where(stream_task.c.closed.is_(False))
            .where(stream_task.c.process_instance_id.is_(None))
            .where(process_instance.c.command_id == stream_task.c.command_id)
            .values(process_instance_id=process_instance.c.id)
        )

    def _close(self, names: Collection[str]) -> None:
        if not names:
            return
        of_these = and_(stream_task.c.supervisor == self._id, stream_task.c.name == _NAMES)
        values = {"names": sorted(names)}
        # Whatever never became a run has nothing to go with.
        self._db.execute(
            delete(stream_task).where(of_these).where(stream_task.c.process_instance_id.is_(None)),
            values,
        )
        self._db.execute(update(stream_task).where(of_these).values(closed=True), values)

    def _expect(self, changed: int, wanted: int, what: str) -> None:
        if changed != wanted:
            raise StoreConflictError(
                f"supervisor {self._id!r}: {changed} instead of {wanted} {what} are as expected"
            )


def _is_among(leases: Collection[Lease]) -> Any:
    wanted = [(each.supervisor, each.epoch) for each in leases]
    return tuple_(supervisor_runtime.c.id, supervisor_runtime.c.epoch).in_(wanted)


def _is_owned_by(node: Node) -> Any:
    return and_(
        supervisor_runtime.c.owner == node.address,
        supervisor_runtime.c.owner_incarnation == node.incarnation,
        supervisor_runtime.c.active,
    )
