"""Schedules and their fires as rows: the documented fields of `-o json`, and as people read them.

Adds the word *head*: the fields by which a preview says what it is of.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from common.cron import Cron, CronError, Timetable
from common.firing import plan_fires
from common.masking import mask_value
from common.model.schedules import Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    WarningType,
)
from operations.documents.instances import name_of
from operations.previewing import ClockChange, ComingFire, told, told_of_fire
from operations.scheduling import NO_END, as_schedule, local_text, next_plan, zone_of_schedule
from orcaflow.cli.output import shown

if TYPE_CHECKING:
    from common.store.people.schedule_views import FireView, ScheduleView

SCHEDULE_COLUMNS: Final = (
    *("id", "definition", "release_state", "crontab", "timezone_id", "next_fire", "misfire_policy"),
    "fault",
)
MAX_OVERDUE: Final = 100_000
"""More fires than this are not counted."""

_HEAD: Final = (
    *("id", "definition", "release_state", "crontab", "description", "timezone_id"),
    *("missing_time", "repeated_time", "start_time", "end_time", "hindrance"),
)


def description_of(crontab: str) -> str | None:
    """The cron line in words; None for one that can't be read."""
    try:
        return Cron.parse(crontab).describe()
    except CronError:
        return None


def schedule_row(view: ScheduleView, *, zone: ZoneInfo) -> dict[str, object]:
    """One schedule: its documented fields. `end_time` None: it has no end."""
    plan = next_plan(view, zone=zone)
    return {
        "id": view.id,
        "definition": view.definition_name,
        "process_definition_id": view.process_definition_id,
        "release_state": name_of(ReleaseState, view.release_state),
        "crontab": view.crontab,
        "description": description_of(view.crontab),
        "timezone_id": view.timezone_id or zone.key,
        "missing_time": view.missing_time,
        "repeated_time": view.repeated_time,
        "start_time": view.start_time,
        "end_time": None if view.end_time >= NO_END else view.end_time,
        "next_fire_time": plan.next_fire_time,
        "fault": plan.fault,
        "misfire_policy": view.misfire_policy,
        "misfire_limit": view.misfire_limit,
        "deadline": view.deadline,
        "execution_type": name_of(ExecutionType, view.execution_type),
        "failure_strategy": name_of(FailureStrategy, view.failure_strategy),
        "priority": name_of(Priority, view.priority),
        "worker_group": "default"
        if view.worker_group_id == -1
        else view.worker_group or str(view.worker_group_id),
        "warning_type": name_of(WarningType, view.warning_type),
        "params": _params(view.start_params),
        "create_time": view.create_time,
        "update_time": view.update_time,
    }


def blocker(view: ScheduleView, *, zone: ZoneInfo) -> str | None:
    """Why nothing of a schedule happens as it stands; None if it fires."""
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


def schedule_cells(view: ScheduleView, *, zone: ZoneInfo) -> dict[str, object]:
    """One schedule as people read it: its times as its own clock shows them."""
    row = schedule_row(view, zone=zone)
    own = zone_of_schedule(view, zone)
    local = {
        name: local_text(moment, own) if isinstance(moment, datetime) else None
        for name, moment in row.items()
        if name in ("start_time", "end_time", "next_fire_time")
    }
    params = [f"{name}={value}" for name, value in _params(view.start_params).items()]
    return row | local | {"next_fire": local["next_fire_time"], "params": params}


def fire_row(view: FireView) -> dict[str, object]:
    """One fire of the ledger: its documented fields."""
    reason = view.reason
    if view.refusal is not None:
        reason = f"its command was refused: {view.refusal}"
    return {
        "schedule_id": view.schedule_id,
        "definition": view.definition_name,
        "fire_time": view.fire_time,
        "outcome": view.outcome,
        "process_instance_id": view.process_instance_id,
        "instance_state": name_of(ProcessState, view.instance_state),
        "command_id": view.command_id,
        "reason": reason,
        "decided_at": view.create_time,
    }


def head_of(view: ScheduleView, zone: ZoneInfo) -> dict[str, object]:
    row = schedule_row(view, zone=zone) | {"hindrance": blocker(view, zone=zone)}
    return {name: row[name] for name in _HEAD}


def head_of_line(line: Schedule, timetable: Timetable) -> dict[str, object]:
    return {
        **dict.fromkeys(_HEAD),
        "crontab": line.crontab,
        "description": timetable.cron.describe(),
        "timezone_id": timetable.zone.key,
        "missing_time": line.missing_time,
        "repeated_time": line.repeated_time,
    }


def coming_row(fire: ComingFire, schedule_id: int | None) -> dict[str, object]:
    return {
        "schedule_id": schedule_id,
        "fire_time": fire.fire_time,
        "local": fire.local.isoformat(sep=" "),
        "meant": fire.meant.isoformat(sep=" "),
        "clock": None if fire.mark is None else fire.mark.value,
        "clock_effect": told_of_fire(fire),
    }


def coming_cells(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows as a table shows them: UTC as text, and what the clock did in words."""
    return [
        row | {"utc": f"{shown(row['fire_time'], UTC)}Z", "clock": row["clock_effect"] or ""}
        for row in rows
    ]


def change_row(
    change: ClockChange, timetable: Timetable, schedule_id: int | None
) -> dict[str, object]:
    """Return a clock change and its effect on a schedule as a row."""
    return {
        "schedule_id": schedule_id,
        "at": change.at,
        "local": local_text(change.at, timetable.zone),
        "before": change.before,
        "after": change.after,
        "wall_times": [str(wall) for wall in change.wall_times],
        "number": change.number,
        "effect": told(change, timetable),
    }


def overdue_row(view: ScheduleView, zone: ZoneInfo, now: datetime) -> dict[str, object] | None:
    """What a master would make of the fires that are due already, if it looked now."""
    if view.release_state != ReleaseState.ONLINE or view.fault is not None:
        return None
    plan = plan_fires(as_schedule(view), now=now, zone=zone, limit=MAX_OVERDUE)
    if not plan.fires:
        return None
    return {
        "schedule_id": view.id,
        "since": plan.fires[0].fire_time,
        "number": len(plan.fires),
        "outcomes": dict(Counter(fire.outcome.value for fire in plan.fires)),
    }


def _params(text: str | None) -> dict[str, object]:
    """The parameters, without the values of those whose names sound secret."""
    try:
        found = mask_value(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
