"""START_FAILURE_TASK_PROCESS (4): run what failed or never began (contract §3.4, trap T71)."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command
from common.model.plans import Plan, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin
from master.commands.restart import not_good, plan_restart


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Run failed, killed and lost tasks again, and all that never began; good results stay."""
    return plan_restart(
        command,
        snapshot,
        allowed=(ProcessState.FAILURE,),
        reset=not_good,
        now=now,
        origin=origin,
    )
