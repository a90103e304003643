"""The settings of a schedule that people choose: read, checked and turned into columns.

Nothing is written; `operations.scheduling` stores them. Adds the word *settings*: the columns of a
schedule that people choose, before they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo

from common.cron import Cron, CronError, MissingTime, RepeatedTime
from common.model.alerts import warning_group_of
from common.model.schedules import MisfirePolicy, Schedule
from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType
from common.store.people.definitions import definition_by_id
from common.store.people.schedule_views import ScheduleView
from operations.errors import UsageError
from operations.lookup import environment_named, worker_group_named
from operations.schedule_checks import check_schedule, check_window, too_often
from operations.session import Session
from operations.start_params import stored_params
from operations.stored_schedules import NO_END
from operations.times import read_moment, read_seconds, stored_name

if TYPE_CHECKING:
    from common.config import Config
    from common.store.connect import Connection

NO_ENVIRONMENT = "none"
"""The word that takes an environment away; none has that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The settings that are given; None leaves a setting as it is.

    `first` and `last` are texts, read in the schedule's zone: `now` and `never` are words there.
    `deadline` is in seconds, 0 for none; `start_params` empty takes all of them away. `environment`
    is a name or a code, and `NO_ENVIRONMENT` takes it away.
    """

    cron: str | None = None
    zone: ZoneInfo | None = None
    first: str | None = None
    last: str | None = None
    misfire_policy: MisfirePolicy | None = None
    misfire_limit: int | None = None
    deadline: int | None = None
    missing_time: MissingTime | None = None
    repeated_time: RepeatedTime | None = None
    execution_type: ExecutionType | Literal["definition"] | None = None
    failure_strategy: FailureStrategy | None = None
    worker_group: str | None = None
    environment: str | int | None = None
    priority: Priority | None = None
    start_params: Mapping[str, str] | None = None
    warning_type: WarningType | None = None


def read_cron(text: str) -> str:
    """The line with single blanks between its fields; raises a `UsageError` of the field `cron`."""
    try:
        Cron.parse(text)
    except CronError as error:
        raise UsageError("cron", str(error)) from error
    return " ".join(text.split())


def read_deadline(text: str) -> int:
    """Seconds of a span, 0 for `none`; raises a `UsageError` of the field `deadline`."""
    return 0 if text == "none" else read_seconds(text, field="deadline")


def new_columns(*, zone: ZoneInfo, now: datetime) -> dict[str, Any]:
    """The columns of a schedule to which nothing was given: its window begins now, without end."""
    return {
        "timezone_id": stored_name(zone),
        "missing_time": MissingTime.SHIFT.value,
        "repeated_time": RepeatedTime.FIRST.value,
        "start_time": now.replace(microsecond=0),
        "end_time": NO_END,
    }


def given_columns(settings: ScheduleSettings, *, zone: ZoneInfo, now: datetime) -> dict[str, Any]:
    """The columns of the settings that are given, but for those that name rows."""
    columns: dict[str, Any] = {}
    if settings.misfire_policy is not None:
        columns["misfire_policy"] = settings.misfire_policy.value
    if settings.misfire_limit is not None:
        columns["misfire_limit"] = settings.misfire_limit
    if settings.deadline is not None:
        columns["deadline"] = settings.deadline
    if settings.missing_time is not None:
        columns["missing_time"] = settings.missing_time.value
    if settings.repeated_time is not None:
        columns["repeated_time"] = settings.repeated_time.value
    if settings.execution_type is not None:
        own = settings.execution_type
        columns["execution_type"] = None if own == "definition" else int(own)
    if settings.failure_strategy is not None:
        columns["failure_strategy"] = int(settings.failure_strategy)
    if settings.priority is not None:
        columns["process_instance_priority"] = int(settings.priority)
    if settings.warning_type is not None:
        columns["warning_type"] = int(settings.warning_type)
    if settings.start_params is not None:
        given = settings.start_params
        columns["start_params"] = stored_params(given) if given else None
    if settings.cron is not None:
        columns["crontab"] = settings.cron
    if settings.zone is not None:
        columns["timezone_id"] = stored_name(settings.zone)
    if settings.first is not None:
        columns["start_time"] = _start(settings.first, zone, now)
    if settings.last is not None:
        columns["end_time"] = _end(settings.last, zone)
    return columns


def _start(text: str, zone: ZoneInfo, now: datetime) -> datetime:
    if text.strip() == "now":
        return now.replace(microsecond=0)
    return read_moment(text, zone, field="from")


def _end(text: str, zone: ZoneInfo) -> datetime:
    if text.strip() == "never":
        return NO_END
    return min(read_moment(text, zone, field="to", ends_day=True), NO_END)


def named_columns(db: Connection, settings: ScheduleSettings, definition_id: int) -> dict[str, Any]:
    """Return the columns of the worker group and environment; `NotFoundError` without a grant."""
    columns: dict[str, Any] = {}
    if settings.worker_group is None and settings.environment is None:
        return columns
    row = definition_by_id(db, definition_id)
    project_id = 0 if row is None else row.project_id
    if settings.worker_group is not None:
        columns["worker_group_id"] = worker_group_named(db, settings.worker_group, project_id)
    wanted = settings.environment
    if wanted is not None:
        is_none = wanted == NO_ENVIRONMENT
        columns["environment_code"] = -1 if is_none else environment_named(db, wanted, project_id)
    return columns


def warning_group(settings: ScheduleSettings, *, given: int) -> dict[str, Any]:
    """The group that hears of the runs' ends, where a row names none and somebody is to hear."""
    if settings.warning_type is None or given:
        return {}
    return {"warning_group_id": warning_group_of(settings.warning_type)}


def check_columns(config: Config, columns: Mapping[str, Any], zone: ZoneInfo) -> None:
    """Refuse columns by which a schedule would never fire."""
    check_window(columns["start_time"], columns["end_time"], zone=zone)
    kind = columns.get("execution_type")
    made = Schedule(
        id=0,
        process_definition_id=0,
        definition_name=None,
        definition_is_online=False,
        crontab=columns["crontab"],
        timezone_id=columns["timezone_id"],
        missing_time=columns["missing_time"],
        repeated_time=columns["repeated_time"],
        start_time=columns["start_time"],
        end_time=columns["end_time"],
        execution_type=None if kind is None else ExecutionType(kind),
        start_params=columns.get("start_params"),
        environment_code=columns.get("environment_code", -1),
    )
    check_schedule(made, zone=zone, limit_bytes=config.command.param_limit_bytes)


def check_pace(
    db: Connection, session: Session, columns: Mapping[str, Any], definition_id: int
) -> None:
    """Refuse a line that fires more often than schedules of this role may."""
    if "crontab" in columns:
        reason = too_often(
            db, session.principal, session.config.api, columns["crontab"], definition_id
        )
        if reason is not None:
            raise UsageError("cron", reason)


def columns_of(view: ScheduleView) -> dict[str, Any]:
    """The columns that `check_columns` looks at, as they are stored."""
    return {
        "crontab": view.crontab,
        "timezone_id": view.timezone_id,
        "missing_time": view.missing_time,
        "repeated_time": view.repeated_time,
        "start_time": view.start_time,
        "end_time": view.end_time,
        "execution_type": view.execution_type,
        "start_params": view.start_params,
        "environment_code": view.environment_code,
    }
