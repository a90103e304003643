"""The effect of each command type on an instance in each state, as a table for people. Pure.

Nothing here is written down twice: the planners themselves decide, on an instance that has one task
of every kind. Printed into ARCHITECTURE.md; a test keeps the two equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import assert_never
from zoneinfo import ZoneInfo

from common.model.command_param import CommandParam, ParamKey
from common.model.commands import (
    BEGINNING_COMMANDS,
    RESTARTING_COMMANDS,
    Command,
    CommandType,
)
from common.model.definitions import read_process_json
from common.model.instances import TaskRow
from common.model.plans import (
    Begin,
    Complement,
    DefinitionSnapshot,
    Drop,
    InstanceSnapshot,
    ParentSnapshot,
    Plan,
    Reject,
    Restart,
    Resume,
    SetIntent,
    Snapshot,
)
from common.model.states import ProcessState, ReleaseState, TaskDependType, TaskState
from common.model.task_type import TaskTypeSpec
from master.commands import plan
from master.commands.origin import Origin

_NOW = datetime(2020, 1, 1, tzinfo=UTC)
_ORIGIN = Origin(
    zone=ZoneInfo("UTC"),
    graph=partial(read_process_json, task_types={"SHELL": TaskTypeSpec(name="SHELL")}),
)

_ENDS: Mapping[str, TaskState] = {
    "successful": TaskState.SUCCESS,
    "failed": TaskState.FAILURE,
    "paused": TaskState.PAUSE,
    "killed": TaskState.KILL,
}
_NEVER = "never begun"
_JSON = json.dumps({"tasks": [{"name": name, "type": "SHELL"} for name in (*_ENDS, _NEVER)]})
_INSTANCE, _ROOT, _PARENT_TASK = 12, 2, 45

# Two speak of nodes that a person has chosen: no SUB_PROCESS task asks for them.
_CHILD_COMMANDS = tuple(
    command_type
    for command_type in sorted((*BEGINNING_COMMANDS, *RESTARTING_COMMANDS))
    if command_type not in (CommandType.START_CURRENT_TASK_PROCESS, CommandType.EXECUTE_TASK)
)


def table_text() -> str:
    """Render as Markdown: commands of people and masters, then those of SUB_PROCESS tasks."""
    return "\n\n".join(
        (
            _markdown("command", tuple(CommandType), of_child=False),
            _markdown("command for a child", _CHILD_COMMANDS, of_child=True),
        )
    )


def outcome(
    command_type: CommandType, state: ProcessState | None, *, of_child: bool = False
) -> Plan:
    """Return the plan for an instance in this state, or for one that does not exist.

    Its owner is gone, so a recovery takes it over.
    """
    return plan(
        _command(command_type, of_child=of_child),
        Snapshot(
            definition=_definition(),
            instance=None if state is None else _instance(state, of_child=of_child),
            asked_instance_id=_INSTANCE,
            parent=_parent() if of_child else None,
        ),
        now=_NOW,
        origin=_ORIGIN,
    )


def _markdown(corner: str, types: tuple[CommandType, ...], *, of_child: bool) -> str:
    states = (*ProcessState, None)
    heads = (corner, *("no such instance" if state is None else state.name for state in states))
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for command_type in types:
        words = (_word(outcome(command_type, state, of_child=of_child)) for state in states)
        name = f"{int(command_type)} {command_type.name}"
        lines.append("| " + " | ".join((name, *words)) + " |")
    return "\n".join(lines)


def _word(found: Plan) -> str:
    match found:
        case Begin():
            return "begins"
        case Complement():
            return "makes a complement"
        case Resume():
            return "goes on"
        case Restart():
            return f"**restarts: {_restarted(found)}**"
        case SetIntent():
            return f"intent: {found.wanted_state.name}"
        case Drop():
            return "dropped"
        case Reject():
            return "refused"
        case _:
            assert_never(found)


def _restarted(found: Restart) -> str:
    if found.run_scope is not None:
        return "chosen nodes"
    if len(found.reset) == len(_ENDS):
        return "all"
    kinds = [name for name in _ENDS if name in found.reset]
    return " and ".join((", ".join(kinds[:-1]), kinds[-1])) + " tasks"


def _command(command_type: CommandType, *, of_child: bool) -> Command:
    key = (
        ParamKey.WAITING_INSTANCE_ID
        if command_type is CommandType.RECOVER_WAITTING_THREAD
        else ParamKey.PROCESS_INSTANCE_ID
    )
    param = {str(key): str(_INSTANCE)}
    if not of_child:
        param[ParamKey.START_NODE_NAMES] = f"successful,{_NEVER}"
    return Command(
        id=1,
        command_type=command_type,
        process_definition_id=_definition().id,
        param=CommandParam(param),
        task_depend_type=TaskDependType.TASK_POST if of_child else TaskDependType.TASK_ONLY,
        schedule_time=_NOW,
        start_time=_NOW,
        parent_task_instance_id=_PARENT_TASK if of_child else 0,
    )


def _definition() -> DefinitionSnapshot:
    return DefinitionSnapshot(
        id=3,
        name="example",
        version=1,
        release_state=ReleaseState.ONLINE,
        usable=True,
        process_definition_json=_JSON,
        global_params=None,
        timeout_minutes=0,
        tenant_id=-1,
    )


def _instance(state: ProcessState, *, of_child: bool) -> InstanceSnapshot:
    return InstanceSnapshot(
        id=_INSTANCE,
        state=state,
        owner=None,
        owner_epoch=1,
        process_definition_id=_definition().id,
        root_id=_ROOT if of_child else 0,
        process_instance_json=_JSON,
        history=(CommandType.START_PROCESS.name,),
        tasks=tuple(
            TaskRow(
                id=number,
                name=name,
                attempt=1,
                state=end,
                retry_times=0,
                valid=True,
                settled=True,
                end_time=_NOW,
                retry_at=None,
                kill_requested=end is TaskState.KILL,
            )
            for number, (name, end) in enumerate(_ENDS.items(), start=1)
        ),
    )


def _parent() -> ParentSnapshot:
    return ParentSnapshot(
        process_instance_id=_ROOT,
        task_instance_id=_PARENT_TASK,
        task_name="sub",
        task_json="{}",
        input_pool=None,
        waits=True,
        root_id=0,
        history=(CommandType.START_PROCESS.name,),
        global_params=None,
        schedule_time=None,
        ancestors=(1,),
    )
