"""Process instances and task instances as rows: the documented fields of `-o json`.

A state is given by name, and as the number that the tables hold beside it (`state_code`); a number
that has no name here is shown as itself. Durations are in seconds.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from common.masking import mask_json, secrets_in_json
from common.model.commands import CommandType
from common.model.states import (
    UNSTARTED_TASK_STATES,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskState,
)

if TYPE_CHECKING:
    from common.store.people.families import Relative
    from common.store.people.run_details import ProcessInstanceDetail
    from common.store.people.views import (
        ProcessInstanceView,
        TaskInstanceView,
    )


@lru_cache(maxsize=1024)  # A page of rows asks for a hundred.
def name_of(kind: type[IntEnum], number: int | None) -> str | None:
    """The name of a stored number, or the number itself where this version has no word for it."""
    if number is None:
        return None
    try:
        return kind(number).name
    except ValueError:
        return str(number)


def instance_row(view: ProcessInstanceView, *, now: datetime) -> dict[str, object]:
    """One process instance. `wanted_state` is the requested state that it has not reached.

    `version` is the version of the run's copy of the definition, `latest_version` the newest one.
    `first_command_type` is the command that started it, `command_type` the last one.
    """
    return {
        "id": view.id,
        "name": view.name,
        "definition": view.definition_name,
        "project": view.project_name,
        "version": view.version,
        "latest_version": view.latest_version,
        "process_definition_id": view.process_definition_id,
        "state": name_of(ProcessState, view.state),
        "state_code": view.state,
        "wanted_state": name_of(ProcessState, view.wanted_state),
        "reason": view.state_reason,
        "command_type": name_of(CommandType, view.command_type),
        "first_command_type": view.first_command or name_of(CommandType, view.command_type),
        "run_times": view.run_times,
        "failure_strategy": name_of(FailureStrategy, view.failure_strategy),
        "priority": name_of(Priority, view.priority),
        "schedule_time": view.schedule_time,
        "start_time": view.start_time,
        "end_time": view.end_time,
        "duration": view.duration(now),
        "duration_from": view.duration_from or view.start_time,
        "host": view.host,
        "owner_epoch": view.owner_epoch,
        "root_id": view.root_id or None,
        "parent_task_instance_id": view.parent_task_instance_id or None,
        "wanted_deadline": view.wanted_deadline,
    }


def parameter_fields(detail: ProcessInstanceDetail) -> dict[str, object]:
    """Its parameters as the tables hold them, without values of names that sound secret."""
    return dict(masked_parameters(detail.command_param, detail.global_params))


def date_fields(detail: ProcessInstanceDetail) -> dict[str, object]:
    """The business date of a run, the rule that gave it, and its moment where that is another."""
    return {
        "business_date": detail.business_date,
        "date_rule": detail.date_rule,
        "business_time": detail.business_time,
    }


def masked_parameters(
    command_param: str | None, global_params: str | None
) -> dict[str, str | None]:
    """The two documents of a run's parameters; a secret of one is masked in the other too."""
    texts = {"command_param": command_param, "global_params": global_params}
    secrets = {secret for text in texts.values() for secret in secrets_in_json(text or "")}
    return {key: None if text is None else mask_json(text, secrets) for key, text in texts.items()}


def task_row(view: TaskInstanceView, *, now: datetime) -> dict[str, object]:
    """One attempt. `valid` is false once another attempt has taken its place."""
    # Here, since a list of runs has no use for it.
    from operations.documents.applications import progress_row, usage_row

    return {
        "id": view.id,
        "process_instance_id": view.process_instance_id,
        "name": view.name,
        "task_type": view.task_type,
        "attempt": view.attempt,
        "state": name_of(TaskState, view.state),
        "state_code": view.state,
        "wanted_state": name_of(TaskState, view.wanted_state),
        "reason": view.reason,
        "failure_reason": view.failure_reason,
        "exit_code": view.exit_code,
        "valid": view.valid,
        "submit_time": view.submit_time,
        "start_time": view.start_time,
        "end_time": view.end_time,
        "duration": task_duration(view, now=now),
        "host": view.host,
        "lost_at": view.lost_at,
        "pid": view.pid,
        "retry_times": view.retry_times,
        "max_retry_times": view.max_retry_times,
        "retry_at": view.retry_at,
        "log_path": view.log_path,
        "execute_path": view.execute_path,
        "memory_factor": view.memory_factor,
        "app_link": view.app_link,
        "ui_link": view.ui_link,
        "history_link": view.history_link,
        "progress": progress_row(view),
        "usage": usage_row(view),
        "due_at": view.due_at,
        "branch": names_in(view.branch),
    }


def relative_row(relative: Relative) -> dict[str, object]:
    """A child or the parent of a run, with the SUB_PROCESS attempt that connects the two."""
    return {
        "process_instance_id": relative.process_instance_id,
        "definition": relative.definition_name,
        "state": name_of(ProcessState, relative.state),
        "state_code": relative.state,
        "task": relative.task_name,
        "task_instance_id": relative.task_instance_id,
        "attempt": relative.attempt,
    }


def names_in(stored: str | None) -> list[str] | None:
    """The nodes that a branching task took; None for any other task."""
    if stored is None:
        return None
    try:
        names = json.loads(stored)
    except (ValueError, RecursionError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def task_duration(view: TaskInstanceView, *, now: datetime) -> timedelta | None:
    """The time that the attempt has run; None before a worker has started it."""
    if view.state in UNSTARTED_TASK_STATES:
        return None
    return _span(view.start_time, view.end_time, now)


def _span(start: datetime | None, end: datetime | None, now: datetime) -> timedelta | None:
    if start is None:
        return None
    return max(timedelta(), (end or now) - start)
