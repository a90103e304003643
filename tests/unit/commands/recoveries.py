"""Instances and their attempts for commands that recover them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from common.model.commands import RESTARTING_COMMANDS, CommandType
from common.model.instances import TaskRow
from common.model.plans import InstanceSnapshot, Plan, Restart
from common.model.states import ProcessState, TaskState
from tests.builders import NOON, a_definition_json
from tests.unit.commands.planning import (
    MASTER,
    a_definition,
    planned,
    read,
)

SUSPENDED = CommandType.RECOVER_SUSPENDED_PROCESS
FAILED = CommandType.START_FAILURE_TASK_PROCESS
REPEAT = CommandType.REPEAT_RUNNING
EXECUTE = CommandType.EXECUTE_TASK
FAILOVER = CommandType.RECOVER_TOLERANCE_FAULT_PROCESS
WAITING_THREAD = CommandType.RECOVER_WAITTING_THREAD
SERIAL_WAIT = CommandType.RECOVER_SERIAL_WAIT
RESUMING = (FAILOVER, WAITING_THREAD, SERIAL_WAIT)
ABOUT_ONE = (*RESTARTING_COMMANDS, *RESUMING, CommandType.PAUSE, CommandType.STOP)

LIVE = [state for state in ProcessState if not state.is_terminal]
ENDED = [state for state in ProcessState if state.is_terminal]
DONE, BAD, HELD, GONE, LOST = (
    TaskState.SUCCESS,
    TaskState.FAILURE,
    TaskState.PAUSE,
    TaskState.KILL,
    TaskState.NEED_FAULT_TOLERANCE,
)
ANY_NODES = "a b c d e >> f"
CONDITIONS = {
    "type": "CONDITIONS",
    "dependence": {
        "relation": "AND",
        "dependTaskList": [
            {"relation": "AND", "dependItemList": [{"depTasks": "a", "status": "SUCCESS"}]}
        ],
    },
    "conditionResult": {"successNode": ["good"], "failedNode": ["cure"]},
}


def a_task(name: str, state: TaskState = DONE, **columns: Any) -> TaskRow:
    """The first attempt at a task, settled; one that was killed was killed on request."""
    task = TaskRow(
        id=1,
        name=name,
        attempt=1,
        state=state,
        retry_times=0,
        valid=True,
        settled=True,
        end_time=NOON,
        retry_at=None,
        kill_requested=state is GONE,
    )
    return replace(task, **columns)


def an_instance(
    state: ProcessState = ProcessState.RUNNING,
    *tasks: TaskRow,
    shape: str = ANY_NODES,
    of_task: dict[str, dict[str, Any]] | None = None,
    **columns: Any,
) -> InstanceSnapshot:
    """Instance 12 of definition 3, with these attempts in order of id."""
    instance = InstanceSnapshot(
        id=12,
        state=state,
        owner=MASTER,
        owner_epoch=4,
        process_definition_id=3,
        process_instance_json=a_definition_json(shape, **(of_task or {})),
        history=("START_PROCESS",),
        tasks=tuple(replace(task, id=number) for number, task in enumerate(tasks, start=1)),
    )
    return replace(instance, **columns)


def restarted(found: Plan) -> Restart:
    assert isinstance(found, Restart), found
    return found


def recovered(
    command_type: CommandType,
    instance: InstanceSnapshot,
    param: str = '{"ProcessInstanceId": 12}',
    **columns: Any,
) -> Restart:
    command = read(param, command_type=int(command_type), **columns)
    return restarted(planned(command, a_definition(), instance=instance))


EVERY_END = (
    a_task("a", DONE),
    a_task("b", BAD),
    a_task("c", HELD),
    a_task("d", GONE),
    a_task("e", GONE, kill_requested=False),
)
ALLOWED = {
    SUSPENDED: (ProcessState.PAUSE, ProcessState.STOP),
    FAILED: (ProcessState.FAILURE,),
    REPEAT: ENDED,
    EXECUTE: ENDED,
}
"""The states that a recovery is for (contract §11.2)."""
NODE_A = '{"ProcessInstanceId": 12, "StartNodeNameList": "a"}'


def values(found: Restart) -> dict[str, str]:
    assert found.global_params is not None
    return {item["prop"]: item["value"] for item in json.loads(found.global_params)}
