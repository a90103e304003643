"""Beginning a new process instance, for all types that do so (contract §3.4, §3.5). Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from common.business_dates import moment_of_date
from common.dag import select
from common.errors import BadCommandError, InvalidDefinitionError
from common.model.command_param import CommandParam, ParamKey
from common.model.commands import Command, CommandType
from common.model.grants import GrantedObject, GrantKind, cure, missing
from common.model.plans import (
    Begin,
    ChildOf,
    DefinitionSnapshot,
    Drop,
    ParentSnapshot,
    Plan,
    Reject,
    Snapshot,
)
from common.model.run_names import run_name
from common.model.states import ExecutionType, ReleaseState, TaskDependType
from common.params import ParameterError
from common.zones import UnknownZoneError, zone_named
from master.commands.origin import Origin
from master.commands.parameters import ForeignValueError, resolved_global_params

_MILLISECONDS = 1000


def plan_begin(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Plan `Begin`, or `Reject` with the fault that keeps the definition from running as asked.

    A child of a SUB_PROCESS task begins only while the task still waits for it. The release state
    of its definition does not matter: that restricts new runs alone (trap T39).
    """
    parent = snapshot.parent
    if command.parent_task_instance_id:
        if parent is None:
            return Reject(
                reason=f"task instance {command.parent_task_instance_id} is no SUB_PROCESS"
                " that could have a child"
            )
        if not parent.waits:
            return Drop(reason=f"task {parent.task_name!r} does not wait for its child any more")
    if fault := fault_of_definition(command, snapshot, origin):
        return Reject(reason=fault)
    definition = snapshot.definition
    assert definition is not None, "a missing definition is a fault"
    graph = origin.graph(definition.process_definition_json)
    try:
        timezone_id = _timezone_id(command, parent)
        zone = origin.zone if timezone_id is None else zone_named(timezone_id)
        own_execution_type = _execution_type(command)
        # What restarts of another run have noted says nothing about this one.
        param = _with_environment(command, parent).without(
            ParamKey.VERSION, ParamKey.FRESH_CHILDREN
        )
        business_time = _business_time(command, snapshot, zone, origin)
    except UnknownZoneError as error:
        return Reject(reason=f"command_param: {ParamKey.TIME_ZONE}: {error}")
    except BadCommandError as error:
        return Reject(reason=f"command_param: {error}")
    except ParameterError as error:
        return Reject(reason=f"schedule_time: {error}")
    if fault := fault_of_grants(command.worker_group_id, param.environment_code, definition):
        return Reject(reason=fault)
    begin = Begin(
        name=run_name(definition.name, definition.version, int(now.timestamp() * _MILLISECONDS)),
        process_definition_id=definition.id,
        command_type=command.command_type,
        command_param=param.text(),
        process_instance_json=definition.process_definition_json,
        global_params="[]",
        task_depend_type=command.task_depend_type,
        failure_strategy=command.failure_strategy,
        warning_type=command.warning_type,
        warning_group_id=command.warning_group_id,
        schedule_time=command.schedule_time,
        command_start_time=command.start_time,
        executor_id=command.executor_id,
        priority=command.priority,
        worker_group_id=command.worker_group_id,
        timeout_minutes=definition.timeout_minutes or graph.timeout_minutes,
        timeout_strategy=graph.timeout_strategy,
        tenant_id=definition.tenant_id,
        locations=definition.locations,
        connects=definition.connects,
        # Not by its truth: PARALLEL is 0.
        execution_type=(
            definition.execution_type if own_execution_type is None else own_execution_type
        ),
        is_serial_by_schedule=own_execution_type is not None,
        child_of=None if parent is None else child_of(parent),
        timezone_id=timezone_id,
        business_time=business_time,
        complement_date_id=command.complement_date_id,
        origin=definition.origin,
    )
    is_foreign = parent is not None and parent.is_foreign(definition)
    try:
        global_params = resolved_global_params(
            (definition.global_params, graph.global_params),
            given=command.param.start_params,
            moment=business_time or command.schedule_time or now,
            parent=parent,
            zone=zone,
            is_foreign=is_foreign,
        )
    except ForeignValueError as error:
        return Reject(reason=str(error))
    except ParameterError as error:
        if is_foreign:
            return Reject(reason=_cannot_run(definition))
        return Reject(reason=f"global parameters of {definition.name!r}: {error}")
    return replace(begin, global_params=global_params)


def fault_of_definition(command: Command, snapshot: Snapshot, origin: Origin) -> str | None:
    """Return the fault that keeps the definition from running as asked; None if there is none."""
    definition, parent = snapshot.definition, snapshot.parent
    if definition is None or (parent is not None and not parent.reaches(definition)):
        return _no_definition(command) if parent is None else no_child(command)
    if not definition.usable:
        return (
            f"process definition {definition.name!r} is switched off (its flag is 0);"
            " set that to 1, or import it again"
        )
    if parent is None and definition.release_state is not ReleaseState.ONLINE:
        return (
            f"process definition {definition.name!r} is OFFLINE;"
            f" set it online first: orcaflow definition online {definition.name!r}"
        )
    if parent is not None and definition.id in parent.ancestors:
        if parent.is_foreign(definition):
            # The ids in between may belong to projects that the parent's members can't see.
            return f"process definition {definition.name!r} would run inside itself"
        line = " → ".join(str(each) for each in (*parent.ancestors, definition.id))
        return (
            f"process definition {definition.name!r} would run inside itself:"
            f" the sub processes have the definitions {line}"
        )
    if parent is not None and len(parent.ancestors) > origin.sub_process_depth:
        return (
            f"process definition {definition.name!r} would run at level {len(parent.ancestors)} of"
            f" sub-processes below process instance {parent.root_id}; master.sub_process_depth"
            f" allows {origin.sub_process_depth} levels"
        )
    if fault := _fault_of_selection(command):
        return fault
    try:
        graph = origin.graph(definition.process_definition_json)
    except InvalidDefinitionError as error:
        if parent is not None and parent.is_foreign(definition):
            return _cannot_run(definition)
        return f"process definition {definition.name!r} can't run: {error}"
    if command.start_node_names:
        chosen = select(graph.dag, command.start_node_names, command.task_depend_type).names
    else:
        # All of it, as `_fault_of_selection` has seen.
        chosen = graph.dag.names
    if not chosen:
        return (
            f"none of the start nodes {', '.join(map(repr, command.start_node_names))}"
            f" exists in process definition {definition.name!r}"
        )
    return None


def fault_of_grants(
    worker_group_id: int, environment_code: int | None, definition: DefinitionSnapshot
) -> str | None:
    """Return the fault if the run names an object that the definition's project may not use.

    Objects that its tasks name are checked later, for each attempt.
    """
    named = (
        GrantedObject(GrantKind.WORKER_GROUP, worker_group_id),
        GrantedObject(GrantKind.ENVIRONMENT, environment_code or 0),
    )
    lacking = [each for each in named if each.number > 0 and each not in definition.grants]
    if definition.lacked_tenant is not None:
        lacking.append(GrantedObject(GrantKind.TENANT, definition.lacked_tenant))
    if not lacking:
        return None
    faults = (missing(each.kind, each.number) for each in lacking)
    return f"{'; '.join(faults)}: {cure(lacking[0].kind, lacking[0].number)}"


def _timezone_id(command: Command, parent: ParentSnapshot | None) -> str | None:
    """Return the zone in which the run reads its dates: its parent's, or the command's."""
    if parent is not None:
        return parent.timezone_id
    return command.param.timezone_id


def _business_time(
    command: Command, snapshot: Snapshot, zone: ZoneInfo, origin: Origin
) -> datetime | None:
    """Return the run's moment where that is not its schedule time: its parent's, or by the rule.

    Raises `BadCommandError` for an unknown rule, and `ParameterError` for a date without a day
    after it.
    """
    if snapshot.parent is not None:
        return snapshot.parent.business_time
    if command.command_type is not CommandType.COMPLEMENT_DATA or command.schedule_time is None:
        return None
    definition = snapshot.definition
    of_definition = None if definition is None else definition.date_rule
    rule = command.param.date_rule or of_definition or origin.date_rule
    moment = moment_of_date(command.schedule_time, rule, zone)
    return None if moment == command.schedule_time else moment


def _execution_type(command: Command) -> ExecutionType | None:
    """Return the execution type that the schedule prescribes, if it does."""
    name = command.param.get(ParamKey.EXECUTION_TYPE)
    if name is None:
        return None
    if name not in ExecutionType.__members__:
        known = ", ".join(ExecutionType.__members__)
        raise BadCommandError(
            f"{ParamKey.EXECUTION_TYPE} must be one of {known}, not {name[:40]!r}"
        )
    return ExecutionType[name]


def _with_environment(command: Command, parent: ParentSnapshot | None) -> CommandParam:
    """Return the parameters with which the run begins: a sub process has its parent's environment.

    A task of it that names one has its own.
    """
    own = command.param.environment_code
    if own is not None or parent is None or parent.environment_code is None:
        return command.param
    return command.param.replaced({ParamKey.ENVIRONMENT_CODE: str(parent.environment_code)})


def child_of(parent: ParentSnapshot) -> ChildOf:
    """Return the place of a sub process in its tree."""
    return ChildOf(
        process_instance_id=parent.process_instance_id,
        task_instance_id=parent.task_instance_id,
        root_id=parent.root_id or parent.process_instance_id,
    )


def no_child(command: Command) -> str:
    """Return the reason why the definition of a sub process is missing or not reached.

    The text is the same in both cases, because members of the parent's project read it as the
    reason of the attempt.
    """
    name = command.param.get(ParamKey.DEFINITION_NAME)
    which = (
        f"{name[:80]!r}"
        if name and not command.process_definition_id
        else f"with the id {command.process_definition_id}"
    )
    return (
        f"there is no process definition {which} in this project, and none is shared with it; if a"
        " share has ended, an admin of the other project can make it again"
    )


def _cannot_run(definition: DefinitionSnapshot) -> str:
    """Return the reason why a definition of another project than the parent's can't run.

    Members of the parent's project read it. They may not see the tasks and parameters of a shared
    definition, so the text names neither.
    """
    return f"process definition {definition.name!r} of another project can't run as it is"


def _no_definition(command: Command) -> str:
    # A row typed with a sub-select by a name that does not exist holds NULL.
    which = (
        f"with the id {command.process_definition_id}"
        if command.process_definition_id
        else "for this command: its process_definition_id is NULL"
    )
    return f"there is no process definition {which}"


def _fault_of_selection(command: Command) -> str | None:
    """Return the fault of ONLY and PRE without start nodes (contract §3.4, step 4)."""
    if command.task_depend_type is TaskDependType.TASK_POST or command.start_node_names:
        return None
    return (
        f"{command.task_depend_type.name} needs a non-empty {ParamKey.START_NODE_NAMES}"
        " in command_param"
    )
