"""The rows of supervisors in PostgreSQL as a run looks at them: offsets, requests, tasks.

A task is its row, the command that it names, the run that this became, and that run's attempt.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, case, cast, null, select, true
from sqlalchemy.dialects.postgresql import JSONB

from common.model.states import (
    FINISHED_TASK_CODES,
    TERMINAL_PROCESS_CODES,
    ProcessState,
    TaskState,
)
from common.model.streams.partitions import Partition
from common.model.streams.requests import Request
from common.model.streams.tasks import Assignment, OrderKind, Orders, TaskReport
from common.store.master.supervisor_ports import BadRequest, StreamTaskRow
from common.store.streams.offsets import offsets_of_dataset
from common.store.tables import (
    command,
    process_instance,
    stream_task,
    supervisor_command,
    task_instance,
)
from common.store.transaction import AnyRow

_GOOD: Final = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)

# The attempt that counts: a run has one task, and the newest valid attempt at it.
ATTEMPT: Final = (
    select(
        task_instance.c.id,
        task_instance.c.state,
        task_instance.c.start_time,
    )
    .where(task_instance.c.process_instance_id == process_instance.c.id)
    .where(task_instance.c.flag == 1)
    .order_by(task_instance.c.id.desc())
    .limit(1)
    .correlate(process_instance)
    .lateral("attempt")
)
OPEN: Final = (
    stream_task.outerjoin(command, command.c.id == stream_task.c.command_id)
    .outerjoin(process_instance, process_instance.c.command_id == stream_task.c.command_id)
    .outerjoin(ATTEMPT, true())
)
IS_NEWS: Final = stream_task.c.task_instance_id == ATTEMPT.c.id


def stored_offsets(db: Connection, dataset: str) -> dict[Partition, tuple[str, int]]:
    """Return the stream and the offset of each partition that has one."""
    return {each.key: (each.stream, each.offset) for each in offsets_of_dataset(db, dataset)}


def requests_of(db: Connection, supervisor_id: str) -> tuple[Request | BadRequest, ...]:
    """Return the requests that wait, oldest first."""
    rows = db.execute(
        select(supervisor_command.c.id, supervisor_command.c.kind, supervisor_command.c.body)
        .where(supervisor_command.c.supervisor == supervisor_id)
        .order_by(supervisor_command.c.id)
    )
    found: list[Request | BadRequest] = []
    for row in rows:
        try:
            found.append(Request.of(row.id, row.kind, row.body))
        except ValueError as error:
            found.append(BadRequest(id=row.id, problem=str(error)))
    return tuple(found)


def tasks_of(db: Connection, supervisor_id: str) -> tuple[StreamTaskRow, ...]:
    """Return the tasks that are not closed, with their runs and attempts."""
    rows = db.execute(
        select(
            stream_task,
            command.c.id.label("waiting"),
            process_instance.c.state.label("run_state"),
            ATTEMPT.c.id.label("attempt"),
            ATTEMPT.c.state.label("attempt_state"),
            ATTEMPT.c.start_time,
            case((IS_NEWS, stream_task.c.status), else_=cast(null(), JSONB)).label("report"),
        )
        .select_from(OPEN)
        .where(stream_task.c.supervisor == supervisor_id)
        .where(stream_task.c.closed.is_(False))
        .order_by(stream_task.c.id)
    )
    return tuple(_task(row) for row in rows)


def _task(row: AnyRow) -> StreamTaskRow:
    state = row.attempt_state
    assigned = state == TaskState.RUNNING
    try:
        report = TaskReport() if row.report is None else TaskReport.of(row.report)
    except ValueError:
        # It stays silent for its supervisor, which ends silent tasks.
        report = TaskReport()
    return StreamTaskRow(
        assignment=Assignment.of(
            row.assignment,
            name=row.name,
            supervisor=row.supervisor,
            version=row.version,
            group_id=row.group_id,
            base_sequence=row.base_sequence,
        ),
        orders=Orders(command=OrderKind.RESUME) if not row.orders else Orders.of(row.orders),
        ending_since=row.ending_since,
        killed=row.killed,
        attempt=row.attempt,
        assigned=assigned,
        assigned_at=row.start_time if assigned else None,
        report=report,
        succeeded=_success(row),
    )


def _success(row: AnyRow) -> bool | None:
    if row.attempt_state in FINISHED_TASK_CODES:
        return row.attempt_state in _GOOD
    if row.run_state is None:
        # The command is gone, and no run came of it: it was withdrawn or refused.
        return None if row.waiting is not None else False
    if row.run_state in TERMINAL_PROCESS_CODES:
        return bool(row.run_state == ProcessState.SUCCESS)
    return None
