"""What each command type amounts to: `plan(command, snapshot, now=…) -> Plan`. Pure.

One module a command type; `PLANNERS` is the registry. A new type is an enum member, a module here
with a `plan` function, its line in `PLANNERS`, and its test.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from common.model.commands import BadCommandError, Command, CommandType
from common.model.plans import Plan, Reject, Snapshot
from master.commands import (
    recover_tolerance_fault,
    scheduler,
    start_current_task,
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
    CommandType.SCHEDULER: scheduler.plan,
    CommandType.STOP: stop.plan,
}


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """What the command amounts to. Never raises for what a row may say: that is a `Reject`."""
    planner = PLANNERS.get(command.command_type)
    if planner is None:
        return Reject(reason=f"{command.command_type.name} is not supported yet")
    try:
        return planner(command, snapshot, now=now, origin=origin)
    except BadCommandError as error:
        return Reject(reason=str(error))
