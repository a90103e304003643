"""PAUSE (8): store that an instance is to be paused; its owner drives towards it."""

from __future__ import annotations

from datetime import datetime

from common.model.commands import Command
from common.model.plans import Plan, Snapshot
from common.model.states import ProcessState
from master.commands.intent import plan_intent
from master.commands.origin import Origin


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Plan an intent for the whole tree that the instance belongs to."""
    return plan_intent(command, snapshot, ProcessState.PAUSE)
