"""The schedules that stand beside a definition in a file, and their way into the database.

Exports of DolphinScheduler have one, with words for codes: 1.x writes its parts beside those of the
definition and its times in its own zone, 2.x and 3.x write an object with the zone. Files of
Orcaflow's own form have a list of such objects. A schedule is made OFFLINE, as the original does on
import (contract §8.1), in its zone or else in that of the cluster that takes it. One that can't be
read is left out and reported as a *finding*: the definition is right without it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zoneinfo import ZoneInfo

from common.cron import Cron, CronError, MissingTime, RepeatedTime
from common.model.command_param import unmarked
from common.model.grants import GrantKind
from common.model.schedules import MisfirePolicy
from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType
from common.zones import UnknownZoneError, chosen_zone, zone_named
from operations.definition_document import id_in
from operations.environment_references import (
    ENVIRONMENT_CODE,
    ENVIRONMENT_NAME,
    environment_wanted,
)
from operations.findings import Finding, Severity
from operations.grants import Granted
from operations.references import DEFAULT_WORKER_GROUP
from operations.start_params import marked_params, stored_params
from operations.stored_schedules import NO_END
from operations.times import MAX_SECONDS, MAX_ZONE_LENGTH, local_text, moment_in, stored_name

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.schedule_views import ScheduleView

_Code = TypeVar("_Code", bound=IntEnum)
_Word = TypeVar("_Word", bound=StrEnum)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION: Final = re.compile(r"(?<=:[0-9]{2})[.,][0-9]{1,9}")
_OFFSET: Final = re.compile(r"(?<=[0-9])([+-][0-9]{2})([0-9]{2})$")
_JAVA_ZONE: Final = re.compile(r"(?:GMT|UTC)([+-])0?([0-9]{1,2})(?::?00)?")
_MOST_FIRES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """The names of a schedule's parts in one form of files; the first that is given counts."""

    crontab: str
    start: str
    end: str
    failure: str
    priority: tuple[str, ...]
    warning: str
    warning_group: str
    worker_group: tuple[str, ...]


_FIRST_LINE: Final = _Keys(
    crontab="scheduleCrontab",
    start="scheduleStartTime",
    end="scheduleEndTime",
    failure="scheduleFailureStrategy",
    priority=("scheduleProcessInstancePriority",),
    warning="scheduleWarningType",
    warning_group="scheduleWarningGroupId",
    worker_group=("scheduleWorkerGroupName", "scheduleWorkerGroup"),
)
_OBJECT: Final = _Keys(
    crontab="crontab",
    start="startTime",
    end="endTime",
    failure="failureStrategy",
    priority=("processInstancePriority", "workflowInstancePriority"),
    warning="warningType",
    warning_group="warningGroupId",
    worker_group=("workerGroup",),
)
_ZONE: Final = "timezoneId"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSchedule:
    """A schedule of a file. Its times are texts still, which may have no zone of their own."""

    crontab: str
    start: str | None
    end: str | None
    failure_strategy: FailureStrategy
    priority: Priority
    warning_type: WarningType
    worker_group: str | None
    """None is the default group."""

    environment: str | int | None = None
    """The name of an environment, or a code that is the same in all systems."""

    warning_group_id: int = 0
    """An alert group by the id that it has where the file comes from; 0 for none."""

    zone: str | None = None
    """The name of the zone of its clock; None for that of the cluster."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """The columns that only Orcaflow's schedules have, those that are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSchedule:
    """The schedule of a file as it is in this database; `is_new` if this import made it."""

    id: int
    crontab: str
    is_new: bool


def read_schedules(
    exported: Mapping[str, Any],
    environment_of: Callable[[int], str | None] = lambda _code: None,
) -> tuple[tuple[ExportedSchedule, ...], list[Finding]]:
    """Return the readable schedules of a definition in a file, and the findings about all.

    `environment_of` says what a code of another system is called here.
    """
    findings: list[Finding] = []
    found: list[ExportedSchedule | None] = []
    if exported.get(_FIRST_LINE.crontab):
        found.append(_read(exported, _FIRST_LINE, "", findings))
    one, several = exported.get("schedule"), exported.get("schedules")
    places = [("schedule", one)] if one is not None else []
    if isinstance(several, list):
        places += [(f"schedules[{index}]", each) for index, each in enumerate(several)]
    elif several is not None:
        findings.append(_unmapped("schedules", "stays behind: it must be a list", ""))
    for place, given in places:
        if isinstance(given, dict):
            own = _read(given, _OBJECT, f"{place}.", findings)
            name, code = environment_wanted(given)
            if own is not None and code is not None:
                name = environment_of(code)
            found.append(None if own is None else replace(own, environment=name or code))
        else:
            findings.append(_unmapped(place, "stays behind: it must be an object", ""))
    return tuple(each for each in found if each is not None), findings


def _read(
    given: Mapping[str, Any], keys: _Keys, place: str, findings: list[Finding]
) -> ExportedSchedule | None:
    """Return one schedule; None if it can't be read, which its finding says."""
    crontab = " ".join(str(given.get(keys.crontab) or "").split())
    try:
        Cron.parse(crontab)
        window = {
            name: _time(given[key])
            for key, name in ((keys.start, "start"), (keys.end, "end"))
            if given.get(key)
        }
        moments = {name: moment_in(text, ZoneInfo("UTC")) for name, text in window.items()}
        if moments.get("end", NO_END) <= moments.get("start", datetime.min.replace(tzinfo=UTC)):
            raise ValueError(f"it ends, {window['end']}, before it starts, {window['start']}")
        settings = _settings(given) if keys is _OBJECT else {}
    except (CronError, ValueError, OverflowError) as error:
        problem = f"the schedule {crontab!r:.200} stays behind: {error}"
        cure = "make it again: orcaflow schedule create NAME --cron LINE"
        findings.append(_unmapped(f"{place}{keys.crontab}", problem, cure))
        return None
    group = next((given[key] for key in keys.worker_group if given.get(key)), None)
    priority = next((key for key in keys.priority if given.get(key)), keys.priority[0])
    return ExportedSchedule(
        crontab=crontab,
        start=window.get("start"),
        end=window.get("end"),
        failure_strategy=_code(given, keys.failure, FailureStrategy.CONTINUE, findings, place),
        priority=_code(given, priority, Priority.MEDIUM, findings, place),
        warning_type=_code(given, keys.warning, WarningType.NONE, findings, place),
        worker_group=None if group in (None, DEFAULT_WORKER_GROUP) else str(group),
        warning_group_id=_warning_group(given, keys, findings),
        zone=_zone(given, place, findings) if keys is _OBJECT else None,
        settings=settings,
    )


def _warning_group(given: Mapping[str, Any], keys: _Keys, findings: list[Finding]) -> int:
    """Return the id as it stands in the file. A name alone can't be kept."""
    number = id_in(given.get(keys.warning_group))
    name = given.get("scheduleWarningGroupName") if keys is _FIRST_LINE else None
    if number is None and name:
        problem = f"the alert group {name!r} is not kept: runs of the schedule name none"
        findings.append(_unmapped("scheduleWarningGroupName", problem, ""))
    return number or 0


def _zone(given: Mapping[str, Any], place: str, findings: list[Finding]) -> str | None:
    """Return the name of a zone, of which Java also takes offsets as `GMT+8`."""
    name = given.get(_ZONE)
    if not name:
        return None
    text = str(name).strip()
    offset = _JAVA_ZONE.fullmatch(text)
    if offset is not None:
        # The tz database counts the other way.
        text = f"Etc/GMT{'-' if offset[1] == '+' else '+'}{int(offset[2])}"
    try:
        chosen_zone(text)
        if len(text) <= MAX_ZONE_LENGTH:
            return text
    except UnknownZoneError:
        pass
    problem = f"{name!r:.60} is no zone of the tz database; the cluster's is taken"
    findings.append(_unmapped(f"{place}{_ZONE}", problem, "check the hours of its fires"))
    return None


def _time(value: object) -> str:
    """Return a time as people write it; other programs write milliseconds, or ISO 8601."""
    if isinstance(value, int) and not isinstance(value, bool):
        moment = _EPOCH + timedelta(milliseconds=value)
        return moment.strftime("%Y-%m-%d %H:%M:%SZ")
    text = _FRACTION.sub("", str(value).strip())
    return _OFFSET.sub(r"\1:\2", text)


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of Orcaflow's own; `ValueError` for a value that none can have."""
    settings: dict[str, Any] = {}
    for key, column, kind in (
        ("misfirePolicy", "misfire_policy", MisfirePolicy),
        ("missingTime", "missing_time", MissingTime),
        ("repeatedTime", "repeated_time", RepeatedTime),
    ):
        if given.get(key):
            settings[column] = _one_of(key, given[key], kind)
    for key, column, lowest, highest in (
        ("misfireLimit", "misfire_limit", 1, _MOST_FIRES),
        ("deadline", "deadline", 0, MAX_SECONDS),
    ):
        number = given.get(key)
        if number is None:
            continue
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if not is_whole or not lowest <= number <= highest:
            problem = f"{key} must be a whole number from {lowest} to {highest}"
            raise ValueError(f"{problem}, not {number!r:.20}")
        settings[column] = number
    kind_of_run = given.get("executionType")
    if kind_of_run:
        if str(kind_of_run) not in ExecutionType.__members__:
            raise ValueError(f"executionType must be one of {', '.join(ExecutionType.__members__)}")
        settings["execution_type"] = int(ExecutionType[str(kind_of_run)])
    params = given.get("startParams")
    if params:
        if not isinstance(params, dict) or not all(
            isinstance(each, str) for each in unmarked(params).values()
        ):
            raise ValueError("startParams must be an object of texts")
        settings["start_params"] = stored_params(params)
    return settings


def _one_of(key: str, value: object, kind: type[_Word]) -> str:
    words = [member.value for member in kind]
    if value not in words:
        raise ValueError(f"{key} must be one of {', '.join(words)}, not {value!r:.40}")
    return str(value)


def schedule_in_file(view: ScheduleView, *, zone: ZoneInfo) -> dict[str, object]:
    """Return a stored schedule with its secrets as an object of a file, its times in `zone`.

    That zone is its own.
    """
    document: dict[str, object] = {
        _OBJECT.crontab: view.crontab,
        _ZONE: view.timezone_id,
        _OBJECT.start: local_text(view.start_time, zone),
        _OBJECT.end: None if view.end_time >= NO_END else local_text(view.end_time, zone),
        _OBJECT.failure: FailureStrategy(view.failure_strategy).name,
        _OBJECT.priority[0]: Priority(view.priority).name,
        _OBJECT.warning: WarningType(view.warning_type).name if view.warning_type < 4 else None,
        _OBJECT.warning_group: view.warning_group_id or None,
        _OBJECT.worker_group[0]: view.worker_group,
        ENVIRONMENT_NAME: view.environment,
        ENVIRONMENT_CODE: view.environment_code
        if view.environment is None and view.environment_code > 0
        else None,
        "misfirePolicy": view.misfire_policy,
        "misfireLimit": view.misfire_limit,
        "deadline": int(view.deadline.total_seconds()) if view.deadline else None,
        "missingTime": view.missing_time,
        "repeatedTime": view.repeated_time,
        "executionType": None
        if view.execution_type is None
        else ExecutionType(view.execution_type).name,
        **start_params_in_file(view),
    }
    return {key: value for key, value in document.items() if value is not None}


def start_params_in_file(view: ScheduleView) -> dict[str, object]:
    """Return the start-up parameters of a stored schedule as the part of a file, if it has any."""
    try:
        params = json.loads(view.start_params or "{}")
    except (ValueError, RecursionError):
        return {}
    return {"startParams": params} if isinstance(params, dict) and params else {}


def save_schedule(
    db: Connection,
    schedule: ExportedSchedule,
    *,
    definition_id: int,
    worker_group_id: int,
    granted: Granted,
    zone: ZoneInfo,
    at: datetime,
) -> tuple[ImportedSchedule | None, list[Finding]]:
    """Create it OFFLINE unless the definition has the like already; return it with findings.

    `zone` is the cluster's, for a schedule that names none.
    """
    from common.store.people.schedule_requests import create_schedule
    from common.store.people.schedule_views import schedules

    if schedule.zone is not None:
        zone = zone_named(schedule.zone)
    start = at.replace(microsecond=0) if schedule.start is None else moment_in(schedule.start, zone)
    end = _end(schedule.end, zone)
    if end <= start:
        problem = f"the schedule {schedule.crontab!r} stays behind: it ended, {schedule.end}"
        return None, [_unmapped(_FIRST_LINE.crontab, f"{problem}, before it starts", "")]
    known = schedules(db, definition_id=definition_id)
    for each in known:
        # One without a time of its own starts whenever it was imported.
        same_start = schedule.start is None or each.start_time == start
        same_zone = schedule.zone is None or each.timezone_id == schedule.zone
        is_like = each.crontab == schedule.crontab and same_start and same_zone
        if is_like and each.end_time == end:
            problem = f"the schedule {schedule.crontab!r} is there already, and stays as it is"
            found = ImportedSchedule(id=each.id, crontab=each.crontab, is_new=False)
            return found, [_warning(f"{problem} (schedule {each.id})", "")]
    environment = _environment_code(granted, schedule)
    made = create_schedule(
        db,
        process_definition_id=definition_id,
        values={
            "crontab": schedule.crontab,
            "timezone_id": stored_name(zone),
            "start_time": start,
            "end_time": end,
            "failure_strategy": int(schedule.failure_strategy),
            "process_instance_priority": int(schedule.priority),
            "warning_type": int(schedule.warning_type),
            "warning_group_id": schedule.warning_group_id,
            "worker_group_id": worker_group_id,
            "environment_code": environment or -1,
            **schedule.settings,
            **_start_params(db, schedule, definition_id),
        },
        at=at,
    )
    others = ", ".join(str(each.id) for each in known)
    beside = f", beside the schedules {others} of the definition" if others else ""
    findings = [
        _warning(
            f"the schedule {schedule.crontab!r} is imported as schedule {made}, OFFLINE and in the"
            f" zone {zone.key}{beside}",
            f"orcaflow schedule preview {made}, then orcaflow schedule online {made}",
        )
    ]
    if environment is None and schedule.environment is not None:
        findings.append(_without_environment(schedule.environment, made))
    return ImportedSchedule(id=made, crontab=schedule.crontab, is_new=True), findings


def _start_params(
    db: Connection, schedule: ExportedSchedule, definition_id: int
) -> dict[str, object]:
    """Return the column of start-up parameters, with a mark at each secret one."""
    from common.store.people.definitions import definition_by_id

    given = schedule.settings.get("start_params")
    if given is None:
        return {}
    params = marked_params(json.loads(str(given)), definition_by_id(db, definition_id))
    return {"start_params": stored_params(params)}


def _environment_code(granted: Granted, schedule: ExportedSchedule) -> int | None:
    """Return the code of the schedule's environment; None if the project may not use it."""
    wanted = schedule.environment
    if wanted is None:
        return None
    if isinstance(wanted, str):
        return next(iter(granted.numbers_of(GrantKind.ENVIRONMENT, wanted)), None)
    return wanted if granted.has(GrantKind.ENVIRONMENT, wanted) else None


def _without_environment(wanted: str | int, schedule_id: int) -> Finding:
    is_code = isinstance(wanted, int)
    named = f"with the code {wanted}" if is_code else f"{wanted!r:.200}"
    make = f"NAME --code {wanted}" if is_code else shlex.quote(f"{wanted:.200}")
    return _unmapped(
        ENVIRONMENT_CODE if is_code else ENVIRONMENT_NAME,
        f"there is no environment {named}: runs of schedule {schedule_id} have none",
        f"make it (orcaflow environment create {make} --config FILE), and name it: orcaflow"
        f" schedule edit {schedule_id} --environment NAME",
    )


def _end(text: str | None, zone: ZoneInfo) -> datetime:
    """The end of the window; what lies at the end of the calendar is none."""
    try:
        return NO_END if text is None else min(moment_in(text, zone), NO_END)
    except ValueError:
        return NO_END


def _code(
    exported: Mapping[str, Any], key: str, default: _Code, findings: list[Finding], place: str
) -> _Code:
    """A code by its name, as the original writes it, or by its number."""
    value = exported.get(key)
    if value is None or value == "":
        return default
    kind = type(default)
    for member in kind:
        if str(value).strip().upper() in (member.name, str(int(member))):
            return member
    findings.append(
        _unmapped(f"{place}{key}", f"{value!r:.60} is not known here; {default.name} is taken", "")
    )
    return default


def _unmapped(key: str, problem: str, cure: str) -> Finding:
    return Finding(severity=Severity.UNMAPPED, key=key, problem=problem, cure=cure)


def _warning(problem: str, cure: str) -> Finding:
    return Finding(severity=Severity.WARNING, key=_FIRST_LINE.crontab, problem=problem, cure=cure)
