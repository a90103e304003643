"""The schedule that stands in an export of DolphinScheduler 1.x, and its way into the database.

The original writes a definition's schedule beside it, with words for codes and times of its own
zone. It is made OFFLINE, as the original does on import (contract §8.1), in the zone of the
cluster that takes it. A schedule that can't be read is left out and reported as a *finding*: the
definition is right without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from common.cron import Cron, CronError
from common.model.states import FailureStrategy, Priority, WarningType
from operations.findings import Finding, Severity
from operations.references import DEFAULT_WORKER_GROUP
from operations.stored_schedules import NO_END
from operations.times import moment_in, stored_name

if TYPE_CHECKING:
    from common.store.connect import Connection

_KEY = "scheduleCrontab"
_WINDOW = (("scheduleStartTime", "start"), ("scheduleEndTime", "end"))
_Code = TypeVar("_Code", bound=IntEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSchedule:
    """A schedule of an export. Its times are texts still, since they have no zone of their own."""

    crontab: str
    start: str | None
    end: str | None
    failure_strategy: FailureStrategy
    priority: Priority
    warning_type: WarningType
    worker_group: str | None
    """None is the default group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSchedule:
    """The schedule of an export as it is in this database; `is_new` if this import made it."""

    id: int
    crontab: str
    is_new: bool


def read_schedule(exported: Mapping[str, Any]) -> tuple[ExportedSchedule | None, list[Finding]]:
    """Return the schedule of an export, if it has a readable one, and the findings about it."""
    given = exported.get(_KEY)
    if not given:
        return None, []
    crontab = " ".join(str(given).split())
    window = {name: str(exported[key]) for key, name in _WINDOW if exported.get(key)}
    try:
        Cron.parse(crontab)
        moments = {name: moment_in(text, ZoneInfo("UTC")) for name, text in window.items()}
        if moments.get("end", NO_END) <= moments.get("start", datetime.min.replace(tzinfo=UTC)):
            raise ValueError(f"it ends, {window['end']}, before it starts, {window['start']}")
    except (CronError, ValueError) as error:
        problem = f"the schedule {crontab!r:.200} stays behind: {error}"
        cure = "make it again: orcaflow schedule create NAME --cron LINE"
        return None, [_unmapped(_KEY, problem, cure)]
    findings: list[Finding] = []
    alert = exported.get("scheduleWarningGroupName")
    if alert:
        problem = f"the alert group {alert!r:.200} is not kept: runs of the schedule name none"
        findings.append(_unmapped("scheduleWarningGroupName", problem, ""))
    group = exported.get("scheduleWorkerGroupName") or exported.get("scheduleWorkerGroup")
    return (
        ExportedSchedule(
            crontab=crontab,
            start=window.get("start"),
            end=window.get("end"),
            failure_strategy=_code(
                exported, "scheduleFailureStrategy", FailureStrategy.CONTINUE, findings
            ),
            priority=_code(exported, "scheduleProcessInstancePriority", Priority.MEDIUM, findings),
            warning_type=_code(exported, "scheduleWarningType", WarningType.NONE, findings),
            worker_group=None if group in (None, DEFAULT_WORKER_GROUP) else str(group),
        ),
        findings,
    )


def save_schedule(
    db: Connection,
    schedule: ExportedSchedule,
    *,
    definition_id: int,
    worker_group_id: int,
    zone: ZoneInfo,
    at: datetime,
) -> tuple[ImportedSchedule | None, Finding]:
    """Create it OFFLINE unless the definition has the like already; return it with a finding."""
    from common.store.people.schedule_requests import create_schedule
    from common.store.people.schedule_views import schedules

    start = at.replace(microsecond=0) if schedule.start is None else moment_in(schedule.start, zone)
    end = _end(schedule.end, zone)
    if end <= start:
        problem = f"the schedule {schedule.crontab!r} stays behind: it ended, {schedule.end}"
        return None, _unmapped(_KEY, f"{problem}, before it starts", "")
    known = schedules(db, definition_id=definition_id)
    for each in known:
        # One without a time of its own starts whenever it was imported.
        same_start = schedule.start is None or each.start_time == start
        if each.crontab == schedule.crontab and same_start and each.end_time == end:
            problem = f"the schedule {schedule.crontab!r} is there already, and stays as it is"
            found = ImportedSchedule(id=each.id, crontab=each.crontab, is_new=False)
            return found, _warning(f"{problem} (schedule {each.id})", "")
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
            "worker_group_id": worker_group_id,
        },
        at=at,
    )
    others = ", ".join(str(each.id) for each in known)
    beside = f", beside the schedules {others} of the definition" if others else ""
    return (
        ImportedSchedule(id=made, crontab=schedule.crontab, is_new=True),
        _warning(
            f"the schedule {schedule.crontab!r} is imported as schedule {made}, OFFLINE and in the"
            f" zone {zone.key}{beside}",
            f"orcaflow schedule preview {made}, then orcaflow schedule online {made}",
        ),
    )


def _end(text: str | None, zone: ZoneInfo) -> datetime:
    """The end of the window; what lies at the end of the calendar is none."""
    try:
        return NO_END if text is None else min(moment_in(text, zone), NO_END)
    except ValueError:
        return NO_END


def _code(exported: Mapping[str, Any], key: str, default: _Code, findings: list[Finding]) -> _Code:
    """A code by its name, as the original writes it, or by its number."""
    value = exported.get(key)
    if value is None or value == "":
        return default
    kind = type(default)
    for member in kind:
        if str(value).strip().upper() in (member.name, str(int(member))):
            return member
    findings.append(_unmapped(key, f"{value!r:.60} is not known here; {default.name} is taken", ""))
    return default


def _unmapped(key: str, problem: str, cure: str) -> Finding:
    return Finding(severity=Severity.UNMAPPED, key=key, problem=problem, cure=cure)


def _warning(problem: str, cure: str) -> Finding:
    return Finding(severity=Severity.WARNING, key=_KEY, problem=problem, cure=cure)
