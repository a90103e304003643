"""RECOVER_WAITTING_THREAD (10): go on with an instance that another release left without a thread.

Here nothing waits in that state: a command waits in its table until there is room for it.
"""

from __future__ import annotations

import json
from datetime import datetime

from common.model.command_param import ParamKey
from common.model.commands import Command, CommandType
from common.model.plans import Drop, Plan, Reject, Resume, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin

_NAME_IT = (
    f"command_param must name the instance: {json.dumps({ParamKey.WAITING_INSTANCE_ID: '12'})}"
)


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Take the run, if it waits."""
    if command.process_instance_id is None:
        return Reject(reason=_NAME_IT)
    instance = snapshot.instance
    if instance is None:
        return Reject(reason=f"there is no process instance {command.process_instance_id}")
    if instance.state is not ProcessState.WAITING_THREAD:
        return Drop(reason=f"process instance {instance.id} is {instance.state.name}")
    return Resume(
        process_instance_id=instance.id,
        epoch=instance.owner_epoch,
        command_type=CommandType.RECOVER_WAITTING_THREAD,
    )
