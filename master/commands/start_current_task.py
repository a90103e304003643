"""START_CURRENT_TASK_PROCESS (1): a new run from chosen nodes, which the row must name."""

from __future__ import annotations

from datetime import datetime

from common.model.command_param import ParamKey, example
from common.model.commands import Command
from common.model.plans import Plan, Reject, Snapshot
from master.commands.begin import plan_begin
from master.commands.origin import Origin


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Plan a new instance of the chosen nodes and of those that `task_depend_type` adds."""
    if not command.start_node_names:
        return Reject(
            reason="START_CURRENT_TASK_PROCESS needs the nodes to start from: "
            + example({ParamKey.START_NODE_NAMES: "a,b"})
        )
    return plan_begin(command, snapshot, now=now, origin=origin)
