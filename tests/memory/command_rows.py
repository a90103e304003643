"""Rows of commands and definitions as planners see them, and the row of a new process instance."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from common.model.cluster import Node
from common.model.commands import CommandRow, CommandType
from common.model.date_rules import DateRule
from common.model.grants import GrantKind
from common.model.plans import Begin, DefinitionSnapshot, NewVersion
from common.model.states import ExecutionType, ProcessState, ReleaseState
from tests.memory.database import MemoryDatabase
from tests.memory.reading import origin_of
from tests.memory.rows import CommandRecord, DefinitionRecord, ProcessRecord


def command_row(row: CommandRecord, param_limit_bytes: int) -> CommandRow:
    param_bytes = len((row.command_param or "").encode())
    return CommandRow(
        id=row.id,
        command_type=row.command_type,
        process_definition_id=row.process_definition_id,
        command_param=None if param_bytes > param_limit_bytes else row.command_param,
        param_bytes=param_bytes,
        task_depend_type=row.task_depend_type,
        failure_strategy=row.failure_strategy,
        warning_type=row.warning_type,
        warning_group_id=row.warning_group_id,
        schedule_time=row.schedule_time,
        start_time=row.start_time,
        executor_id=row.executor_id,
        process_instance_priority=row.process_instance_priority,
        worker_group_id=row.worker_group_id,
        parent_task_instance_id=row.parent_task_instance_id,
        complement_date_id=row.complement_date_id,
        project_id=row.project_id,
    )


def definition_snapshot(db: MemoryDatabase, row: DefinitionRecord) -> DefinitionSnapshot:
    tenant = (GrantKind.TENANT, row.tenant_id, row.project_id)
    return DefinitionSnapshot(
        id=row.id,
        name=row.name,
        version=row.version,
        release_state=ReleaseState(row.release_state),
        usable=row.flag == 1,
        process_definition_json=row.process_definition_json or "",
        global_params=row.global_params,
        timeout_minutes=row.timeout,
        tenant_id=row.tenant_id,
        locations=row.locations,
        connects=row.connects,
        execution_type=ExecutionType(row.execution_type),
        date_rule=None if row.complement_date_rule is None else DateRule(row.complement_date_rule),
        project_id=row.project_id,
        grants=db.grants_at_start(row.project_id),
        lacked_tenant=row.tenant_id if tenant in db.revoked else None,
        origin=origin_of(db, row.id),
    )


def new_process_instance(plan: Begin, *, node: Node, now: datetime) -> dict[str, Any]:
    """The columns of a new process instance (contract §3.5), owned by `node`."""
    return {
        "name": plan.name,
        "process_definition_id": plan.process_definition_id,
        "state": int(ProcessState.RUNNING),
        "start_time": now,
        "host": node.address,
        "owner_incarnation": node.incarnation,
        "owner_epoch": 1,
        "command_type": int(plan.command_type),
        "command_param": plan.command_param,
        "task_depend_type": int(plan.task_depend_type),
        "failure_strategy": int(plan.failure_strategy),
        "warning_type": int(plan.warning_type),
        "warning_group_id": plan.warning_group_id,
        "schedule_time": plan.schedule_time,
        "command_start_time": plan.command_start_time,
        "global_params": plan.global_params,
        "process_instance_json": plan.process_instance_json,
        "update_time": now,
        "executor_id": plan.executor_id,
        "locations": plan.locations,
        "connects": plan.connects,
        "history_cmd": plan.command_type.name,
        "process_instance_priority": int(plan.priority),
        "worker_group_id": plan.worker_group_id,
        "timeout": plan.timeout_minutes,
        "timeout_strategy": int(plan.timeout_strategy),
        "tenant_id": plan.tenant_id,
        "timezone_id": plan.timezone_id,
        "business_time": plan.business_time,
        "execution_type": int(plan.execution_type) if plan.is_serial_by_schedule else None,
    }


def history(process: ProcessRecord, command_type: CommandType) -> str:
    return ",".join((*process.history, command_type.name))


def columns_of_version(version: NewVersion) -> dict[str, Any]:
    """Return the columns that a restart with another version changes."""
    return {
        "definition_version": version.version,
        "process_instance_json": version.process_instance_json,
        "timeout": version.timeout_minutes,
        "timeout_strategy": int(version.timeout_strategy),
        "tenant_id": version.tenant_id,
        "locations": version.locations,
        "connects": version.connects,
    }
