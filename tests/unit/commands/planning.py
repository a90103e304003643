"""Commands, definitions and instances for planners, with a reason where a plan has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

from common.model.cluster import Node
from common.model.commands import Command, CommandRow, CommandType, read_command
from common.model.plans import (
    Begin,
    DefinitionSnapshot,
    InstanceSnapshot,
    ParentSnapshot,
    Plan,
    Reject,
    Snapshot,
)
from common.model.states import (
    ProcessState,
    ReleaseState,
)
from master.commands import plan
from master.commands.origin import Origin
from tests.builders import NOON, a_definition_json, read_graph

LIMIT = 1_000
ORIGIN = Origin(zone=ZoneInfo("America/New_York"), graph=read_graph)
MASTER = Node(address="m1:5678", incarnation=7)
STARTS = (
    CommandType.START_PROCESS,
    CommandType.START_CURRENT_TASK_PROCESS,
    CommandType.SCHEDULER,
)
TOO_DEEP = "[" * 100_000
TOO_MANY_DIGITS = "1" * 5_000


def a_row(param: str | None = None, **columns: Any) -> CommandRow:
    """A START_PROCESS row of definition 3, with every column's default."""
    row = CommandRow(
        id=1,
        command_type=0,
        process_definition_id=3,
        command_param=param,
        param_bytes=len((param or "").encode()),
        task_depend_type=2,
        failure_strategy=1,
        warning_type=0,
        warning_group_id=0,
        schedule_time=None,
        start_time=NOON,
        executor_id=1,
        process_instance_priority=2,
        worker_group_id=-1,
    )
    return replace(row, **columns)


def read(param: str | None = None, **columns: Any) -> Command:
    return read_command(a_row(param, **columns), param_limit_bytes=LIMIT)


def a_definition(shape: str = "a >> b >> c", **columns: Any) -> DefinitionSnapshot:
    definition = DefinitionSnapshot(
        id=3,
        name="flights",
        version=2,
        release_state=ReleaseState.ONLINE,
        usable=True,
        process_definition_json=a_definition_json(shape),
        global_params=None,
        timeout_minutes=0,
        tenant_id=-1,
    )
    return replace(definition, **columns)


def planned(
    command: Command,
    definition: DefinitionSnapshot | None = None,
    *,
    instance: InstanceSnapshot | None = None,
    live: frozenset[Node] = frozenset(),
    parent: ParentSnapshot | None = None,
    asked: int | None = 12,
) -> Plan:
    snapshot = Snapshot(
        definition=definition,
        instance=instance,
        asked_instance_id=asked,
        parent=parent,
        live_masters=live,
    )
    return plan(command, snapshot, now=NOON, origin=ORIGIN)


def begun(command: Command, definition: DefinitionSnapshot | None = None) -> Begin:
    found = planned(command, definition or a_definition())
    assert isinstance(found, Begin), found
    return found


def a_parent(**columns: Any) -> ParentSnapshot:
    """Attempt 45 at the SUB_PROCESS task `sub` of instance 2, which waits for its child."""
    parent = ParentSnapshot(
        process_instance_id=2,
        task_instance_id=45,
        task_name="sub",
        task_json="{}",
        input_pool=None,
        waits=True,
        root_id=0,
        history=("START_PROCESS",),
        global_params=None,
        schedule_time=None,
        ancestors=(1,),
    )
    return replace(parent, **columns)


def why(found: Plan) -> str:
    assert isinstance(found, Reject), found
    return found.reason


def an_instance(state: ProcessState = ProcessState.RUNNING, **columns: Any) -> InstanceSnapshot:
    instance = InstanceSnapshot(id=12, state=state, owner=MASTER, owner_epoch=4)
    return replace(instance, **columns)


def about(command_type: CommandType, param: str = '{"ProcessInstanceId":12}') -> Command:
    return read(param, command_type=int(command_type))


def globals_of(text: str) -> DefinitionSnapshot:
    return a_definition(global_params=text)


OF_TASK_45 = {"parent_task_instance_id": 45}
LINE = '{"id": 3, "parentProcessInstanceId": 2, "parentTaskInstanceId": 45, "processInstanceId": 0}'


def begun_child(
    definition: DefinitionSnapshot | None = None,
    *,
    command: Command | None = None,
    **columns: Any,
) -> Begin:
    found = planned(
        command or read(LINE, **OF_TASK_45),
        definition or a_definition(),
        parent=a_parent(**columns),
    )
    assert isinstance(found, Begin), found
    return found
