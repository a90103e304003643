"""Schedules as they are stored: found by id or by definition, read for `common.firing`.

Fire times come from `common.firing` and are never worked out here. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from common.errors import NotFoundError
from common.firing import plan_fires
from common.model.schedules import FirePlan, MisfirePolicy, Schedule
from common.model.states import ExecutionType, FailureStrategy, Priority, ReleaseState
from common.zones import UnknownZoneError, zone_named

if TYPE_CHECKING:
    from common.model.rights import Principal
    from common.store.connect import Connection
    from common.store.people.schedule_views import ScheduleView

NO_END: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""The end of a window that has none; the default of the table's column too."""

_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)


def schedules_with_ids(db: Connection, ids: Sequence[int]) -> list[ScheduleView]:
    """All of these schedules, each once. Raises `NotFoundError` for the first that is missing."""
    from common.store.people.schedule_views import schedules

    found = schedules(db, ids=ids)
    known = {view.id for view in found}
    for number in ids:
        if number not in known:
            raise _no_schedule(number)
    return found


def schedules_of(
    db: Connection, principal: Principal, target: str, *, by_name: bool = False
) -> list[ScheduleView]:
    """The schedule with an id, or those of a definition with a name: at least one.

    `by_name` reads a number as a name too. Raises `NotFoundError`.
    """
    from common.store.people.schedule_views import schedules
    from operations.lookup import definition_named

    number = None if by_name else id_in(target)
    if number is not None:
        found = schedules(db, ids=[number], principal=principal)
        if found:
            return found
    try:
        definition = definition_named(db, principal, target, takes_ids=by_name)
    except NotFoundError as error:
        if number is not None:
            raise _no_schedule(number) from error
        raise
    found = schedules(db, definition_id=definition.id)
    if not found:
        raise NotFoundError(
            f"{definition.name!r} has no schedule; make one: orcaflow schedule create"
            f" {definition.name!r} --cron '0 0 3 * * ? *'"
        )
    return found


def id_in(target: str) -> int | None:
    """The id that a text consists of; None if it is a name."""
    return int(target[:18]) if target.isascii() and target.isdigit() else None


def _no_schedule(schedule_id: int) -> NotFoundError:
    return NotFoundError(f"there is no schedule {schedule_id}; see `orcaflow schedule list`")


def as_schedule(view: ScheduleView) -> Schedule:
    """The row as `common.firing` takes it."""
    return Schedule(
        id=view.id,
        process_definition_id=view.process_definition_id,
        definition_name=view.definition_name,
        definition_is_online=view.definition_is_online,
        crontab=view.crontab,
        timezone_id=view.timezone_id,
        missing_time=view.missing_time,
        repeated_time=view.repeated_time,
        start_time=view.start_time,
        end_time=view.end_time,
        misfire_policy=MisfirePolicy(view.misfire_policy),
        misfire_limit=view.misfire_limit,
        deadline=view.deadline,
        execution_type=None if view.execution_type is None else ExecutionType(view.execution_type),
        start_params=view.start_params,
        failure_strategy=FailureStrategy(view.failure_strategy),
        user_id=view.user_id,
        priority=Priority(view.priority),
        worker_group_id=view.worker_group_id,
        environment_code=view.environment_code,
        counted_from=view.counted_from,
        next_fire_time=view.next_fire_time,
    )


def zone_of_schedule(view: ScheduleView, zone: ZoneInfo) -> ZoneInfo:
    """The zone of a schedule's clock; `zone`, the cluster's, if it names none or an unknown one."""
    try:
        return zone if view.timezone_id is None else zone_named(view.timezone_id)
    except UnknownZoneError:
        return zone


def next_plan(view: ScheduleView, *, zone: ZoneInfo) -> FirePlan:
    """The next fire of an ONLINE schedule, be it in the past, or its fault."""
    if view.release_state != ReleaseState.ONLINE or view.fault is not None:
        return FirePlan(fault=view.fault)
    return plan_fires(as_schedule(view), now=_EARLIEST, zone=zone)


def blocker(view: ScheduleView, *, zone: ZoneInfo) -> str | None:
    """The reason why no fire of a schedule starts a run at present; None if there is none."""
    if view.release_state != ReleaseState.ONLINE:
        return f"it is OFFLINE; bring it ONLINE: orcaflow schedule online {view.id}"
    fault = next_plan(view, zone=zone).fault
    if fault is not None:
        return f"it can't fire: {fault}"
    if view.definition_name is None:
        return "its process definition is gone, so that its fires are skipped"
    if not view.definition_is_online:
        return (
            f"process definition {view.definition_name!r} is OFFLINE, so that its fires are"
            f" skipped; release it: orcaflow definition online {view.definition_name!r}"
        )
    return None
