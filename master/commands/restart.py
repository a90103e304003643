"""Making an ended process instance live again, as all command types that recover one do. Pure.

The tasks to run again are computed from the rows and the first selection, never from a list that
an earlier recovery left behind (traps T70, T71, T72): a *reset* task counts as not begun, others
keep their results, and tasks that never began are found by loading the run like any other.

A run keeps its own copy of the definition, unless the command or the restart of its parent takes
the latest version. Then tasks whose results do not hold under that version are reset too
(`common.kept_results`), and the run needs what a new run of the definition needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from common.dag import Dag, select
from common.errors import BadCommandError, InvalidDefinitionError
from common.kept_results import stale_tasks
from common.model.command_param import LATEST, CommandParam, ParamKey
from common.model.commands import Command, CommandType, child_command_type
from common.model.definitions import ProcessGraph
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.plans import (
    DefinitionSnapshot,
    Drop,
    InstanceSnapshot,
    NewVersion,
    ParentSnapshot,
    Plan,
    Reject,
    Restart,
    Snapshot,
)
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskDependType,
)
from common.params import ParameterError
from common.zones import UnknownZoneError, zone_named
from master.commands.begin import (
    child_of,
    fault_of_definition,
    fault_of_grants,
    no_child,
    plan_begin,
)
from master.commands.origin import Origin
from master.commands.parameters import ForeignValueError, resolved_global_params
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

_SUB_PROCESS = "SUB_PROCESS"
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
    if parent is not None and not parent.reaches_run(found):
        return Reject(reason=no_child(command))
    if command.param.takes_latest or (parent is not None and parent.took_latest):
        return _plan_with_latest(command, snapshot, found, own, reset, now=now, origin=origin)
    try:
        graph = origin.graph(found.process_instance_json)
        chosen = _tasks_to_reset(found, graph, reset)
        declared = (graph.global_params, own.global_params if own else None)
        global_params = None
        if _changes_parameters(command, snapshot, found):
            afresh = command.command_type is CommandType.REPEAT_RUNNING
            moment = _moment(found, afresh=afresh) or now
            global_params = _parameters(
                command, snapshot, found, declared, moment=moment, origin=origin
            )
    except (InvalidDefinitionError, ImpossibleError, ParameterError) as error:
        return _refused(found, parent, error)
    restart = _restart(command, snapshot, found, own)
    return replace(restart, reset=chosen, global_params=global_params)


def _restart(
    command: Command,
    snapshot: Snapshot,
    found: InstanceSnapshot,
    own: DefinitionSnapshot | None,
    noted: Mapping[ParamKey, str] | None = None,
) -> Restart:
    """Build a restart that resets no task; `noted` are parameters for the run's children."""
    of_definition = own.execution_type if own else ExecutionType.PARALLEL
    return Restart(
        process_instance_id=found.id,
        epoch=found.owner_epoch,
        command_type=command.command_type,
        reset=(),
        command_param=_command_param(command, found, noted or {}),
        afresh=command.command_type is CommandType.REPEAT_RUNNING,
        child_of=None if snapshot.parent is None else child_of(snapshot.parent),
        execution_type=(of_definition if found.execution_type is None else found.execution_type),
    )


def _refused(found: InstanceSnapshot, parent: ParentSnapshot | None, error: Exception) -> Reject:
    # Members of the parent's project read this, but may not see a shared definition's tasks.
    is_foreign = parent is not None and parent.is_foreign(found)
    is_hidden = is_foreign and not isinstance(error, ForeignValueError)
    why = "it is of another project" if is_hidden else str(error)
    return Reject(reason=f"process instance {found.id} can't be recovered: {why}")


def _plan_with_latest(
    command: Command,
    snapshot: Snapshot,
    found: InstanceSnapshot,
    own: DefinitionSnapshot | None,
    reset: Reset,
    *,
    now: datetime,
    origin: Origin,
) -> Plan:
    """Plan a restart with the latest version of the definition.

    If a SUB_PROCESS names another definition now, a new run replaces its child.
    """
    parent = snapshot.parent
    if own is None:
        return _plan_new_child(command, snapshot, now=now, origin=origin)
    if fault := _fault_of_latest(command, snapshot, found, own, origin):
        return Reject(reason=f"process instance {found.id} can't take the latest version: {fault}")
    if parent is not None and parent.wants_fresh_child:
        reset = all_begun
    is_fresh = reset is all_begun
    try:
        after = origin.graph(own.process_definition_json)
        before = None if is_fresh else _own_graph(found, origin)
        stale = dict.fromkeys(after.dag.names) if before is None else stale_tasks(before, after)
        bad = () if before is None else reset(ended_run(found, before))
        chosen = _results_to_reset(found, selection(found, after), {*stale, *bad})
        # The results that stay must make a run of the new version.
        ended_run(_with_reset(found, chosen), after)
        declared = (own.global_params, after.global_params)
        moment = _moment(found, afresh=is_fresh) or now
        global_params = _parameters(
            command, snapshot, found, declared, moment=moment, origin=origin
        )
    except (InvalidDefinitionError, ImpossibleError, ParameterError) as error:
        return _refused(found, parent, error)
    fresh_children = [name for name in stale if after.nodes[name].task_type == _SUB_PROCESS]
    noted = {ParamKey.VERSION: LATEST, ParamKey.FRESH_CHILDREN: ",".join(fresh_children)}
    return replace(
        _restart(command, snapshot, found, own, noted),
        reset=chosen,
        global_params=global_params,
        afresh=is_fresh,
        version=NewVersion(
            version=own.version,
            process_instance_json=own.process_definition_json,
            timeout_minutes=own.timeout_minutes or after.timeout_minutes,
            timeout_strategy=after.timeout_strategy,
            tenant_id=own.tenant_id,
            locations=own.locations,
            connects=own.connects,
        ),
    )


def _plan_new_child(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    parent = snapshot.parent
    if parent is None:
        return Reject(reason="the process instance has no definition with a latest version")
    first = replace(
        command,
        command_type=child_command_type(parent.history, has_child=False),
        param=command.param.without(ParamKey.PROCESS_INSTANCE_ID, ParamKey.CHILD_ID),
    )
    return plan_begin(first, snapshot, now=now, origin=origin)


def _fault_of_latest(
    command: Command,
    snapshot: Snapshot,
    found: InstanceSnapshot,
    own: DefinitionSnapshot,
    origin: Origin,
) -> str | None:
    """Return the fault for which a new run of the definition would be refused."""
    # A recovery selects no tasks: that did the first command of the run.
    whole = replace(command, param=CommandParam(), task_depend_type=TaskDependType.TASK_POST)
    environment = CommandParam.as_stored(found.command_param).stored_environment_code
    return fault_of_definition(whole, snapshot, origin) or fault_of_grants(
        found.worker_group_id, environment, own
    )


def _own_graph(found: InstanceSnapshot, origin: Origin) -> ProcessGraph | None:
    """Return the graph of the run's own copy; None if it can't be read."""
    try:
        return origin.graph(found.process_instance_json)
    except InvalidDefinitionError:
        # Its results mean nothing then, and the latest version may be the cure.
        return None


def _results_to_reset(
    found: InstanceSnapshot, selected: Dag, stale: Collection[str]
) -> tuple[str, ...]:
    """Return the tasks that lose their valid attempt, removed tasks too.

    Raises `ImpossibleError` if such an attempt has not ended, because its result would count.
    """
    latest = {row.name: row for row in found.tasks}
    lost = [
        row
        for row in latest.values()
        if row.valid and (row.name in stale or row.name not in selected.upstream)
    ]
    for row in lost:
        if not row.state.is_finished:
            raise ImpossibleError(
                f"the last attempt at {row.name!r} has not ended yet; try again when it has"
            )
    return tuple(row.name for row in lost)


def _with_reset(found: InstanceSnapshot, names: Collection[str]) -> InstanceSnapshot:
    """Return the instance as the restart leaves it."""
    is_reset = frozenset(names)
    tasks = tuple(
        replace(row, valid=False, retry_at=None) if row.name in is_reset else row
        for row in found.tasks
    )
    return replace(found, tasks=tasks)


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


def _changes_parameters(command: Command, snapshot: Snapshot, found: InstanceSnapshot) -> bool:
    """Return True if a restart with the run's own copy can change its parameters (trap T33b).

    A sub process of a definition that was deleted may be of another project than its parent. So it
    keeps the parameters that it had.
    """
    if snapshot.parent is not None and found.project_id is None:
        return snapshot.parent.project_id is None
    afresh = command.command_type is CommandType.REPEAT_RUNNING
    return bool(afresh or command.param.start_params or snapshot.parent)


def _parameters(
    command: Command,
    snapshot: Snapshot,
    instance: InstanceSnapshot,
    declared: tuple[str | None, ...],
    *,
    moment: datetime,
    origin: Origin,
) -> str:
    """Compute the global parameters anew, of the first of these sources that has any."""
    given = command.param.start_params
    timezone_id = snapshot.parent.timezone_id if snapshot.parent else instance.timezone_id
    try:
        zone = origin.zone if timezone_id is None else zone_named(timezone_id)
    except UnknownZoneError as error:
        raise ParameterError(f"timezone_id: {error}") from error
    return resolved_global_params(
        declared,
        given=given or CommandParam.as_stored(instance.command_param).start_params,
        moment=moment,
        parent=snapshot.parent,
        zone=zone,
        is_foreign=snapshot.parent is not None and snapshot.parent.is_foreign(instance),
        is_stored=not given,
    )


def _moment(instance: InstanceSnapshot, *, afresh: bool) -> datetime | None:
    """Return the moment of a started run; None for a complete rerun without a schedule time."""
    dated = instance.business_time or instance.schedule_time
    return dated or (None if afresh else instance.start_time)


def _command_param(
    command: Command, instance: InstanceSnapshot, noted: Mapping[ParamKey, str]
) -> str | None:
    """Merge this command's parameters into the stored ones; start nodes stay as they were.

    What an earlier restart has noted for the run's children goes.
    """
    given = command.param.start_params
    changes = command.param.relation() if command.parent_task_instance_id else {}
    if given is not None:
        changes[ParamKey.START_PARAMS] = given
    changes |= {key: text for key, text in noted.items() if text}
    stored = CommandParam.as_stored(instance.command_param)
    kept = stored.without(ParamKey.VERSION, ParamKey.FRESH_CHILDREN)
    if not changes and len(kept) == len(stored):
        return None
    return kept.replaced(changes).text()
