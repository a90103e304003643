"""Commands: requests that stand as rows in `t_ds_command`, and how their parameters are read.

Pure. Adds the words *command type* and *command parameters*. Rows may be typed by hand, so
everything here takes them as hostile: what can't be read becomes a `BadCommandError` whose text
goes into `t_ds_error_command`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import TypeVar

from common.errors import SchedulerError
from common.model.states import FailureStrategy, Priority, TaskDependType, WarningType

_Code = TypeVar("_Code", bound=IntEnum)

_MAX_ID_DIGITS = 20


class CommandType(IntEnum):
    """What a command asks for; the values are those of `t_ds_command.command_type`."""

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


BEGINNING_COMMANDS = (
    CommandType.START_PROCESS,
    CommandType.START_CURRENT_TASK_PROCESS,
    CommandType.COMPLEMENT_DATA,
    CommandType.SCHEDULER,
)
"""They make a new process instance."""

RESTARTING_COMMANDS = (
    CommandType.RECOVER_SUSPENDED_PROCESS,
    CommandType.START_FAILURE_TASK_PROCESS,
    CommandType.REPEAT_RUNNING,
    CommandType.EXECUTE_TASK,
)
"""They make an ended process instance live again."""

OWN_RECOVERIES = (CommandType.RECOVER_TOLERANCE_FAULT_PROCESS, CommandType.RECOVER_SERIAL_WAIT)
"""Masters ask these of themselves; what people ask of the same instance does not hold them up."""

SIGNALLING_COMMANDS = (CommandType.PAUSE, CommandType.STOP)
"""They tell a live process instance what is wanted of it; no room is needed for them."""


def child_command_type(history: Sequence[str], *, has_child: bool) -> CommandType:
    """What a SUB_PROCESS attempt asks for its child (§3.8, by the simpler rule of 1.3; trap T34).

    `history` are the names in the parent's `history_cmd`. A new child is begun the way the first
    of the line was begun, so that its dates are worked out alike; one that exists is treated as the
    parent was when it was last restarted.
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


class BadCommandError(SchedulerError):
    """A command can't be carried out, now or ever. Move it to the error table with this text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """A row as it stands, every code still a bare number.

    `command_param` is None when it is NULL or longer than the limit; `param_bytes` tells which.
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
    bad_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A row whose every field has been understood. `param` has text values only (§3.1)."""

    id: int
    command_type: CommandType
    process_definition_id: int
    param: Mapping[str, str] = field(default_factory=dict)
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
        """The instance that a recovery or a signal speaks of; None if it names none."""
        key = (
            "WaittingThreadInstanceId"
            if self.command_type is CommandType.RECOVER_WAITTING_THREAD
            and "ProcessInstanceId" not in self.param
            else "ProcessInstanceId"
        )
        text = self.param.get(key, "")
        if not text:
            return None
        # Python refuses to read numbers of thousands of digits.
        if (
            not (text.isascii() and text.isdecimal())
            or len(text) > _MAX_ID_DIGITS
            or not 0 < int(text) < 2**31
        ):
            raise BadCommandError(
                f"command_param: {key} must be the id of an instance, not {text[:40]!r}"
            )
        return int(text)

    @property
    def start_node_names(self) -> tuple[str, ...]:
        """The nodes to start from, in the order given; empty means all."""
        return _names(self.param)


def read_command(row: CommandRow, *, param_limit_bytes: int) -> Command:
    """Understand a row, or raise `BadCommandError` with what is wrong and where."""
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


def start_node_names(command_param: str) -> tuple[str, ...]:
    """The start nodes in a process instance's own `command_param`, which a master wrote.

    Raises `BadCommandError` if somebody has spoilt it since.
    """
    try:
        document = json.loads(command_param or "{}")
    except (ValueError, RecursionError) as error:
        raise BadCommandError(f"command_param of the instance can't be read: {error}") from error
    return _names(document) if isinstance(document, dict) else ()


def start_params(command_param: str | None) -> dict[str, str]:
    """The `StartParams` in a process instance's own `command_param`; none if they can't be read.

    They were read strictly when the run began: what does not parse now was not the user's.
    """
    try:
        document = json.loads(command_param or "{}", parse_float=str)
        given = document.get("StartParams") if isinstance(document, dict) else None
        if isinstance(given, str):
            given = json.loads(given or "{}", parse_float=str)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(given, dict):
        return {}
    return {
        name: value if isinstance(value, str) else "" if value is None else json.dumps(value)
        for name, value in given.items()
    }


def _names(param: Mapping[str, str]) -> tuple[str, ...]:
    names = str(param.get("StartNodeNameList", "")).split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _read_param(row: CommandRow, limit: int) -> dict[str, str]:
    if row.param_bytes > limit:
        raise BadCommandError(
            f"command_param has {row.param_bytes} bytes; at most {limit} are read"
            " (command.param_limit_bytes)"
        )
    if not row.command_param or not row.command_param.strip():
        return {}
    try:
        # A decimal stays the text it was written as: 1.10 must not become 1.1.
        document = json.loads(row.command_param, parse_float=str)
    except json.JSONDecodeError as error:
        raise BadCommandError(
            f"command_param is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except RecursionError as error:
        raise BadCommandError("command_param is nested too deeply") from error
    except ValueError as error:
        # A whole number of thousands of digits is refused by Python itself.
        raise BadCommandError(f"command_param can't be read: {error}") from error
    if not isinstance(document, dict):
        raise BadCommandError(f"command_param must be a JSON object, not {type(document).__name__}")
    # Writers mix strings and numbers (§3.1); StartParams is an object of its own.
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in document.items()
        if value is not None
    }
