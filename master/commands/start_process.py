"""START_PROCESS (0): a new run, of all nodes or of those that `StartNodeNameList` selects."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command
from common.model.plans import Plan, Snapshot
from master.commands.begin import plan_begin
from master.commands.origin import Origin


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Plan a new instance."""
    return plan_begin(command, snapshot, now=now, origin=origin)
