"""Schedules as people see them: their rows, and the ledger of their fires.

Read only, and tolerant like `common.store.people.views`: codes and words are given as they are
stored. No daemon decides anything by these views. An instant beyond the calendar (`infinity`,
which may be typed into `end_time`) is read as the end of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from common.masking import shown_reason
from common.model.rights import DATABASE, Principal
from common.store.fixed_statement import FixedRead
from common.store.people.project_column import project_name
from common.store.people.rights import seen_projects, told, told_seen
from common.store.tables import (
    environment,
    error_command,
    process_definition,
    process_instance,
    schedule,
    schedule_fire,
    worker_group,
)

# A day inside of what Python can show in any zone.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """One row of `t_ds_schedules`. `definition_name` is None if the definition is gone.

    `definition_is_online` says that it is ONLINE and usable, so that the schedule may fire.
    """

    id: int
    process_definition_id: int
    definition_name: str | None
    definition_is_online: bool
    crontab: str
    timezone_id: str | None
    start_time: datetime
    end_time: datetime
    release_state: int
    missing_time: str
    repeated_time: str
    misfire_policy: str
    misfire_limit: int
    deadline: timedelta | None
    execution_type: int | None
    failure_strategy: int
    warning_type: int
    warning_group_id: int
    priority: int
    worker_group_id: int
    worker_group: str | None
    environment_code: int
    environment: str | None
    start_params: str | None
    user_id: int
    counted_from: datetime | None
    next_fire_time: datetime | None
    fault: str | None
    create_time: datetime
    update_time: datetime
    project_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FireView:
    """One fire in the ledger, with its command and its run.

    The ids are None where there is none; `refusal`: the reason why a master refused the command.
    """

    id: int
    schedule_id: int
    process_definition_id: int
    definition_name: str | None
    fire_time: datetime
    outcome: str
    reason: str | None
    command_id: int | None
    process_instance_id: int | None
    instance_state: int | None
    refusal: str | None
    create_time: datetime


def schedules(
    db: Connection,
    *,
    ids: Collection[int] | None = None,
    definition_id: int | None = None,
    online_only: bool = False,
    principal: Principal = DATABASE,
    after: int = 0,
    limit: int | None = None,
) -> list[ScheduleView]:
    """List all schedules, those with these ids, or those of a definition; in order of id.

    Of those that the principal sees, at most `limit` with ids greater than `after`.
    """
    is_page = ids is None and definition_id is None and not online_only and limit is not None
    if is_page and principal.projects is None and not principal.owns_database:
        values = {**told(principal), "after": after, "limit": limit}
        return [_schedule(row) for row in _page().rows(db, values)]
    statement = _SCHEDULES.order_by(schedule.c.id).limit(limit)
    if not principal.sees_all:
        statement = statement.where(seen_projects(principal, process_definition.c.project_id))
    if after:
        statement = statement.where(schedule.c.id > after)
    if ids is not None:
        statement = statement.where(schedule.c.id.in_(ids))
    if definition_id is not None:
        statement = statement.where(schedule.c.process_definition_id == definition_id)
    if online_only:
        statement = statement.where(schedule.c.release_state == 1)
    return [_schedule(row) for row in db.execute(statement)]


@cache
def _page() -> FixedRead:
    return FixedRead(
        _SCHEDULES.where(told_seen(process_definition.c.project_id))
        .where(schedule.c.id > bindparam("after", type_=Integer))
        .order_by(schedule.c.id)
        .limit(bindparam("limit", type_=BigInteger))
    )


def fires(
    db: Connection,
    *,
    schedule_id: int | None = None,
    definition_id: int | None = None,
    outcomes: Sequence[str] | None = None,
    limit: int = 50,
    behind: int | None = None,
) -> list[FireView]:
    """List the fires of a schedule or of a definition, the newest first, at most `limit`.

    `behind`: only those that stand behind the fire with this id.
    """
    statement = _FIRES.order_by(
        schedule_fire.c.fire_time.desc(), schedule_fire.c.schedule_id, schedule_fire.c.id
    ).limit(limit)
    if schedule_id is not None:
        statement = statement.where(schedule_fire.c.schedule_id == schedule_id)
    if definition_id is not None:
        # The schedule's index, and those of schedules that have been deleted since.
        own = select(schedule.c.id).where(schedule.c.process_definition_id == definition_id)
        statement = statement.where(
            or_(
                schedule_fire.c.schedule_id.in_(own),
                schedule_fire.c.process_definition_id == definition_id,
            )
        )
    if outcomes is not None:
        statement = statement.where(schedule_fire.c.outcome.in_(outcomes))
    if behind is not None:
        statement = statement.where(_stands_behind(behind))
    return [_fire(row) for row in db.execute(statement)]


def fires_between(
    db: Connection, schedule_id: int, *, first: datetime, last: datetime, limit: int
) -> list[FireView]:
    """List the first fires of a schedule from `first` to before `last`, by time."""
    statement = (
        _FIRES.where(schedule_fire.c.schedule_id == schedule_id)
        .where(schedule_fire.c.fire_time >= first)
        .where(schedule_fire.c.fire_time < last)
        .order_by(schedule_fire.c.fire_time, schedule_fire.c.id)
        .limit(limit)
    )
    return [_fire(row) for row in db.execute(statement)]


def _stands_behind(fire_id: int) -> ColumnElement[bool]:
    """Build the condition of a page: the rest of the list, from the fire with this id on."""
    last = schedule_fire.alias("last")

    def of_last(column: ColumnElement[Any]) -> Any:
        return select(column).where(last.c.id == fire_id).scalar_subquery()

    at = of_last(last.c.fire_time)
    among = tuple_(schedule_fire.c.schedule_id, schedule_fire.c.id)
    return or_(
        schedule_fire.c.fire_time < at,
        and_(
            schedule_fire.c.fire_time == at,
            among > tuple_(of_last(last.c.schedule_id), of_last(last.c.id)),
        ),
    )


def fire_counts(db: Connection, schedule_id: int) -> dict[str, int]:
    """Count the fires of a schedule by outcome."""
    rows = db.execute(
        select(schedule_fire.c.outcome, func.count().label("number"))
        .where(schedule_fire.c.schedule_id == schedule_id)
        .group_by(schedule_fire.c.outcome)
        .order_by(schedule_fire.c.outcome)
    )
    return {row.outcome: row.number for row in rows}


def _shown(column: ColumnElement[datetime]) -> ColumnElement[datetime]:
    """Clamp an instant to what can be shown."""
    return func.least(func.greatest(column, literal(EARLIEST)), literal(LATEST))


_SCHEDULES: Final[Select[Any]] = (
    select(
        schedule.c.id,
        schedule.c.process_definition_id,
        process_definition.c.name.label("definition_name"),
        project_name(process_definition.c.project_id),
        func.coalesce(
            (process_definition.c.release_state == 1) & (process_definition.c.flag == 1),
            literal(value=False),
        ).label("definition_is_online"),
        schedule.c.crontab,
        schedule.c.timezone_id,
        _shown(schedule.c.start_time).label("start_time"),
        _shown(schedule.c.end_time).label("end_time"),
        schedule.c.release_state,
        schedule.c.missing_time,
        schedule.c.repeated_time,
        schedule.c.misfire_policy,
        schedule.c.misfire_limit,
        schedule.c.deadline,
        schedule.c.execution_type,
        schedule.c.failure_strategy,
        schedule.c.warning_type,
        schedule.c.warning_group_id,
        schedule.c.process_instance_priority,
        schedule.c.worker_group_id,
        worker_group.c.name.label("worker_group"),
        schedule.c.environment_code,
        environment.c.name.label("environment"),
        schedule.c.start_params,
        schedule.c.user_id,
        schedule.c.counted_from,
        schedule.c.next_fire_time,
        schedule.c.fault,
        schedule.c.create_time,
        schedule.c.update_time,
    )
    .select_from(schedule)
    .outerjoin(process_definition, process_definition.c.id == schedule.c.process_definition_id)
    .outerjoin(worker_group, worker_group.c.id == schedule.c.worker_group_id)
    .outerjoin(environment, environment.c.code == schedule.c.environment_code)
)

_FIRES: Final[Select[Any]] = (
    select(
        schedule_fire.c.id,
        schedule_fire.c.schedule_id,
        schedule_fire.c.process_definition_id,
        process_definition.c.name.label("definition_name"),
        schedule_fire.c.fire_time,
        schedule_fire.c.outcome,
        schedule_fire.c.reason,
        schedule_fire.c.command_id,
        schedule_fire.c.process_instance_id,
        process_instance.c.state.label("instance_state"),
        select(error_command.c.message)
        .where(error_command.c.command_id == schedule_fire.c.command_id)
        .where(schedule_fire.c.command_id != 0)
        .where(schedule_fire.c.process_instance_id == 0)
        .limit(1)
        .scalar_subquery()
        .label("refusal"),
        schedule_fire.c.create_time,
    )
    .select_from(schedule_fire)
    .outerjoin(process_definition, process_definition.c.id == schedule_fire.c.process_definition_id)
    .outerjoin(process_instance, process_instance.c.id == schedule_fire.c.process_instance_id)
)


def _schedule(row: Row[*tuple[Any, ...]]) -> ScheduleView:
    return ScheduleView(
        id=row.id,
        process_definition_id=row.process_definition_id,
        definition_name=row.definition_name,
        project_name=row.project_name,
        definition_is_online=row.definition_is_online,
        crontab=row.crontab,
        timezone_id=row.timezone_id,
        start_time=row.start_time,
        end_time=row.end_time,
        release_state=row.release_state,
        missing_time=row.missing_time,
        repeated_time=row.repeated_time,
        misfire_policy=row.misfire_policy,
        misfire_limit=row.misfire_limit,
        deadline=timedelta(seconds=row.deadline) if row.deadline else None,
        execution_type=row.execution_type,
        failure_strategy=row.failure_strategy,
        warning_type=row.warning_type,
        warning_group_id=row.warning_group_id,
        priority=row.process_instance_priority,
        worker_group_id=row.worker_group_id,
        worker_group=row.worker_group,
        environment_code=row.environment_code,
        environment=row.environment,
        start_params=row.start_params,
        user_id=row.user_id,
        counted_from=row.counted_from,
        next_fire_time=row.next_fire_time,
        fault=row.fault,
        create_time=row.create_time,
        update_time=row.update_time,
    )


def _fire(row: Row[*tuple[Any, ...]]) -> FireView:
    return FireView(
        id=row.id,
        schedule_id=row.schedule_id,
        process_definition_id=row.process_definition_id,
        definition_name=row.definition_name,
        fire_time=row.fire_time,
        outcome=row.outcome,
        reason=shown_reason(row.reason),
        command_id=row.command_id or None,
        process_instance_id=row.process_instance_id or None,
        instance_state=row.instance_state,
        refusal=row.refusal,
        create_time=row.create_time,
    )
