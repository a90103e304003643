"""Commands that people put: start, stop, pause and recover a run.

Each works within a transaction of its caller. A master takes the commands (`common.store.master`);
`common.store.people.ledger` reads their outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.model.alerts import warning_group_of
from common.model.command_param import CommandParam
from common.model.commands import CommandType
from common.model.states import FailureStrategy, Priority, TaskDependType, WarningType
from common.store.connect import server_time
from common.store.tables import ASKED_RECOVERY, command


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
    warning_type: WarningType = WarningType.NONE,
    executor_id: int = 1,
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
        warning_type=int(warning_type),
        warning_group_id=warning_group_of(warning_type),
        executor_id=executor_id,
    )


def put_stop(
    db: Connection, *, process_definition_id: int, process_instance_id: int, executor_id: int = 1
) -> int:
    """Put a STOP command for an instance; return its id."""
    return _put_signal(
        db, CommandType.STOP, process_definition_id, process_instance_id, executor_id
    )


def put_pause(
    db: Connection, *, process_definition_id: int, process_instance_id: int, executor_id: int = 1
) -> int:
    """Put a PAUSE command for an instance; return its id."""
    return _put_signal(
        db, CommandType.PAUSE, process_definition_id, process_instance_id, executor_id
    )


def _put_signal(
    db: Connection,
    command_type: CommandType,
    process_definition_id: int,
    process_instance_id: int,
    executor_id: int,
) -> int:
    return _put(
        db,
        command_type=int(command_type),
        process_definition_id=process_definition_id,
        command_param=CommandParam.of(process_instance_id=process_instance_id).text(),
        executor_id=executor_id,
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
    executor_id: int = 1,
    takes_latest: bool = False,
) -> int | PendingRecovery:
    """Put a command that restarts an ended instance; return its id, or the earlier recovery.

    With `takes_latest` the instance takes the latest version of its definition.

    The unique key of pending recoveries decides, so that of two concurrent ones one is put.
    """
    param = CommandParam.of(
        process_instance_id=process_instance_id,
        start_node_names=start_node_names,
        takes_latest=takes_latest,
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
            executor_id=executor_id,
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


def _put(db: Connection, **values: object) -> int:
    made: int = db.execute(insert(command).values(**values).returning(command.c.id)).scalar_one()
    return made
