"""Plans for any command, as plain as the tables allow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from common.model.commands import INTENT_COMMANDS, RESTARTING_COMMANDS, Command, CommandType
from common.model.complement_states import OnFailure, Reprocess, RunOrder
from common.model.complements import NewComplement, RunSettings
from common.model.plans import ChildOf, Complement, Drop, Plan, Reject, Restart, Resume, Snapshot
from common.model.states import ExecutionType, TimeoutStrategy, WarningType
from tests.builders import NOON
from tests.conformance.store_tables import MINUTE, a_begin, an_intent

NEW_RUNS = (CommandType.START_PROCESS, CommandType.SCHEDULER, CommandType.COMPLEMENT_DATA)


def is_of_new_run(command: dict[str, Any]) -> bool:
    asks_for_complement = (
        command["command_type"] == CommandType.COMPLEMENT_DATA and not command["complement_date_id"]
    )
    return command["command_type"] in NEW_RUNS and not asks_for_complement


def _complements(command: Command) -> Complement:
    """The plan for this history's COMPLEMENT_DATA rows: a row of complements of one definition."""
    found = NewComplement(
        process_definition_id=command.process_definition_id,
        dates=tuple(NOON + day * MINUTE for day in json.loads(command.param["dates"])),
        timezone_id="UTC",
        parallelism=int(command.param["parallelism"]),
        order=RunOrder.ASCENDING,
        on_failure=OnFailure(command.param["on_failure"]),
        reprocess=Reprocess(command.param["reprocess"]),
        settings=RunSettings(start_node_names=("t0",), start_params="{}"),
    )
    followers = range(int(command.param["followers"]))
    return Complement(complements=(found, *(replace(found, after=place) for place in followers)))


def plain_plan(command: Command, snapshot: Snapshot, *, all_serial: bool) -> Plan:
    """Plan a command in the shortest way and leave the checks to the store."""
    parent, instance, kind = snapshot.parent, snapshot.instance, command.command_type
    child_of = None
    if parent is not None:
        child_of = ChildOf(
            process_instance_id=parent.process_instance_id,
            task_instance_id=parent.task_instance_id,
            root_id=parent.root_id,
        )
    definition = snapshot.definition
    execution_type = ExecutionType.PARALLEL if definition is None else definition.execution_type
    if all_serial and execution_type is ExecutionType.PARALLEL:
        execution_type = ExecutionType.SERIAL_WAIT
    if kind is CommandType.COMPLEMENT_DATA and not command.complement_date_id:
        return _complements(command) if child_of is None else Drop(reason="no child of a date")
    if kind in NEW_RUNS:
        if definition is None:
            return Reject(reason="there is no such definition")
        return a_begin(
            command_type=kind,
            process_definition_id=definition.id,
            execution_type=execution_type,
            child_of=child_of,
            schedule_time=command.schedule_time,
            complement_date_id=command.complement_date_id,
            priority=command.priority,
            warning_type=WarningType(command.warning_type),
            command_param=json.dumps(dict(command.param)),
            timeout_minutes=command.id % 3,
            timeout_strategy=TimeoutStrategy(command.id % 2),
        )
    if instance is None:
        return Reject(reason="there is no such instance")
    if kind in INTENT_COMMANDS:
        return an_intent(instance.id, kind)
    if kind in RESTARTING_COMMANDS:
        return Restart(
            process_instance_id=instance.id,
            epoch=instance.owner_epoch,
            command_type=kind,
            reset=tuple(task.name for task in instance.tasks if not task.state.is_success),
            run_scope=("t0",) if kind is CommandType.EXECUTE_TASK else None,
            afresh=kind is CommandType.REPEAT_RUNNING,
            execution_type=execution_type,
            child_of=child_of,
        )
    return Resume(process_instance_id=instance.id, epoch=instance.owner_epoch, command_type=kind)
