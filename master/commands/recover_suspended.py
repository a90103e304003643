"""RECOVER_SUSPENDED_PROCESS (3): go on with what was paused or stopped (contract §3.4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from common.model.commands import Command
from common.model.plans import Plan, Restart, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin
from master.commands.restart import interrupted, not_good, plan_restart


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Run paused and killed tasks again, and all that never began; good results stay.

    The child of a SUB_PROCESS is recovered whatever its final state: its failure may come from the
    very stop that is being undone (trap T74).
    """
    restart = plan_restart(
        command,
        snapshot,
        allowed=(ProcessState.PAUSE, ProcessState.STOP),
        reset=not_good if command.parent_task_instance_id else interrupted,
        now=now,
        origin=origin,
    )
    scope = snapshot.instance.run_scope if snapshot.instance else None
    if scope is None or not isinstance(restart, Restart) or restart.version is not None:
        # The latest version is for the whole selection: any of its tasks may have changed.
        return restart
    # What was paused or stopped were chosen nodes, and these are what it goes on with.
    return replace(
        restart, run_scope=scope, reset=tuple(name for name in restart.reset if name in scope)
    )
