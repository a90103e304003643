"""Single process instances and attempts: their documents, and declaring an attempt good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, func, select, update

from common.model.codes import code_of_node, task_code
from common.model.states import TERMINAL_PROCESS_CODES, ProcessState, TaskState
from common.params.built_ins import built_in_parameters
from common.store.business_times import MOMENT
from common.store.origins import ORIGIN, origin_of
from common.store.tables import (
    process_definition,
    process_instance,
    project,
    task_instance,
    task_log_tail,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """The columns that decide which nodes a process instance has."""

    process_instance_json: str
    command_param: str
    task_depend_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDocument:
    """The columns from which a task instance's script and parameters are computed."""

    task_json: str
    global_params: str | None
    moment: datetime | None
    """The moment from which the run counts its dates (`common.business_dates`)."""
    input_pool: str | None
    var_pool: str | None
    command_param: str | None
    timezone_id: str | None = None
    built_ins: Mapping[str, str] = field(default_factory=dict)
    """The system parameters that name the attempt, its run, its definition and its project."""


def run_shape(db: Connection, process_instance_id: int) -> RunShape | None:
    """Read the definition and the selection of a run; None if there is no such run."""
    found = db.execute(
        select(
            process_instance.c.process_instance_json,
            process_instance.c.command_param,
            process_instance.c.task_depend_type,
        ).where(process_instance.c.id == process_instance_id)
    ).first()
    if found is None:
        return None
    return RunShape(
        process_instance_json=found.process_instance_json,
        command_param=found.command_param or "",
        task_depend_type=found.task_depend_type,
    )


def task_document(db: Connection, task_instance_id: int) -> TaskDocument | None:
    """Read an attempt's node with the parameters of its run; None if there is no such attempt."""
    found = db.execute(
        select(
            task_instance.c.task_json,
            task_instance.c.input_pool,
            task_instance.c.var_pool,
            process_instance.c.command_param,
            process_instance.c.global_params,
            MOMENT.label("moment"),
            process_instance.c.timezone_id,
            task_instance.c.process_instance_id,
            task_instance.c.process_definition_id,
            task_instance.c.name,
            task_instance.c.execute_path,
            ORIGIN,
        )
        .join_from(
            task_instance,
            process_instance,
            process_instance.c.id == task_instance.c.process_instance_id,
        )
        .outerjoin(
            process_definition, process_definition.c.id == process_instance.c.process_definition_id
        )
        .outerjoin(project, project.c.id == process_definition.c.project_id)
        .where(task_instance.c.id == task_instance_id)
    ).first()
    if found is None:
        return None
    return TaskDocument(
        task_json=found.task_json,
        global_params=found.global_params,
        moment=found.moment,
        input_pool=found.input_pool,
        var_pool=found.var_pool,
        command_param=found.command_param,
        timezone_id=found.timezone_id,
        built_ins=built_in_parameters(
            origin_of(found.origin),
            process_instance_id=found.process_instance_id,
            task_instance_id=task_instance_id,
            task_name=found.name,
            task_code=code_of_node(found.task_json)
            or task_code(found.process_definition_id, found.name),
            folder=found.execute_path or "",
        ),
    )


def force_success(db: Connection, task_instance_id: int, *, at: datetime, reason: str) -> bool:
    """FAILURE, KILL or lost → FORCED_SUCCESS; False if the attempt or its run is not as it was.

    Only in a run that has ended: a live one is its owner's alone. The lock keeps a master from
    making it live in the same moment.
    """
    owner = (
        select(process_instance.c.id)
        .where(
            process_instance.c.id
            == select(task_instance.c.process_instance_id)
            .where(task_instance.c.id == task_instance_id)
            .scalar_subquery()
        )
        .where(process_instance.c.state.in_(TERMINAL_PROCESS_CODES))
        .with_for_update()
    )
    run = db.scalar(owner)
    if run is None:
        return False
    changed = db.execute(
        update(task_instance)
        .where(task_instance.c.id == task_instance_id)
        .where(task_instance.c.process_instance_id == run)
        .where(task_instance.c.flag == 1)
        .where(task_instance.c.state.in_(_FORCIBLE))
        .values(
            state=int(TaskState.FORCED_SUCCESS),
            # Whatever it reported, this is what counts now.
            settled=True,
            retry_at=None,
            reason=reason,
            end_time=func.coalesce(task_instance.c.end_time, at),
        )
    )
    return changed.rowcount == 1


def pass_dependent(db: Connection, task_instance_id: int, *, at: datetime, reason: str) -> bool:
    """RUNNING → FORCED_SUCCESS of a waiting DEPENDENT; False if it or its run is not as it was.

    Only in a live run of which neither a pause nor a stop is wanted. Its owner reads the end as it
    reads that of a fulfilled one. The lock keeps the owner from withdrawing the attempt meanwhile.
    """
    run = db.scalar(
        select(process_instance.c.id)
        .where(
            process_instance.c.id
            == select(task_instance.c.process_instance_id)
            .where(task_instance.c.id == task_instance_id)
            .scalar_subquery()
        )
        .where(process_instance.c.state == int(ProcessState.RUNNING))
        .where(process_instance.c.wanted_state.is_(None))
        .with_for_update(key_share=True)
    )
    if run is None:
        return False
    changed = db.execute(
        update(task_instance)
        .where(task_instance.c.id == task_instance_id)
        .where(task_instance.c.process_instance_id == run)
        .where(task_instance.c.flag == 1)
        .where(task_instance.c.task_type == "DEPENDENT")
        .where(task_instance.c.state == int(TaskState.RUNNING))
        .where(task_instance.c.wanted_state.is_(None))
        .values(state=int(TaskState.FORCED_SUCCESS), reason=reason, end_time=at)
    )
    return changed.rowcount == 1


_FORCIBLE = tuple(
    int(state) for state in (TaskState.FAILURE, TaskState.NEED_FAULT_TOLERANCE, TaskState.KILL)
)


@dataclass(frozen=True, slots=True)
class KeptTail:
    """The end of an attempt's log, and the size of the whole."""

    size: int
    tail: bytes


def log_tail(db: Connection, task_instance_id: int) -> KeptTail | None:
    """Return the last words of an attempt; None if none are kept."""
    statement = select(task_log_tail.c.size, task_log_tail.c.tail).where(
        task_log_tail.c.task_instance_id == task_instance_id
    )
    row = db.execute(statement).first()
    return None if row is None else KeptTail(row.size, bytes(row.tail))
