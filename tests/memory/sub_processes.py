"""SUB_PROCESS attempts in memory: the command for the child, and the report of its end."""

from __future__ import annotations

from datetime import datetime

from common.model.command_param import child_command_text
from common.model.commands import child_command_type
from common.model.failures import FailureReason
from common.model.states import ProcessState, TaskDependType, TaskState
from common.store.master.trees import no_place
from common.store.queue_entries import effective_group
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.rows import (
    SUB_PROCESS,
    CommandRecord,
    ProcessRecord,
    RelationRecord,
    TaskRecord,
)

_END_OF_PARENT = {
    ProcessState.SUCCESS: TaskState.SUCCESS,
    ProcessState.FAILURE: TaskState.FAILURE,
    ProcessState.STOP: TaskState.KILL,
    ProcessState.PAUSE: TaskState.PAUSE,
}


def command_child(
    tx: Transaction,
    process: ProcessRecord,
    task: TaskRecord,
    definition: int | str | None,
    at: datetime,
) -> None:
    """Write the relation of a new attempt and the command for its child (contract §3.8)."""
    database = tx.database
    root_id = process.root_id or process.id
    if _wanted_children(database, root_id) > database.most_sub_processes:
        fail_childless(tx, task, no_place(root_id, database.most_sub_processes), at)
        return
    child_id = _earlier_child(database, task)
    relation_id = tx.insert(
        database.relations,
        RelationRecord(
            parent_process_instance_id=process.id,
            parent_task_instance_id=task.id,
            process_instance_id=child_id,
        ),
    )
    definition_id = _definition_id(database, process, definition)
    param = child_command_text(
        relation_id=relation_id,
        parent_process_instance_id=process.id,
        parent_task_instance_id=task.id,
        child_id=child_id,
        definition_name=(definition if not definition_id and isinstance(definition, str) else None),
    )
    command_type = child_command_type(process.history, has_child=child_id != 0)
    tx.insert(
        database.commands,
        CommandRecord(
            command_type=int(command_type),
            process_definition_id=definition_id,
            command_param=param,
            task_depend_type=int(TaskDependType.TASK_POST),
            failure_strategy=process.failure_strategy,
            warning_type=process.warning_type,
            warning_group_id=process.warning_group_id,
            schedule_time=process.schedule_time,
            start_time=at,
            executor_id=process.executor_id,
            update_time=at,
            process_instance_priority=process.process_instance_priority,
            worker_group_id=effective_group(task.worker_group_id, process.worker_group_id),
            parent_task_instance_id=task.id,
        ),
    )


def fail_childless(tx: Transaction, task: TaskRecord, reason: str, at: datetime) -> None:
    """End a SUB_PROCESS attempt that gets no child."""
    if task.task_type == SUB_PROCESS and task.state == TaskState.SUBMITTED:
        tx.update(
            tx.database.tasks,
            task.id,
            state=int(TaskState.FAILURE),
            failure_reason=FailureReason.CONFIGURATION.value,
            end_time=at,
            reason=reason,
        )


def _wanted_children(database: MemoryDatabase, root_id: int) -> int:
    """Return the number of children that the live runs of a tree wait for."""
    return sum(
        task.task_type == SUB_PROCESS
        and task.state in (TaskState.SUBMITTED, TaskState.RUNNING)
        and not task.settled
        for process in database.processes
        if process.is_live and root_id in (process.id, process.root_id)
        for task in database.attempts(process.id)
    )


def _earlier_child(database: MemoryDatabase, task: TaskRecord) -> int:
    """The child of the newest attempt at the same node that has one; 0 if none has."""
    attempts = [
        other.id
        for other in database.attempts(task.process_instance_id)
        if other.name == task.name and other.id != task.id
    ]
    found = 0, 0
    for relation in database.relations:
        if (
            relation.parent_task_instance_id in attempts
            and database.processes.get(relation.process_instance_id) is not None
        ):
            found = max(found, (relation.parent_task_instance_id, relation.process_instance_id))
    return found[1]


def _definition_id(
    database: MemoryDatabase, process: ProcessRecord, definition: int | str | None
) -> int:
    if isinstance(definition, int):
        return definition
    parent = database.definitions.get(process.process_definition_id)
    project = None if parent is None else parent.project_id
    # The store in memory does not support shares.
    named = [
        other.id
        for other in database.definitions
        if other.name == definition and project in (None, other.project_id)
    ]
    return named[0] if len(named) == 1 else 0


def end_parent(tx: Transaction, child: ProcessRecord, var_pool: str | None) -> None:
    """End the attempt that waits for this sub process, which has ended, as the child did.

    One that has a reason already timed out, which stopped its child.
    """
    task = tx.database.tasks.get(child.parent_task_instance_id)
    if (
        task is None
        or task.task_type != SUB_PROCESS
        or task.state not in (TaskState.SUBMITTED, TaskState.RUNNING)
    ):
        return
    state = _END_OF_PARENT[ProcessState(child.state)]
    reason = (
        None if child.state_reason is None else f"process instance {child.id}: {child.state_reason}"
    )
    failure_reason = None
    if state is TaskState.FAILURE:
        failure_reason = FailureReason.SUB_PROCESS_FAILED.value
    elif state is TaskState.KILL and task.wanted_state != TaskState.KILL:
        failure_reason = FailureReason.KILLED.value
    if task.reason is not None and state is not TaskState.SUCCESS:
        state, reason, failure_reason = TaskState.FAILURE, task.reason, task.failure_reason
    tx.update(
        tx.database.tasks,
        task.id,
        state=int(state),
        end_time=child.end_time,
        var_pool=var_pool,
        reason=reason,
        failure_reason=failure_reason,
    )


def child_of(database: MemoryDatabase, task: TaskRecord) -> ProcessRecord | None:
    """The sub process that an attempt has begun."""
    for relation in database.relations:
        if (
            relation.parent_process_instance_id == task.process_instance_id
            and relation.parent_task_instance_id == task.id
        ):
            return database.processes.get(relation.process_instance_id)
    return None
