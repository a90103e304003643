"""Stream tasks as the worker that runs them sees them: their work, orders to them, their reports.

All is fenced like the end of an attempt: by the worker's incarnation and the state RUNNING. So a
task that was failed over, or is run by another worker by now, is told nothing and reports nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Engine, bindparam, func, select, update

from common.model.cluster import Node
from common.model.states import TaskState
from common.model.streams.connections import connection_named
from common.model.streams.tasks import Assignment, Orders, TaskReport
from common.store.streams.connections import connection_of_supervisor
from common.store.tables import process_instance, stream_task, supervisor, task_instance
from common.store.transaction import AnyRow, any_of, repeatable, single, storable_document

_OF_ATTEMPTS: Final = stream_task.join(
    process_instance, process_instance.c.command_id == stream_task.c.command_id
).join(task_instance, task_instance.c.process_instance_id == process_instance.c.id)
_RUNS_HERE: Final = (
    (task_instance.c.state == int(TaskState.RUNNING))
    & (task_instance.c.host == bindparam("host"))
    & (task_instance.c.worker_incarnation == bindparam("incarnation"))
)
_ORDERS: Final = (
    select(task_instance.c.id, stream_task.c.orders)
    .select_from(_OF_ATTEMPTS)
    .where(task_instance.c.id == any_of("ids"))
    .where(_RUNS_HERE)
)
_WORK: Final = (
    select(stream_task, supervisor.c.spec)
    .select_from(
        _OF_ATTEMPTS.join(
            supervisor,
            (supervisor.c.id == stream_task.c.supervisor)
            & (supervisor.c.version == stream_task.c.version),
        )
    )
    .where(task_instance.c.id == bindparam("id"))
    .where(_RUNS_HERE)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWork:
    """The work of an attempt. `document`: the specification, which may hold secrets.

    `connection`: `connection_params` of the connection that the specification names, or None.
    """

    assignment: Assignment
    document: Mapping[str, Any] = field(repr=False)
    orders: Orders
    connection: str | None = field(default=None, repr=False)


class PostgresStreamTasks:
    """The rows of the stream tasks of one worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def work(self, node: Node, task_instance_id: int) -> StreamWork | None:
        """Return the work of an attempt; None if it is no stream task, or does not run here."""
        values = {"id": task_instance_id} | _named(node)

        def read(db: Connection) -> tuple[AnyRow | None, str | None]:
            row = db.execute(_WORK, values).first()
            name = "" if row is None else connection_named(row.spec)
            if row is None or not name:
                return row, None
            return row, connection_of_supervisor(db, row.supervisor, name)

        row, connection = repeatable(self._engine, read)
        if row is None:
            return None
        return StreamWork(
            assignment=Assignment.of(
                row.assignment,
                name=row.name,
                supervisor=row.supervisor,
                version=row.version,
                group_id=row.group_id,
                base_sequence=row.base_sequence,
            ),
            document=row.spec,
            orders=Orders.of(row.orders),
            connection=connection,
        )

    def orders(self, node: Node, task_instance_ids: Collection[int]) -> Mapping[int, Orders]:
        """Return the present orders to these attempts.

        Those that are no stream tasks, or that this worker does not run any more, are left out.
        """
        if not task_instance_ids:
            return {}
        values = {"ids": sorted(task_instance_ids)} | _named(node)
        rows = repeatable(self._engine, lambda db: db.execute(_ORDERS, values).all())
        return {row.id: Orders.of(row.orders) for row in rows}

    def report(self, node: Node, task_instance_id: int, report: TaskReport) -> bool:
        """Store a report; False if this worker does not run the attempt any more."""
        statement = (
            update(stream_task)
            .where(process_instance.c.command_id == stream_task.c.command_id)
            .where(task_instance.c.process_instance_id == process_instance.c.id)
            .where(task_instance.c.id == task_instance_id)
            .where(_RUNS_HERE)
            .values(
                task_instance_id=task_instance_id,
                status=storable_document(report.document()),
                status_time=func.now(),
            )
        )
        with single(self._engine) as db:
            return db.execute(statement, _named(node)).rowcount == 1


def _named(node: Node) -> dict[str, str | int]:
    return {"host": node.address, "incarnation": node.incarnation}
