"""Commands: requests that stand as rows in `t_ds_command`, and their reading.

Pure. Adds the word *command type*. Rows may be typed by hand, so everything here takes them as
hostile: a row that can't be read becomes a `BadCommandError` whose text goes into
`t_ds_error_command`. `common.model.command_param` reads the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import TypeVar

from common.errors import BadCommandError
from common.model.command_param import CommandParam, ParamKey
from common.model.states import FailureStrategy, Priority, TaskDependType, WarningType

_Code = TypeVar("_Code", bound=IntEnum)


class CommandType(IntEnum):
    """The kind of a command; the values are those of `t_ds_command.command_type`."""

    START_PROCESS = 0
    START_CURRENT_TASK_PROCESS = 1
    RECOVER_TOLERANCE_FAULT_PROCESS = 2
    RECOVER_SUSPENDED_PROCESS = 3
    START_FAILURE_TASK_PROCESS = 4
    COMPLEMENT_DATA = 5
    SCHEDULER = 6
    REPEAT_RUNNING = 7
    PAUSE = 8
    STOP = 9
    RECOVER_WAITTING_THREAD = 10
    RECOVER_SERIAL_WAIT = 11
    EXECUTE_TASK = 12


class CommandOutcome(IntEnum):
    """The outcome of a command that is gone; the values are those of `t_ds_command_ledger`."""

    TAKEN = 1
    """Carried out: a run was begun, restarted or taken over, or an intent was stored."""
    DROPPED = 2
    """Deleted, and nothing was changed for it: its reason says why."""
    REFUSED = 3
    """It can't be carried out as it stands; its row is in `t_ds_error_command`."""


BEGINNING_COMMANDS = (
    CommandType.START_PROCESS,
    CommandType.START_CURRENT_TASK_PROCESS,
    CommandType.COMPLEMENT_DATA,
    CommandType.SCHEDULER,
)
"""Commands that make a new process instance."""

RESTARTING_COMMANDS = (
    CommandType.RECOVER_SUSPENDED_PROCESS,
    CommandType.START_FAILURE_TASK_PROCESS,
    CommandType.REPEAT_RUNNING,
    CommandType.EXECUTE_TASK,
)
"""Commands that make an ended process instance live again."""

OWN_RECOVERIES = (CommandType.RECOVER_TOLERANCE_FAULT_PROCESS, CommandType.RECOVER_SERIAL_WAIT)
"""Commands that masters put for themselves; requests of people do not delay them."""

INTENT_COMMANDS = (CommandType.PAUSE, CommandType.STOP)
"""Commands that store an intent for a live process instance; they need no room."""


def child_command_type(history: Sequence[str], *, has_child: bool) -> CommandType:
    """The command type for a SUB_PROCESS attempt's child (contract §3.8; 1.3's rule, T34).

    `history`: the names in the parent's `history_cmd`. A new child begins with the type by which
    the parent began, so that its dates are computed alike; an existing one gets the type of the
    parent's last restart.
    """
    if not has_child:
        first = CommandType.__members__.get(history[0]) if history else None
        if first in (CommandType.SCHEDULER, CommandType.COMPLEMENT_DATA):
            return first
        return CommandType.START_PROCESS
    for name in reversed(history):
        known = CommandType.__members__.get(name)
        if known is CommandType.EXECUTE_TASK:
            return CommandType.REPEAT_RUNNING
        if known in RESTARTING_COMMANDS:
            return known
    return CommandType.REPEAT_RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """A row as it stands, every code still a bare number.

    `command_param` is None if it is NULL or longer than the limit, which `param_bytes` shows.
    PostgreSQL knows times that nothing here can hold: `bad_time` names one, as `column is value`.
    """

    id: int
    command_type: int | None
    process_definition_id: int | None
    command_param: str | None
    param_bytes: int
    task_depend_type: int | None
    failure_strategy: int | None
    warning_type: int | None
    warning_group_id: int | None
    schedule_time: datetime | None
    start_time: datetime
    executor_id: int | None
    process_instance_priority: int | None
    worker_group_id: int | None
    parent_task_instance_id: int = 0
    complement_date_id: int = 0
    project_id: int = 0
    bad_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A row whose every field has been understood."""

    id: int
    command_type: CommandType
    process_definition_id: int
    param: CommandParam = field(default_factory=CommandParam)
    task_depend_type: TaskDependType = TaskDependType.TASK_POST
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE
    warning_type: WarningType = WarningType.NONE
    warning_group_id: int = 0
    schedule_time: datetime | None = None
    start_time: datetime
    executor_id: int = 1
    priority: Priority = Priority.MEDIUM
    worker_group_id: int = -1
    parent_task_instance_id: int = 0
    """The SUB_PROCESS attempt that wants the run; a column, since only masters write it."""
    complement_date_id: int = 0
    """The date of a complement that wants the run; a column for the same reason."""

    @property
    def process_instance_id(self) -> int | None:
        """The instance that a recovery, a pause or a stop is about; None if it names none."""
        if (
            self.command_type is CommandType.RECOVER_WAITTING_THREAD
            and ParamKey.PROCESS_INSTANCE_ID not in self.param
        ):
            return self.param.instance_id(ParamKey.WAITING_INSTANCE_ID)
        return self.param.instance_id()

    @property
    def start_node_names(self) -> tuple[str, ...]:
        """The nodes to start from, in the order given; empty means all."""
        return self.param.start_node_names


def read_command(row: CommandRow, *, param_limit_bytes: int) -> Command:
    """Parse a row, or raise `BadCommandError` with the mistake and its place."""
    if row.bad_time is not None:
        raise BadCommandError(f"{row.bad_time}; a time must lie in the years 1 to 9999")
    return Command(
        id=row.id,
        command_type=_code("command_type", CommandType, row.command_type),
        process_definition_id=row.process_definition_id or 0,
        param=_read_param(row, param_limit_bytes),
        task_depend_type=_code("task_depend_type", TaskDependType, _or(row.task_depend_type, 2)),
        failure_strategy=_code("failure_strategy", FailureStrategy, _or(row.failure_strategy, 1)),
        warning_type=_code("warning_type", WarningType, _or(row.warning_type, 0)),
        warning_group_id=row.warning_group_id or 0,
        schedule_time=row.schedule_time,
        start_time=row.start_time,
        executor_id=_or(row.executor_id, 1),
        priority=_code(
            "process_instance_priority", Priority, _or(row.process_instance_priority, 2)
        ),
        worker_group_id=_or(row.worker_group_id, -1) or -1,
        parent_task_instance_id=row.parent_task_instance_id,
        complement_date_id=row.complement_date_id,
    )


def _code(column: str, known: type[_Code], value: int | None) -> _Code:
    for code in known:
        if code.value == value:
            return code
    codes = ", ".join(f"{code.value} {code.name}" for code in known)
    what = "NULL" if value is None else value
    raise BadCommandError(f"{column} is {what}; it must be one of {codes}")


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _read_param(row: CommandRow, limit: int) -> CommandParam:
    if row.param_bytes > limit:
        raise BadCommandError(
            f"command_param has {row.param_bytes} bytes; at most {limit} are read"
            " (command.param_limit_bytes)"
        )
    return CommandParam.parse(row.command_param)
