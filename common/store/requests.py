"""What the command line asks of the tables beyond what it shows: putting a command, following it.

A *run token* is a random text in `command_param`, which the master copies to the process instance
that it makes of the command: so whoever put a command finds its instance, and no other's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, Text, cast, func, insert, select

from common.model.commands import CommandType
from common.model.states import FailureStrategy, Priority, TaskDependType
from common.store.tables import (
    command,
    error_command,
    process_instance,
    task_instance,
    worker_group,
)

# The two types are named here for those who only hand them on, and need not know the library.
__all__ = [
    "RUN_TOKEN",
    "Connection",
    "Engine",
    "Outcome",
    "PutCommand",
    "RunShape",
    "TaskDocument",
    "is_waiting",
    "outcome",
    "put_start",
    "put_stop",
    "refusal_of",
    "run_shape",
    "server_time",
    "task_document",
    "worker_group_id",
    "worker_group_names",
]

RUN_TOKEN = "RunToken"  # noqa: S105  # It names a key, and the token is no secret.


@dataclass(frozen=True, slots=True, kw_only=True)
class PutCommand:
    """A command that was put. `after` is an instance id that its own instance must exceed."""

    id: int
    process_definition_id: int
    token: str
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a command: it waits, was refused, became an instance, or none of these."""

    waits: bool = False
    refusal: str | None = None
    process_instance_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDocument:
    """What a task instance was, or will be, worked out from."""

    task_json: str
    global_params: str | None
    schedule_time: datetime | None
    start_time: datetime | None
    history_cmd: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """What decides which nodes a process instance has."""

    process_instance_json: str
    command_param: str
    task_depend_type: int


def put_start(
    db: Connection,
    *,
    process_definition_id: int,
    token: str,
    param: Mapping[str, object],
    schedule_time: datetime | None = None,
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE,
    priority: Priority = Priority.MEDIUM,
    worker_group_id: int = -1,
) -> PutCommand:
    """Put a START_PROCESS command; `param` becomes its `command_param`, the token with it."""
    newest = db.scalar(
        select(func.max(process_instance.c.id)).where(
            process_instance.c.process_definition_id == process_definition_id
        )
    )
    command_id = _put(
        db,
        command_type=int(CommandType.START_PROCESS),
        process_definition_id=process_definition_id,
        command_param=json.dumps({**param, RUN_TOKEN: token}, ensure_ascii=False),
        schedule_time=schedule_time,
        task_depend_type=int(task_depend_type),
        failure_strategy=int(failure_strategy),
        process_instance_priority=int(priority),
        worker_group_id=worker_group_id,
    )
    return PutCommand(
        id=command_id,
        process_definition_id=process_definition_id,
        token=token,
        after=newest or 0,
    )


def put_stop(db: Connection, *, process_definition_id: int, process_instance_id: int) -> int:
    """Put a STOP command for an instance; the command's id."""
    return _put(
        db,
        command_type=int(CommandType.STOP),
        process_definition_id=process_definition_id,
        command_param=json.dumps({"ProcessInstanceId": str(process_instance_id)}),
    )


def outcome(db: Connection, put: PutCommand) -> Outcome:
    """What became of a start command by now."""
    if is_waiting(db, put.id):
        return Outcome(waits=True)
    refusal = refusal_of(db, put.id)
    if refusal is not None:
        return Outcome(refusal=refusal)
    found = db.scalar(
        select(process_instance.c.id)
        .where(process_instance.c.process_definition_id == put.process_definition_id)
        .where(process_instance.c.id > put.after)
        .where(cast(process_instance.c.command_param, Text).contains(put.token, autoescape=True))
        .limit(1)
    )
    return Outcome(process_instance_id=found)


def is_waiting(db: Connection, command_id: int) -> bool:
    """Whether no master has taken the command yet."""
    return db.scalar(select(command.c.id).where(command.c.id == command_id)) is not None


def refusal_of(db: Connection, command_id: int) -> str | None:
    """Why the command was refused; None if it was not."""
    found = db.execute(
        select(error_command.c.message).where(error_command.c.command_id == command_id).limit(1)
    ).first()
    return None if found is None else (found.message or "no reason was given")


def worker_group_id(db: Connection, name: str) -> int | None:
    """The id of the group with this name; the oldest, should there be several."""
    found: int | None = db.scalar(
        select(worker_group.c.id)
        .where(worker_group.c.name == name)
        .order_by(worker_group.c.id)
        .limit(1)
    )
    return found


def worker_group_names(db: Connection) -> list[str]:
    return [row.name for row in db.execute(select(worker_group.c.name).order_by(worker_group.c.id))]


def run_shape(db: Connection, process_instance_id: int) -> RunShape | None:
    found = db.execute(
        select(
            process_instance.c.process_instance_json,
            process_instance.c.command_param,
            process_instance.c.task_depend_type,
        ).where(process_instance.c.id == process_instance_id)
    ).first()
    if found is None:
        return None
    return RunShape(
        process_instance_json=found.process_instance_json,
        command_param=found.command_param or "",
        task_depend_type=found.task_depend_type,
    )


def task_document(db: Connection, task_instance_id: int) -> TaskDocument | None:
    found = db.execute(
        select(
            task_instance.c.task_json,
            task_instance.c.start_time,
            process_instance.c.global_params,
            process_instance.c.schedule_time,
            process_instance.c.history_cmd,
        )
        .join_from(
            task_instance,
            process_instance,
            process_instance.c.id == task_instance.c.process_instance_id,
        )
        .where(task_instance.c.id == task_instance_id)
    ).first()
    if found is None:
        return None
    return TaskDocument(
        task_json=found.task_json,
        global_params=found.global_params,
        schedule_time=found.schedule_time,
        start_time=found.start_time,
        history_cmd=found.history_cmd,
    )


def server_time(db: Connection) -> datetime:
    """The database's clock."""
    now: datetime = db.execute(select(func.clock_timestamp())).scalar_one()
    return now


def _put(db: Connection, **values: object) -> int:
    made: int = db.execute(insert(command).values(**values).returning(command.c.id)).scalar_one()
    return made
