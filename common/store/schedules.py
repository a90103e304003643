"""Schedules as the rows of `t_ds_schedules` have them, with their definitions' names. Only reads.

Used by the schedule loop of a master, where its commands are planned, and by the command line.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, func, select

from common.model.schedules import MisfirePolicy, Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ReleaseState,
    WarningType,
)
from common.store.tables import process_definition, schedule
from common.store.transaction import AnyRow, any_of

IS_ONLINE: Final = schedule.c.release_state == ReleaseState.ONLINE
SCHEDULES: Final = select(
    schedule.c.id,
    schedule.c.process_definition_id,
    process_definition.c.name.label("definition_name"),
    func.coalesce(
        (process_definition.c.release_state == ReleaseState.ONLINE)
        & (process_definition.c.flag == 1),
        False,
    ).label("definition_is_online"),
    schedule.c.crontab,
    schedule.c.timezone_id,
    schedule.c.missing_time,
    schedule.c.repeated_time,
    schedule.c.start_time,
    schedule.c.end_time,
    schedule.c.misfire_policy,
    schedule.c.misfire_limit,
    schedule.c.deadline,
    schedule.c.execution_type,
    schedule.c.start_params,
    schedule.c.failure_strategy,
    schedule.c.user_id,
    schedule.c.warning_type,
    schedule.c.warning_group_id,
    schedule.c.process_instance_priority,
    schedule.c.worker_group_id,
    schedule.c.environment_code,
    schedule.c.counted_from,
    schedule.c.next_fire_time,
).outerjoin_from(
    schedule, process_definition, process_definition.c.id == schedule.c.process_definition_id
)
_ONLINE: Final = SCHEDULES.where(IS_ONLINE).order_by(schedule.c.id)


def read_schedules(
    db: Connection, definition_ids: Collection[int] | None = None
) -> dict[int, tuple[Schedule, ...]]:
    """Read the ONLINE schedules of these or of all definitions, by definition, in order of id.

    A definition without any is missing. Raises `ValueError` for a row that can't be read.
    """
    statement, wanted = _ONLINE, {}
    if definition_ids is not None:
        statement = _ONLINE.where(schedule.c.process_definition_id == any_of("ids"))
        wanted = {"ids": sorted(definition_ids)}
    found: dict[int, tuple[Schedule, ...]] = {}
    for row in db.execute(statement, wanted):
        before = found.get(row.process_definition_id, ())
        found[row.process_definition_id] = (*before, schedule_of(row))
    return found


def read_schedule(db: Connection, schedule_id: int) -> Schedule | None:
    """Read one schedule, ONLINE or not. Raises `ValueError` if its row can't be read."""
    row = db.execute(SCHEDULES.where(schedule.c.id == schedule_id)).first()
    return None if row is None else schedule_of(row)


def schedule_of(row: AnyRow) -> Schedule:
    """Read the schedule of a row of `SCHEDULES`. Raises `ValueError` if its codes mean nothing."""
    return Schedule(
        id=row.id,
        process_definition_id=row.process_definition_id,
        definition_name=row.definition_name,
        definition_is_online=row.definition_is_online,
        crontab=row.crontab,
        timezone_id=row.timezone_id,
        missing_time=row.missing_time,
        repeated_time=row.repeated_time,
        start_time=row.start_time,
        end_time=row.end_time,
        misfire_policy=MisfirePolicy(row.misfire_policy),
        misfire_limit=row.misfire_limit,
        deadline=timedelta(seconds=row.deadline) if row.deadline else None,
        execution_type=(None if row.execution_type is None else ExecutionType(row.execution_type)),
        start_params=row.start_params,
        failure_strategy=FailureStrategy(row.failure_strategy),
        user_id=row.user_id,
        warning_type=WarningType(row.warning_type),
        warning_group_id=row.warning_group_id,
        priority=Priority(row.process_instance_priority),
        worker_group_id=row.worker_group_id,
        environment_code=row.environment_code,
        counted_from=row.counted_from,
        next_fire_time=row.next_fire_time,
    )
