"""Intents for live process instances, as PAUSE and STOP store them. Pure."""

from __future__ import annotations

from common.model.commands import Command
from common.model.plans import Drop, Plan, Reject, SetIntent, Snapshot
from common.model.states import ProcessState
from master.commands.restart import NAME_IT


def plan_intent(command: Command, snapshot: Snapshot, wanted: ProcessState) -> Plan:
    """Plan an intent; a repeated one, or one for an ended instance, is harmless."""
    if command.process_instance_id is None:
        return Reject(reason=NAME_IT)
    instance = snapshot.instance
    if instance is None:
        return Reject(reason=f"there is no process instance {command.process_instance_id}")
    if instance.state.is_terminal:
        return Drop(reason=f"process instance {instance.id} has ended: {instance.state.name}")
    if instance.state is ProcessState.READY_STOP:
        # Also if it is for having taken too long: then it ends as the failure that it is.
        return Drop(reason=f"process instance {instance.id} is being stopped")
    if wanted is ProcessState.PAUSE and instance.state is ProcessState.SERIAL_WAIT:
        return Drop(reason=f"process instance {instance.id} has not begun")
    return SetIntent(
        process_instance_id=instance.id,
        command_type=command.command_type,
        wanted_state=wanted,
    )
