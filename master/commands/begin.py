"""Beginning a new process instance, as all command types that start one do (§3.4, §3.5). Pure."""

from __future__ import annotations

import json
from datetime import datetime

from common.dag import select
from common.errors import InvalidDefinitionError
from common.model.commands import Command, CommandType
from common.model.plans import Begin, DefinitionSnapshot, Plan, Reject, Snapshot
from common.model.states import ReleaseState, TaskDependType
from common.params import (
    ParameterError,
    cure_global_parameters,
    parse_properties,
    properties_json,
)
from master.commands.origin import Origin

_MILLISECONDS = 1000


def plan_begin(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """`Begin`, or `Reject` with what keeps the definition from running as asked."""
    definition = snapshot.definition
    if definition is None:
        # A row typed with a sub-select by a name that does not exist holds NULL.
        which = (
            f"with the id {command.process_definition_id}"
            if command.process_definition_id
            else ("for this command: its process_definition_id is NULL")
        )
        return Reject(reason=f"there is no process definition {which}")
    if not definition.usable or definition.release_state is not ReleaseState.ONLINE:
        return Reject(
            reason=f"process definition {definition.name!r} is OFFLINE;"
            f" set it online first: orcaflow definition online {definition.name!r}"
        )
    if fault := _fault_of_selection(command):
        return Reject(reason=fault)
    try:
        graph = origin.graph(definition.process_definition_json)
    except InvalidDefinitionError as error:
        return Reject(reason=f"process definition {definition.name!r} can't run: {error}")
    chosen = select(graph.dag, command.start_node_names, command.task_depend_type)
    if not chosen.names:
        return Reject(
            reason=f"none of the start nodes {', '.join(map(repr, command.start_node_names))}"
            f" exists in process definition {definition.name!r}"
        )
    try:
        global_params = _cured(command, definition, graph.global_params, now, origin)
    except ParameterError as error:
        return Reject(reason=f"global parameters of {definition.name!r}: {error}")
    return Begin(
        name=f"{definition.name}-{definition.version}-{int(now.timestamp() * _MILLISECONDS)}",
        process_definition_id=definition.id,
        command_type=command.command_type,
        command_param=json.dumps(dict(command.param), ensure_ascii=False),
        process_instance_json=definition.process_definition_json,
        global_params=global_params,
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
        tenant_id=definition.tenant_id,
        locations=definition.locations,
        connects=definition.connects,
    )


def _fault_of_selection(command: Command) -> str | None:
    """ONLY and PRE need nodes to be counted from (§3.4, step 4)."""
    if command.task_depend_type is TaskDependType.TASK_POST or command.start_node_names:
        return None
    return f"{command.task_depend_type.name} needs a non-empty StartNodeNameList in command_param"


def _cured(
    command: Command,
    definition: DefinitionSnapshot,
    of_json: str,
    now: datetime,
    origin: Origin,
) -> str:
    properties = parse_properties(definition.global_params) or parse_properties(of_json)
    cured = cure_global_parameters(
        properties,
        moment=command.schedule_time or now,
        zone=origin.zone,
        complement=command.command_type is CommandType.COMPLEMENT_DATA,
        start_params=_start_params(command),
    )
    return properties_json(cured)


def _start_params(command: Command) -> dict[str, str]:
    """`StartParams`: an object of values that go before the definition's own."""
    text = command.param.get("StartParams")
    if not text:
        return {}
    try:
        document = json.loads(text, parse_float=str)
    except json.JSONDecodeError as error:
        raise ParameterError(f"StartParams is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ParameterError("StartParams is nested too deeply") from error
    except ValueError as error:
        # A whole number of thousands of digits is refused by Python itself.
        raise ParameterError(f"StartParams can't be read: {error}") from error
    if not isinstance(document, dict):
        raise ParameterError("StartParams must be an object of names and values")
    return {
        name: value if isinstance(value, str) else "" if value is None else json.dumps(value)
        for name, value in document.items()
    }
