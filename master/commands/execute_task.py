"""EXECUTE_TASK (12): run chosen nodes of an existing instance, and no others."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from common.dag import select
from common.errors import InvalidDefinitionError
from common.model.command_param import ParamKey, example
from common.model.commands import Command
from common.model.plans import InstanceSnapshot, Plan, Reject, Restart, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin
from master.commands.restart import all_begun, ended_instance, plan_restart, selection

_ENDED = tuple(state for state in ProcessState if state.is_terminal)


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Restart the nodes of `StartNodeNameList` and those that `task_depend_type` adds.

    Nodes outside the first selection can't be chosen: it never changes (trap T72). The state at the
    end is that of all selected nodes.
    """
    found = ended_instance(command, snapshot, allowed=_ENDED)
    if not isinstance(found, InstanceSnapshot):
        return found
    if found.root_id:
        return Reject(
            reason=f"process instance {found.id} is a sub process of {found.root_id}, which would"
            " not learn of it; run the SUB_PROCESS node there"
        )
    names = command.start_node_names
    if not names:
        return Reject(
            reason="EXECUTE_TASK needs the nodes to run: "
            + example({ParamKey.PROCESS_INSTANCE_ID: 12, ParamKey.START_NODE_NAMES: "a,b"})
        )
    try:
        selected = selection(found, origin.graph(found.process_instance_json))
    except InvalidDefinitionError as error:
        return Reject(reason=f"process instance {found.id} can't be run: {error}")
    unknown = [name for name in names if name not in selected.upstream]
    if unknown:
        return Reject(
            reason=f"process instance {found.id} has no selected"
            f" node{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown[:5]))}"
        )
    chosen = select(selected, names, command.task_depend_type).names
    restart = plan_restart(
        command, snapshot, allowed=_ENDED, reset=all_begun, now=now, origin=origin
    )
    if not isinstance(restart, Restart):
        return restart
    return replace(
        restart,
        reset=tuple(name for name in restart.reset if name in chosen),
        run_scope=chosen,
    )
