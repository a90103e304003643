"""EXECUTE_TASK (12): run chosen nodes of an existing instance, and no others.

A node that the command names runs whatever was decided elsewhere. One that follows it does not run
if a branching task that is not chosen itself has refused it: that decision stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from common.dag import Dag, select
from common.errors import InvalidDefinitionError
from common.model.command_param import ParamKey, example
from common.model.commands import Command
from common.model.plans import InstanceSnapshot, Plan, Reject, Restart, Snapshot
from common.model.states import ProcessState
from master.commands.origin import Origin
from master.commands.restart import (
    all_begun,
    ended_instance,
    ended_run,
    plan_restart,
    selection,
)
from master.engine.run import ProcessRun
from master.engine.task_run import Edge

_ENDED = tuple(state for state in ProcessState if state.is_terminal)


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Restart the nodes of `StartNodeNameList` and those that `task_depend_type` adds.

    Nodes outside the first selection can't be chosen: it never changes (trap T72). The state at the
    end is that of all selected nodes.
    """
    found = ended_instance(command, snapshot, allowed=_ENDED)
    if not isinstance(found, InstanceSnapshot):
        return found
    if command.param.takes_latest:
        return Reject(
            reason="EXECUTE_TASK runs tasks of the version that the run has; take the latest one"
            " with a recovery or a rerun"
        )
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
        graph = origin.graph(found.process_instance_json)
        selected = selection(found, graph)
    except InvalidDefinitionError as error:
        return Reject(reason=f"process instance {found.id} can't be run: {error}")
    unknown = [name for name in names if name not in selected.upstream]
    if unknown:
        return Reject(
            reason=f"process instance {found.id} has no selected"
            f" node{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown[:5]))}"
        )
    chosen = select(selected, names, command.task_depend_type)
    restart = plan_restart(
        command, snapshot, allowed=_ENDED, reset=all_begun, now=now, origin=origin
    )
    if not isinstance(restart, Restart):
        return restart
    # The rows have been read by the plan above, so they make a run.
    scope = _without_refused(chosen, names, ended_run(found, graph).run)
    return replace(
        restart,
        reset=tuple(name for name in restart.reset if name in scope),
        run_scope=scope,
    )


def _without_refused(chosen: Dag, named: Sequence[str], run: ProcessRun) -> tuple[str, ...]:
    """Return the chosen nodes without those that a decision outside them refuses.

    What only such nodes lead to is left out too.
    """
    scope: dict[str, None] = {}
    for name in chosen.names:
        above = run.dag.upstream[name]
        is_refused = any(
            one not in chosen.upstream and run.edge(one, name) is Edge.REFUSED for one in above
        )
        follows = not chosen.upstream[name] or any(one in scope for one in above)
        if name in named or (follows and not is_refused):
            scope[name] = None
    return tuple(scope)
