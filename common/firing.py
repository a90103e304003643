"""The fires of a schedule that are due, and the outcome of each. Pure.

The schedule loop, `schedule preview` and `schedule simulate` all use it, so that a preview shows
the fires that happen. Every fire of a schedule while it is online gets exactly one outcome:

| first line that applies | outcome |
|---|---|
| later than the schedule's deadline | missed |
| the process definition is OFFLINE or gone | skipped |
| not later than the misfire threshold | fired |
| a misfire, policy `skip` | skipped |
| a misfire, policy `fire_once`: the newest / those before it | fired / coalesced |
| a misfire, policy `fire_all`: the newest `misfire_limit` / those before | fired / missed |
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final
from zoneinfo import ZoneInfo

from common.cron import Cron, CronError, MissingTime, RepeatedTime, Timetable
from common.errors import SchedulerError
from common.model.command_param import CommandParam, unmarked
from common.model.schedules import Fire, FireOutcome, FirePlan, MisfirePolicy, Schedule
from common.zones import UnknownZoneError, zone_named

MISFIRE_THRESHOLD: Final = timedelta(seconds=60)
"""A fire that is carried out within this is in time, as in Quartz (contract §8.2)."""

_MOMENT: Final = timedelta(microseconds=1)


class ScheduleFaultError(SchedulerError):
    """A schedule's row can't be understood. Its text names the column and the cure."""


def timetable_of(schedule: Schedule, *, zone: ZoneInfo) -> Timetable:
    """The timetable of a schedule, within its window; `zone` is that of the cluster.

    Raises `ScheduleFaultError` for a cron line, a zone or a policy that there is not.
    """
    try:
        return Timetable(
            cron=Cron.parse(schedule.crontab),
            zone=zone if schedule.timezone_id is None else zone_named(schedule.timezone_id),
            missing=MissingTime(schedule.missing_time),
            repeated=RepeatedTime(schedule.repeated_time),
            first=schedule.start_time,
            last=schedule.end_time,
        )
    except CronError as error:
        raise ScheduleFaultError(f"crontab: {error}") from error
    except UnknownZoneError as error:
        raise ScheduleFaultError(f"timezone_id: {error}") from error
    except ValueError as error:
        raise ScheduleFaultError(str(error)) from error


def plan_fires(
    schedule: Schedule,
    *,
    now: datetime,
    zone: ZoneInfo,
    threshold: timedelta = MISFIRE_THRESHOLD,
    limit: int = 1000,
) -> FirePlan:
    """The outcomes of what is due by `now`, the oldest first, at most `limit` of them.

    If there are more, the next fire of the answer is due already. A row that can't be understood
    comes back with its fault.
    """
    try:
        timetable = timetable_of(schedule, zone=zone)
        param = command_param(schedule)
    except ScheduleFaultError as error:
        return FirePlan(fault=str(error))
    first = _first_open(schedule, timetable)
    if first is None or first > now:
        return FirePlan(next_fire_time=first, command_param=param)
    due = list(islice(timetable.between(first, now), limit + 1))
    left, due = due[limit:], due[:limit]
    oldest_kept = _oldest_kept(schedule, timetable, now - threshold)
    fires = tuple(
        _outcome(schedule, fire_time, now=now, threshold=threshold, oldest_kept=oldest_kept)
        for fire_time in due
    )
    return FirePlan(
        fires=fires,
        next_fire_time=left[0] if left else timetable.next(now),
        command_param=param,
    )


def command_param(schedule: Schedule) -> str:
    """The `command_param` of a schedule's commands: zone, execution type, environment, parameters.

    Raises `ScheduleFaultError` for parameters that are no JSON object.
    """
    given: dict[str, Any] = {}
    if schedule.start_params and schedule.start_params.strip():
        try:
            given = json.loads(schedule.start_params, parse_float=str)
        except (ValueError, RecursionError) as error:
            raise ScheduleFaultError(f"start_params is not JSON: {error}") from error
        if not isinstance(given, dict):
            raise ScheduleFaultError("start_params must be a JSON object of names and values")
        values = unmarked(given)
        nested = [name for name, value in values.items() if isinstance(value, dict | list)]
        if nested:
            raise ScheduleFaultError(
                f"start_params: the value of {nested[0][:80]!r} must be a text or a number"
            )
    execution_type = schedule.execution_type
    param = CommandParam.of(
        start_params=given,
        timezone_id=schedule.timezone_id,
        execution_type=None if execution_type is None else execution_type.name,
        environment_code=schedule.environment_code if schedule.environment_code > 0 else None,
    )
    return param.row_text()


def _first_open(schedule: Schedule, timetable: Timetable) -> datetime | None:
    """The first fire that has no outcome yet."""
    if schedule.counted_from is not None:
        return timetable.next(schedule.counted_from)
    if schedule.next_fire_time is None:
        return None
    # Asked anew, since the window may have become narrower (trap T97).
    return timetable.next(schedule.next_fire_time - _MOMENT)


def _oldest_kept(schedule: Schedule, timetable: Timetable, late: datetime) -> datetime | None:
    """The oldest misfire that is to happen, None if none is. Fires before `late` are misfires."""
    if schedule.misfire_policy is MisfirePolicy.SKIP:
        return None
    once = schedule.misfire_policy is MisfirePolicy.FIRE_ONCE
    kept = timetable.previous(late)
    for _ in range(0 if once else schedule.misfire_limit - 1):
        earlier = None if kept is None else timetable.previous(kept)
        if earlier is None:
            break
        kept = earlier
    return kept


def _outcome(
    schedule: Schedule,
    fire_time: datetime,
    *,
    now: datetime,
    threshold: timedelta,
    oldest_kept: datetime | None,
) -> Fire:
    late = now - fire_time
    if schedule.deadline is not None and late > schedule.deadline:
        return _not_fired(
            fire_time, FireOutcome.MISSED, f"{late} late; the deadline is {schedule.deadline}"
        )
    if schedule.definition_name is None:
        return _not_fired(fire_time, FireOutcome.SKIPPED, "its process definition is gone")
    if not schedule.definition_is_online:
        return _not_fired(
            fire_time,
            FireOutcome.SKIPPED,
            f"process definition {schedule.definition_name!r} was OFFLINE",
        )
    if late <= threshold or (oldest_kept is not None and fire_time >= oldest_kept):
        return Fire(fire_time=fire_time, outcome=FireOutcome.FIRED)
    if schedule.misfire_policy is MisfirePolicy.SKIP:
        return _not_fired(fire_time, FireOutcome.SKIPPED, f"a misfire, {late} late")
    if schedule.misfire_policy is MisfirePolicy.FIRE_ONCE:
        return _not_fired(
            fire_time, FireOutcome.COALESCED, f"a misfire, {late} late; a later one stands for it"
        )
    return _not_fired(
        fire_time,
        FireOutcome.MISSED,
        f"a misfire, {late} late; only the newest {schedule.misfire_limit} happen",
    )


def _not_fired(fire_time: datetime, outcome: FireOutcome, reason: str) -> Fire:
    return Fire(fire_time=fire_time, outcome=outcome, reason=reason)
