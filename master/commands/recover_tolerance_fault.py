"""RECOVER_TOLERANCE_FAULT_PROCESS (2): go on with a run whose master is gone (contract §7.5)."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command
from common.model.plans import Drop, Plan, Reject, Resume, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin
from master.commands.restart import NAME_IT


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Take the run over, unless it has ended or its owner is alive."""
    if command.process_instance_id is None:
        return Reject(reason=NAME_IT)
    instance = snapshot.instance
    if instance is None:
        return Reject(reason=f"there is no process instance {command.process_instance_id}")
    if instance.state.is_terminal:
        return Drop(reason=f"process instance {instance.id} has ended: {instance.state.name}")
    if instance.state is ProcessState.SERIAL_WAIT:
        # Nobody owns it before its turn, so there is nobody to take it over from.
        return Drop(reason=f"process instance {instance.id} waits for its turn")
    if instance.owner is not None and instance.owner in snapshot.live_masters:
        return Drop(reason=f"the owner of process instance {instance.id} is alive")
    return Resume(process_instance_id=instance.id, epoch=instance.owner_epoch)
