"""Commands that people put: start, stop, pause and recover a run, and follow what became of it.

Each works within a transaction of its caller. A master takes the commands (`common.store.master`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.model.command_param import CommandParam
from common.model.commands import CommandType
from common.model.states import FailureStrategy, Priority, TaskDependType
from common.store.connect import server_time
from common.store.tables import ASKED_RECOVERY, command, error_command, process_instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The fate of a command: it waits, was refused, became an instance, or none of these."""

    waits: bool = False
    refusal: str | None = None
    process_instance_id: int | None = None


def put_start(
    db: Connection,
    *,
    process_definition_id: int,
    param: CommandParam,
    schedule_time: datetime | None = None,
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE,
    priority: Priority = Priority.MEDIUM,
    worker_group_id: int = -1,
) -> int:
    """Put a START_PROCESS command with these parameters; returns its id."""
    return _put(
        db,
        command_type=int(CommandType.START_PROCESS),
        process_definition_id=process_definition_id,
        command_param=param.row_text(),
        schedule_time=schedule_time,
        task_depend_type=int(task_depend_type),
        failure_strategy=int(failure_strategy),
        process_instance_priority=int(priority),
        worker_group_id=worker_group_id,
    )


def put_stop(db: Connection, *, process_definition_id: int, process_instance_id: int) -> int:
    """Put a STOP command for an instance; return its id."""
    return _put_signal(db, CommandType.STOP, process_definition_id, process_instance_id)


def put_pause(db: Connection, *, process_definition_id: int, process_instance_id: int) -> int:
    """Put a PAUSE command for an instance; return its id."""
    return _put_signal(db, CommandType.PAUSE, process_definition_id, process_instance_id)


def _put_signal(
    db: Connection, command_type: CommandType, process_definition_id: int, process_instance_id: int
) -> int:
    return _put(
        db,
        command_type=int(command_type),
        process_definition_id=process_definition_id,
        command_param=CommandParam.of(process_instance_id=process_instance_id).text(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecovery:
    """An earlier command that is to recover the same instance."""

    id: int
    command_type: int
    start_time: datetime


def put_recovery(
    db: Connection,
    *,
    command_type: CommandType,
    process_definition_id: int,
    process_instance_id: int,
    start_node_names: Sequence[str] = (),
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
    priority: int = int(Priority.MEDIUM),
) -> int | PendingRecovery:
    """Put a command that restarts an ended instance; return its id, or the earlier recovery.

    The unique key of pending recoveries decides, so that of two concurrent ones one is put.
    """
    param = CommandParam.of(
        process_instance_id=process_instance_id, start_node_names=start_node_names
    )
    made: int | None = db.execute(
        pg_insert(command)
        .values(
            command_type=int(command_type),
            process_definition_id=process_definition_id,
            process_instance_id=process_instance_id,
            command_param=param.text(),
            task_depend_type=int(task_depend_type),
            process_instance_priority=priority,
        )
        .on_conflict_do_nothing(
            index_elements=[command.c.process_instance_id],
            index_where=text(ASKED_RECOVERY),
        )
        .returning(command.c.id)
    ).scalar()
    if made is not None:
        return made
    found = db.execute(
        select(command.c.id, command.c.command_type, command.c.start_time).where(
            command.c.process_instance_id == process_instance_id
        )
    ).first()
    if found is None:
        # It was taken at this very moment, so that the instance is not what it was.
        return PendingRecovery(id=0, command_type=-1, start_time=server_time(db))
    return PendingRecovery(
        id=found.id,
        command_type=-1 if found.command_type is None else found.command_type,
        start_time=found.start_time,
    )


def outcome(db: Connection, command_id: int) -> Outcome:
    """Read the fate of a start command by now."""
    # In this order: a command is gone in the same moment in which its instance or its refusal is
    # there, so that one that was seen gone has left what can be seen.
    if is_waiting(db, command_id):
        return Outcome(waits=True)
    refusal = refusal_of(db, command_id)
    if refusal is not None:
        return Outcome(refusal=refusal)
    found = db.scalar(
        select(process_instance.c.id)
        .where(process_instance.c.command_id == command_id)
        # The newest, should the ids of commands have been started anew.
        .order_by(process_instance.c.id.desc())
        .limit(1)
    )
    return Outcome(process_instance_id=found)


def is_waiting(db: Connection, command_id: int) -> bool:
    """Return True if no master has taken the command yet."""
    return db.scalar(select(command.c.id).where(command.c.id == command_id)) is not None


def refusal_of(db: Connection, command_id: int) -> str | None:
    """Return the reason why the command was refused; None if it was not."""
    found = db.execute(
        select(error_command.c.message).where(error_command.c.command_id == command_id).limit(1)
    ).first()
    return None if found is None else (found.message or "no reason was given")


def _put(db: Connection, **values: object) -> int:
    made: int = db.execute(insert(command).values(**values).returning(command.c.id)).scalar_one()
    return made
