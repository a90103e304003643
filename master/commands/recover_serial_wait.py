"""RECOVER_SERIAL_WAIT (11): the turn of an instance that waited for others of its definition."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command, CommandType
from common.model.plans import Drop, Plan, Reject, Resume, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin
from master.commands.restart import NAME_IT


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Begin it, if it still waits; the store puts such a command when its turn has come."""
    if command.process_instance_id is None:
        return Reject(reason=NAME_IT)
    instance = snapshot.instance
    if instance is None:
        return Reject(reason=f"there is no process instance {command.process_instance_id}")
    if instance.state is not ProcessState.SERIAL_WAIT:
        return Drop(reason=f"process instance {instance.id} is {instance.state.name}")
    return Resume(
        process_instance_id=instance.id,
        epoch=instance.owner_epoch,
        command_type=CommandType.RECOVER_SERIAL_WAIT,
    )
