"""SCHEDULER (6): a new run for a planned fire time, which is its `schedule_time`."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command
from common.model.plans import Plan, Snapshot
from master.commands.begin import plan_begin
from master.commands.origin import Origin


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Plan a new instance. A row typed without a time counts as a fire at its insertion."""
    return plan_begin(command, snapshot, now=now, origin=origin)
