"""Making an ended process instance live again, as all command types that recover one do. Pure.

The tasks to run again are computed from the rows and the first selection, never from a list that
an earlier recovery left behind (traps T70, T71, T72): a *reset* task counts as not begun, others
keep their results, and tasks that never began are found by loading the run like any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from common.dag import Dag, select
from common.errors import BadCommandError, InvalidDefinitionError
from common.model.command_param import CommandParam, ParamKey
from common.model.commands import Command, CommandType
from common.model.definitions import ProcessGraph
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.plans import (
    DefinitionSnapshot,
    Drop,
    InstanceSnapshot,
    ParentSnapshot,
    Plan,
    Reject,
    Restart,
    Snapshot,
)
from common.model.states import ExecutionType, FailureStrategy, Priority, ProcessState
from common.params import ParameterError
from common.zones import UnknownZoneError, zone_named
from master.commands.begin import child_of, no_child
from master.commands.origin import Origin
from master.commands.parameters import resolved_global_params
from master.engine.load import load_run
from master.engine.run import ProcessRun
from master.engine.task_run import ImpossibleError, TaskPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """An ended instance as the run that it was; `promised` names the tasks that await a retry.

    In `run` these are failed: an ended run keeps no promise.
    """

    run: ProcessRun
    promised: frozenset[str]


Reset: TypeAlias = Callable[[EndedRun], tuple[str, ...]]
"""A function that selects the tasks of an ended run to count as not begun."""

NAME_IT = f"command_param must name the instance: {json.dumps({ParamKey.PROCESS_INSTANCE_ID: 12})}"

_CURES = {
    ProcessState.FAILURE: "START_FAILURE_TASK_PROCESS runs what failed, and what never started",
    ProcessState.PAUSE: "RECOVER_SUSPENDED_PROCESS goes on with it",
    ProcessState.STOP: "RECOVER_SUSPENDED_PROCESS goes on with it",
    ProcessState.SUCCESS: "REPEAT_RUNNING runs all of it again",
}


def all_begun(ended: EndedRun) -> tuple[str, ...]:
    """Select every task that has an attempt."""
    return tuple(name for name, task in ended.run.tasks.items() if task.attempt)


def interrupted(ended: EndedRun) -> tuple[str, ...]:
    """Select the tasks that were paused or killed on request; failures stay failures.

    A promised retry stays promised, unless a task upstream of it has to run first.
    """
    run, promised = ended.run, ended.promised
    too_early = tuple(
        name
        for name in run.dag.names
        if name in promised
        and not all(
            run.tasks[above].phase.is_done and above not in promised
            for above in run.dag.upstream[name]
        )
    )
    return (*_in(run, {TaskPhase.PAUSED, TaskPhase.KILLED}), *too_early)


def not_good(ended: EndedRun) -> tuple[str, ...]:
    """Select the tasks that failed, were kept from their end, or await a retry.

    A failure handled by a CONDITIONS task is a result like any other, unless it keeps a task from
    running.
    """
    run = ended.run
    bad = _in(run, {TaskPhase.PAUSED, TaskPhase.KILLED, TaskPhase.FAILED})
    blocking = tuple(
        name
        for name, task in run.tasks.items()
        if task.phase is TaskPhase.TOLERATED and (name in ended.promised or run.blocks(name))
    )
    return (*bad, *blocking)


def plan_restart(
    command: Command,
    snapshot: Snapshot,
    *,
    allowed: Collection[ProcessState],
    reset: Reset,
    now: datetime,
    origin: Origin,
) -> Plan:
    """Plan `Restart`, or `Reject` with the reason why the instance can't be recovered this way."""
    found = ended_instance(command, snapshot, allowed=allowed)
    if not isinstance(found, InstanceSnapshot):
        return found
    parent, own = snapshot.parent, _own_definition(found, snapshot.definition)
    if parent is not None and own is not None and not parent.reaches(own):
        return Reject(reason=no_child(command))
    try:
        graph = origin.graph(found.process_instance_json)
        chosen = _tasks_to_reset(found, graph, reset)
        global_params = _parameters(command, snapshot, found, graph, moment=now, origin=origin)
    except (InvalidDefinitionError, ImpossibleError, ParameterError) as error:
        # Members of the parent's project read this, but may not see a shared definition's tasks.
        is_foreign = parent is not None and own is not None and parent.is_foreign(own)
        why = "it is of another project" if is_foreign else str(error)
        return Reject(reason=f"process instance {found.id} can't be recovered: {why}")
    definition = _own_definition(found, snapshot.definition)
    of_definition = definition.execution_type if definition else ExecutionType.PARALLEL
    return Restart(
        process_instance_id=found.id,
        epoch=found.owner_epoch,
        command_type=command.command_type,
        reset=chosen,
        global_params=global_params,
        command_param=_command_param(command, found),
        afresh=command.command_type is CommandType.REPEAT_RUNNING,
        child_of=None if snapshot.parent is None else child_of(snapshot.parent),
        execution_type=(of_definition if found.execution_type is None else found.execution_type),
    )


def ended_instance(
    command: Command, snapshot: Snapshot, *, allowed: Collection[ProcessState]
) -> InstanceSnapshot | Drop | Reject:
    """Return the command's instance, if it has ended in one of the states `allowed`."""
    if command.process_instance_id is None:
        return Reject(reason=NAME_IT)
    instance = snapshot.instance
    if instance is None:
        return Reject(reason=f"there is no process instance {command.process_instance_id}")
    if command.parent_task_instance_id:
        if fault := _fault_of_parent(command, snapshot.parent, instance):
            return fault
        allowed = tuple(state for state in ProcessState if state.is_terminal)
    elif fault := _fault_of_definition(command, snapshot, instance):
        return fault
    place = _place(snapshot, instance)
    if not instance.state.is_terminal:
        return Reject(
            reason=f"{place} is {instance.state.name}: it has not ended, so there is nothing to"
            " recover yet; wait for its end, or stop it"
        )
    if instance.state not in allowed:
        cure = _CURES.get(instance.state, "")
        return Reject(
            reason=f"{place} is {instance.state.name}, for which {command.command_type.name}"
            f" is not meant; {cure}"
        )
    if instance.process_definition_id and snapshot.definition is None:
        # Whose tenant its tasks run as would be unknown, so each of them would fail.
        return Reject(
            reason=f"{place} can't run again: its definition {instance.process_definition_id} was"
            " deleted; import it, and start a new run"
        )
    return instance


def selection(instance: InstanceSnapshot, graph: ProcessGraph) -> Dag:
    """Return the selection of the instance's first command; no recovery changes it."""
    names = CommandParam.of_instance(instance.command_param).start_node_names
    chosen = select(graph.dag, names, instance.task_depend_type)
    if not chosen.names:
        raise BadCommandError(
            f"process instance {instance.id} can't be recovered: none of its start nodes"
            f" {', '.join(map(repr, names[:5]))} exists in its definition"
        )
    return chosen


def ended_run(instance: InstanceSnapshot, graph: ProcessGraph) -> EndedRun:
    """Load the instance as the run that it was; `ImpossibleError` for rows that make none."""
    rows = instance.tasks
    run = load_run(
        Ownership(process_instance_id=instance.id, host="", epoch=instance.owner_epoch),
        ProcessRow(
            id=instance.id,
            name="",
            # What its tasks amount to is the question here, whatever state was made of that.
            state=ProcessState.RUNNING,
            wanted_state=None,
            failure_strategy=FailureStrategy.CONTINUE,
            priority=Priority.MEDIUM,
            worker_group_id=-1,
            task_depend_type=int(instance.task_depend_type),
            command_param="",
            process_definition_id=instance.process_definition_id,
            process_instance_json="",
            executor_id=0,
            start_time=None,
        ),
        [_as_ended(row) for row in rows],
        dag=selection(instance, graph),
        nodes=graph.nodes,
    )
    promised = (row.name for row in rows if row.valid and row.retry_at is not None)
    return EndedRun(run=run, promised=frozenset(promised))


def _as_ended(row: TaskRow) -> TaskRow:
    """Return an attempt as settled and without a promised retry.

    One that ended after its run did was never settled, and an ended run keeps no promise.
    """
    if not row.state.is_finished:
        return row
    return replace(row, settled=True, retry_at=None)


def _tasks_to_reset(
    instance: InstanceSnapshot, graph: ProcessGraph, reset: Reset
) -> tuple[str, ...]:
    latest = {row.name: row for row in instance.tasks}
    valid = {row.name for row in latest.values() if row.valid and row.state.is_finished}
    wanted = dict.fromkeys(reset(ended_run(instance, graph)))
    return tuple(name for name in wanted if name in valid)


def _fault_of_parent(
    command: Command, parent: ParentSnapshot | None, instance: InstanceSnapshot
) -> Drop | Reject | None:
    if parent is None:
        return Reject(
            reason=f"task instance {command.parent_task_instance_id} is no SUB_PROCESS"
            " that could have a child"
        )
    if not parent.waits:
        return Drop(reason=f"task {parent.task_name!r} does not wait for its child any more")
    root_id = parent.root_id or parent.process_instance_id
    if instance.root_id != root_id:
        # Only a row typed by hand can say so; obeyed, it would tear a run out of its own tree.
        return Reject(
            reason=f"process instance {instance.id} is no sub process of process instance {root_id}"
        )
    return None


def _fault_of_definition(
    command: Command, snapshot: Snapshot, instance: InstanceSnapshot
) -> Reject | None:
    """Return the fault of a recovery that names another definition than its instance's."""
    named, own = command.process_definition_id, instance.process_definition_id
    if named in (0, own) or not own or snapshot.asked_instance_id not in (None, instance.id):
        return None
    return Reject(
        reason=f"process_definition_id is {named}, but process instance {instance.id} is one of"
        f" process definition {own}"
    )


def _own_definition(
    instance: InstanceSnapshot, definition: DefinitionSnapshot | None
) -> DefinitionSnapshot | None:
    """Return the definition if it is the instance's: a SUB_PROCESS may name another by now."""
    if definition is None or instance.process_definition_id in (0, definition.id):
        return definition
    return None


def _place(snapshot: Snapshot, instance: InstanceSnapshot) -> str:
    asked = snapshot.asked_instance_id
    if asked is None or asked == instance.id:
        return f"process instance {instance.id}"
    return f"process instance {instance.id}, to which the sub process {asked} belongs,"


def _in(run: ProcessRun, phases: Collection[TaskPhase]) -> tuple[str, ...]:
    return tuple(name for name, task in run.tasks.items() if task.phase in phases)


def _parameters(
    command: Command,
    snapshot: Snapshot,
    instance: InstanceSnapshot,
    graph: ProcessGraph,
    *,
    moment: datetime,
    origin: Origin,
) -> str | None:
    """Compute the parameters anew where that can change them (trap T33b); None keeps them."""
    given = command.param.start_params
    afresh = command.command_type is CommandType.REPEAT_RUNNING
    if not (afresh or given or snapshot.parent):
        return None
    definition = _own_definition(instance, snapshot.definition)
    timezone_id = snapshot.parent.timezone_id if snapshot.parent else instance.timezone_id
    try:
        zone = origin.zone if timezone_id is None else zone_named(timezone_id)
    except UnknownZoneError as error:
        raise ParameterError(f"timezone_id: {error}") from error
    return resolved_global_params(
        (graph.global_params, definition.global_params if definition else None),
        history=instance.history,
        given=given or CommandParam.as_stored(instance.command_param).start_params,
        moment=instance.schedule_time or moment,
        parent=snapshot.parent,
        zone=zone,
        complement_uses_chosen_date=origin.complement_uses_chosen_date,
    )


def _command_param(command: Command, instance: InstanceSnapshot) -> str | None:
    """Merge this command's parameters into the stored ones; start nodes stay as they were."""
    given = command.param.start_params
    changes = command.param.relation() if command.parent_task_instance_id else {}
    if given is not None:
        changes[ParamKey.START_PARAMS] = given
    if not changes:
        return None
    return CommandParam.as_stored(instance.command_param).replaced(changes).text()
