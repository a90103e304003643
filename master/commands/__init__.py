"""Planners, one for each command type: `plan(command, snapshot, now=…) -> Plan`. Pure.

One module a command type; `PLANNERS` is the registry. A new type is an enum member, a module here
with a `plan` function, its line in `PLANNERS`, and its test.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from common.errors import BadCommandError
from common.model.commands import Command, CommandType
from common.model.plans import Plan, Reject, Snapshot
from master.commands import (
    complement_data,
    execute_task,
    pause,
    recover_serial_wait,
    recover_suspended,
    recover_tolerance_fault,
    recover_waiting_thread,
    repeat_running,
    scheduler,
    start_current_task,
    start_failure_task,
    start_process,
    stop,
)
from master.commands.origin import Origin


class Planner(Protocol):
    """The shape of every module's `plan`."""

    def __call__(
        self, command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin
    ) -> Plan: ...


PLANNERS: Mapping[CommandType, Planner] = {
    CommandType.START_PROCESS: start_process.plan,
    CommandType.START_CURRENT_TASK_PROCESS: start_current_task.plan,
    CommandType.RECOVER_TOLERANCE_FAULT_PROCESS: recover_tolerance_fault.plan,
    CommandType.RECOVER_SUSPENDED_PROCESS: recover_suspended.plan,
    CommandType.START_FAILURE_TASK_PROCESS: start_failure_task.plan,
    CommandType.COMPLEMENT_DATA: complement_data.plan,
    CommandType.SCHEDULER: scheduler.plan,
    CommandType.REPEAT_RUNNING: repeat_running.plan,
    CommandType.PAUSE: pause.plan,
    CommandType.STOP: stop.plan,
    CommandType.RECOVER_WAITTING_THREAD: recover_waiting_thread.plan,
    CommandType.RECOVER_SERIAL_WAIT: recover_serial_wait.plan,
    CommandType.EXECUTE_TASK: execute_task.plan,
}


REASON_LIMIT = 2_000
"""Characters of a refusal: it may quote a megabyte that somebody has typed."""


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Plan a command. Never raises for the contents of a row: those are a `Reject`."""
    try:
        found = PLANNERS[command.command_type](command, snapshot, now=now, origin=origin)
    except BadCommandError as error:
        found = Reject(reason=str(error))
    if isinstance(found, Reject) and len(found.reason) > REASON_LIMIT:
        return Reject(reason=f"{found.reason[: REASON_LIMIT - 1]}…")
    return found
