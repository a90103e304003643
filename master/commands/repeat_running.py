"""REPEAT_RUNNING (7): the same instance again, from scratch (contract §3.4)."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command
from common.model.plans import Plan, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin
from master.commands.restart import all_begun, plan_restart


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Run every task again, with the parameters computed anew."""
    return plan_restart(
        command,
        snapshot,
        allowed=tuple(state for state in ProcessState if state.is_terminal),
        reset=all_begun,
        now=now,
        origin=origin,
    )
