"""Rows in memory as the values that loops and planners read. Changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace

from common.model.cluster import QueueEntry
from common.model.instances import ProcessRow, TaskRow
from common.model.origins import NOWHERE, Origin
from common.model.retry_policy import reason_from
from common.model.states import FailureStrategy, Priority, ProcessState, TaskState
from common.store.queue_entries import effective_group, queue_entry
from tests.memory.database import MemoryDatabase
from tests.memory.rows import ProcessRecord, TaskRecord


def origin_of(db: MemoryDatabase, process_definition_id: int) -> Origin:
    """The names and codes of a definition and its project; empty if it was deleted."""
    definition = db.definitions.get(process_definition_id)
    if definition is None:
        return NOWHERE
    named = Origin(definition_name=definition.name, definition_code=definition.id)
    if definition.project_id != 1:
        return named
    return replace(named, project_name="default", project_code=1)


def process_row(db: MemoryDatabase, process: ProcessRecord) -> ProcessRow:
    """A process instance for its owner; raises `ValueError` if the row is unreadable."""
    return ProcessRow(
        id=process.id,
        name=process.name,
        state=ProcessState(process.state),
        wanted_state=None if process.wanted_state is None else ProcessState(process.wanted_state),
        failure_strategy=FailureStrategy(process.failure_strategy),
        priority=Priority(process.process_instance_priority),
        worker_group_id=process.worker_group_id,
        task_depend_type=process.task_depend_type,
        command_param=process.command_param or "",
        process_definition_id=process.process_definition_id,
        process_instance_json=process.process_instance_json,
        executor_id=process.executor_id,
        start_time=process.start_time,
        global_params=process.global_params,
        moment=process.moment,
        complement=process.is_of_complement,
        run_scope=names_in(process.run_scope, "run_scope"),
        wanted_deadline=process.wanted_deadline,
        parent_task_instance_id=process.parent_task_instance_id,
        timezone_id=process.timezone_id,
        origin=origin_of(db, process.process_definition_id),
    )


def task_row(task: TaskRecord) -> TaskRow:
    """An attempt for its run's owner; raises `ValueError` if the row is unreadable."""
    return TaskRow(
        id=task.id,
        name=task.name,
        attempt=task.attempt,
        state=TaskState(task.state),
        retry_times=task.retry_times,
        valid=task.flag == 1,
        settled=task.settled,
        end_time=task.end_time,
        retry_at=task.retry_at,
        kill_requested=task.wanted_state == TaskState.KILL,
        pause_requested=task.wanted_state == TaskState.PAUSE,
        var_pool=task.var_pool,
        branch=names_in(task.branch, f"branch of task {task.name!r}"),
        failure=reason_from(task.failure_reason),
        memory_factor=task.memory_factor,
    )


def entry_of(database: MemoryDatabase, task_instance_id: int) -> QueueEntry:
    """An attempt's place in the registry's queue."""
    task = database.tasks.the(task_instance_id)
    process = database.processes.the(task.process_instance_id)
    group_id = effective_group(task.worker_group_id, process.worker_group_id)
    group = database.worker_groups.get(group_id)
    return queue_entry(
        process_priority=process.process_instance_priority,
        process_instance_id=process.id,
        task_priority=task.task_instance_priority,
        task_instance_id=task.id,
        worker_group_id=group_id,
        ip_list=None if group is None else group.ip_list,
        yields=process.is_of_complement,
    )


def names_in(text: str | None, what: str) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} can't be read as JSON") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} is no list of names")
    return tuple(names)
