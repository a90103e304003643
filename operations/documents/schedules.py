"""Schedules and their fires as rows: the documented fields of `-o json`, and cells of tables.

Adds the word *head*: the fields by which a preview names its subject. In a document the blocker of
a schedule has the key `hindrance`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from common.cron import Cron, CronError, Timetable
from common.masking import mask_value
from common.model.command_param import unmarked
from common.model.schedules import Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    WarningType,
)
from operations.coming_fires import ClockChange, ComingFire, effect_of_change, effect_on_fire
from operations.documents.environments import environment_name
from operations.documents.instances import name_of
from operations.previewing import LINE_ID, Preview, Previewed
from operations.stored_schedules import (
    NO_END,
    blocker,
    next_plan,
    zone_of_schedule,
)
from operations.times import local_text

if TYPE_CHECKING:
    from common.store.people.schedule_views import FireView, ScheduleView
    from operations.scheduling import ReleasedSchedules, ScheduleDetails

SCHEDULE_COLUMNS: Final = (
    *("id", "definition", "project", "release_state", "crontab", "timezone_id", "next_fire"),
    *("misfire_policy", "fault"),
)
FIRE_COLUMNS: Final = (
    *("schedule_id", "definition", "fire_time", "outcome", "process_instance_id"),
    *("instance_state", "reason"),
)

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
        "project": view.project_name,
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
        "environment": environment_name(view.environment_code, view.environment),
        "warning_type": name_of(WarningType, view.warning_type),
        "params": _params(view.start_params),
        "create_time": view.create_time,
        "update_time": view.update_time,
    }


def schedule_cells(view: ScheduleView, *, zone: ZoneInfo) -> dict[str, object]:
    """One schedule for people: its times as its own clock shows them."""
    row = schedule_row(view, zone=zone)
    own = zone_of_schedule(view, zone)
    local = {
        name: local_text(moment, own) if isinstance(moment, datetime) else None
        for name, moment in row.items()
        if name in ("start_time", "end_time", "next_fire_time")
    }
    params = [f"{name}={value}" for name, value in _params(view.start_params).items()]
    return row | local | {"next_fire": local["next_fire_time"], "params": params}


def details_document(details: ScheduleDetails, *, zone: ZoneInfo) -> dict[str, Any]:
    """A schedule with its next fires and the number of its fires by outcome."""
    return {
        **schedule_row(details.view, zone=zone),
        "fault": details.fault,
        "next_fires": [coming_row(each, details.view.id) for each in details.next_fires],
        "fires": details.fire_counts,
    }


def released_rows(released: ReleasedSchedules, wanted: ReleaseState) -> list[dict[str, object]]:
    """The schedules that were to be brought ONLINE or OFFLINE, in their order."""
    return [
        {
            "id": view.id,
            "definition": view.definition_name,
            "release_state": wanted.name,
            "changed": view.id in released.changed,
        }
        for view in released.views
    ]


def deleted_row(view: ScheduleView) -> dict[str, object]:
    return {"id": view.id, "definition": view.definition_name, "deleted": True}


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


def preview_document(previewed: Previewed, preview: Preview) -> dict[str, Any]:
    """A preview: heads, fires to come, clock changes and overdue fires."""
    return {
        "schedules": _heads(previewed),
        "fires": [coming_row(fire, number or None) for number, fire in preview.fires],
        "clock_changes": [
            change_row(change, previewed.timetables[number], number or None)
            for number, change in preview.clock_changes
        ],
        "overdue": [
            {
                "schedule_id": each.schedule_id,
                "since": each.since,
                "number": each.number,
                "outcomes": {outcome.value: count for outcome, count in each.outcomes.items()},
            }
            for each in preview.overdue
        ],
    }


def _heads(previewed: Previewed) -> list[dict[str, object]]:
    if previewed.line is not None:
        return [_head_of_line(previewed.line, previewed.timetables[LINE_ID])]
    return [_head_of(view, previewed.zone) for view in previewed.views]


def _head_of(view: ScheduleView, zone: ZoneInfo) -> dict[str, object]:
    row = schedule_row(view, zone=zone) | {"hindrance": blocker(view, zone=zone)}
    return {name: row[name] for name in _HEAD}


def _head_of_line(line: Schedule, timetable: Timetable) -> dict[str, object]:
    return {
        **dict.fromkeys(_HEAD),
        "crontab": line.crontab,
        "description": timetable.cron.describe(),
        "timezone_id": timetable.zone.key,
        "missing_time": line.missing_time,
        "repeated_time": line.repeated_time,
    }


def coming_row(fire: ComingFire, schedule_id: int | None) -> dict[str, object]:
    """One fire to come; without a schedule if it is one of a mere cron line."""
    return {
        "schedule_id": schedule_id,
        "fire_time": fire.fire_time,
        "local": fire.local.isoformat(sep=" "),
        "meant": fire.meant.isoformat(sep=" "),
        "clock": None if fire.mark is None else fire.mark.value,
        "clock_effect": effect_on_fire(fire),
    }


def coming_cells(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    """The rows for people: UTC as text, and the effect of the clock in words."""
    return [
        row
        | {
            "utc": f"{row['fire_time'].astimezone(UTC):%Y-%m-%d %H:%M:%S}Z",
            "clock": row["clock_effect"] or "",
        }
        for row in rows
    ]


def change_row(
    change: ClockChange, timetable: Timetable, schedule_id: int | None
) -> dict[str, object]:
    """One clock change with its effect on the fires of a timetable."""
    return {
        "schedule_id": schedule_id,
        "at": change.at,
        "local": local_text(change.at, timetable.zone),
        "before": change.before,
        "after": change.after,
        "wall_times": [str(wall) for wall in change.wall_times],
        "number": change.number,
        "effect": effect_of_change(change, timetable),
    }


def _params(text: str | None) -> dict[str, object]:
    """The parameters, with masks in the places of secret values."""
    try:
        found = mask_value(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}
    return unmarked(found) if isinstance(found, dict) else {}
