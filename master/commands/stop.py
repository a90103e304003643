"""STOP (9): store that an instance is to be stopped; its owner drives towards it."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command, CommandType
from common.model.plans import Drop, Plan, Reject, Signal, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """A signal; repeating it, or stopping what has ended, is harmless."""
    if command.process_instance_id is None:
        return Reject(reason='command_param must name the instance: {"ProcessInstanceId": 12}')
    instance = snapshot.instance
    if instance is None:
        return Reject(reason=f"there is no process instance {command.process_instance_id}")
    if instance.state.is_terminal:
        return Drop(reason=f"process instance {instance.id} has ended: {instance.state.name}")
    return Signal(
        process_instance_id=instance.id,
        command_type=CommandType.STOP,
        wanted_state=ProcessState.STOP,
    )
