"""Stream tasks of all supervisors, as people see them: open ones and those that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, select

from common.masking import shown_reason
from common.model.rights import Principal
from common.store.people.rights import seen_projects
from common.store.tables import process_instance, stream_task, supervisor_runtime, task_instance
from common.store.transaction import AnyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTaskInfo:
    """A stream task with its run and the attempt that it is.

    `state` and `reason` are of the attempt; `ending_reason` is the supervisor's.
    """

    name: str
    supervisor: str
    version: int
    group_id: int
    base_sequence: str
    assignment: Mapping[str, Any]
    closed: bool
    ending_reason: str | None
    create_time: datetime
    process_instance_id: int | None
    task_instance_id: int | None
    state: int | None
    reason: str | None
    host: str | None
    start_time: datetime | None
    end_time: datetime | None


def stream_tasks(
    db: Connection, principal: Principal, *, closed: bool, supervisor: str | None, limit: int
) -> list[StreamTaskInfo]:
    """Return tasks that the principal sees, the newest first: the open ones, or the others."""
    chosen = _seen(principal).where(stream_task.c.closed.is_(closed))
    if supervisor is not None:
        chosen = chosen.where(stream_task.c.supervisor == supervisor)
    rows = db.execute(chosen.order_by(stream_task.c.id.desc()).limit(limit))
    return [_info(row) for row in rows]


def stream_task_named(db: Connection, principal: Principal, name: str) -> StreamTaskInfo | None:
    """Return a task that the principal sees by its name."""
    row = db.execute(_seen(principal).where(stream_task.c.name == name)).first()
    return None if row is None else _info(row)


def _seen(principal: Principal) -> Select[Any]:
    newest = (
        select(
            task_instance.c.id,
            task_instance.c.state,
            task_instance.c.reason,
            task_instance.c.host,
            task_instance.c.start_time,
            task_instance.c.end_time,
        )
        .where(task_instance.c.process_instance_id == process_instance.c.id)
        .where(task_instance.c.flag == 1)
        .order_by(task_instance.c.id.desc())
        .limit(1)
        .correlate(process_instance)
        .lateral("newest")
    )
    return (
        select(
            stream_task,
            process_instance.c.id.label("run_id"),
            newest.c.id.label("attempt"),
            newest.c.state,
            newest.c.reason,
            newest.c.host,
            newest.c.start_time,
            newest.c.end_time,
        )
        .select_from(
            stream_task.join(
                supervisor_runtime, supervisor_runtime.c.id == stream_task.c.supervisor
            )
            .outerjoin(process_instance, process_instance.c.command_id == stream_task.c.command_id)
            .outerjoin(newest, newest.c.id.is_not(None))
        )
        .where(seen_projects(principal, supervisor_runtime.c.project_id))
    )


def _info(row: AnyRow) -> StreamTaskInfo:
    return StreamTaskInfo(
        name=row.name,
        supervisor=row.supervisor,
        version=row.version,
        group_id=row.group_id,
        base_sequence=row.base_sequence,
        assignment=row.assignment,
        closed=row.closed,
        ending_reason=shown_reason(row.ending_reason),
        create_time=row.create_time,
        process_instance_id=row.run_id,
        task_instance_id=row.attempt,
        state=row.state,
        reason=shown_reason(row.reason),
        host=row.host,
        start_time=row.start_time,
        end_time=row.end_time,
    )
