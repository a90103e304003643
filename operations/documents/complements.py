"""Complements, their dates and their plans as rows: the documented fields of `-o json`.

A date is given as text on the wall clock of the complement's zone, and as the instant beside it
(`schedule_time`). Durations are in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from common.business_dates import business_date, moment_of_date
from common.masking import mask_value
from common.model.command_param import unmarked
from common.model.complement_states import ComplementState, DateState
from common.model.date_rules import DateRule
from common.model.states import FailureStrategy, Priority, ProcessState, TaskDependType
from common.params import ParameterError, format_moment
from common.zones import UnknownZoneError, zone_named
from operations.documents.environments import environment_name
from operations.documents.instances import name_of

if TYPE_CHECKING:
    from common.store.people.complement_views import ComplementDateView, ComplementView
    from operations.complement_plans import ComplementPlan, DatePlan
    from operations.stored_complements import ComplementDetails

COMPLEMENT_COLUMNS = (
    "id",
    "definition",
    "project",
    "state",
    "dates",
    "done",
    "failure",
    "running",
    "parallelism",
    "create_time",
    "duration",
)
DATE_COLUMNS = (
    "date",
    "business_date",
    "state",
    "process_instance_id",
    "start_time",
    "duration",
    "reason",
)
RULES_IN_WORDS = {
    DateRule.SCHEDULE_TIME: "a date is the schedule time of its run, for the day before",
    DateRule.BUSINESS_DATE: "a date is the business date of its run",
}
PLAN_COLUMNS = ("date", "business_date", "exists", "becomes")


def date_text(schedule_time: datetime, timezone_id: str) -> str:
    """A date as the clock of its complement's zone shows it."""
    try:
        return format_moment(schedule_time, zone_named(timezone_id))
    except (UnknownZoneError, ParameterError):
        # Somebody has spoilt the row.
        return schedule_time.isoformat(sep=" ")


def complement_row(view: ComplementView, *, now: datetime) -> dict[str, object]:
    """One complement, its dates counted: all, those that have ended (`done`), and by state."""
    from common.store.people.complement_views import ENDED_DATES

    return {
        "id": view.id,
        "definition": view.definition_name,
        "project": view.project_name,
        "process_definition_id": view.process_definition_id,
        "state": name_of(ComplementState, view.state),
        "state_code": view.state,
        "reason": view.state_reason,
        "dates": view.count(),
        "done": view.count(*ENDED_DATES),
        **{str(state): view.count(state) for state in DateState},
        "parallelism": view.parallelism,
        "order": view.run_order,
        "on_failure": view.on_failure,
        "reprocess": view.reprocess,
        "date_rule": view.date_rule,
        "timezone": view.timezone_id,
        "after_id": view.after_id or None,
        "command_id": view.command_id or None,
        "task_depend_type": name_of(TaskDependType, view.task_depend_type),
        "failure_strategy": name_of(FailureStrategy, view.failure_strategy),
        "priority": name_of(Priority, view.priority),
        "worker_group_id": view.worker_group_id,
        "environment": environment_name(view.environment_code, view.environment),
        "start_nodes": _names(view.start_node_names),
        "start_params": _params(view.start_params),
        "create_time": view.create_time,
        "end_time": view.end_time,
        "duration": max(timedelta(), (view.end_time or now) - view.create_time),
    }


def business_date_text(schedule_time: datetime, date_rule: str, timezone_id: str) -> str | None:
    """The business date of a complement's date; None if the row is not valid."""
    try:
        zone = zone_named(timezone_id)
        moment = moment_of_date(schedule_time, DateRule(date_rule), zone)
        return business_date(moment, zone).isoformat()
    except (UnknownZoneError, ParameterError, ValueError):
        return None


def date_row(
    date: ComplementDateView, *, timezone_id: str, date_rule: str, now: datetime
) -> dict[str, object]:
    """One date of a complement, with the run that it has become."""
    return {
        "position": date.position,
        "date": date_text(date.schedule_time, timezone_id),
        "business_date": business_date_text(date.schedule_time, date_rule, timezone_id),
        "schedule_time": date.schedule_time,
        "state": date.state,
        "process_instance_id": date.process_instance_id or None,
        "instance_state": name_of(ProcessState, date.instance_state),
        "start_time": date.start_time,
        "end_time": date.end_time,
        "duration": date.duration(now),
        "duration_from": date.duration_from,
        "reason": date.reason,
    }


def details_document(details: ComplementDetails, *, now: datetime) -> dict[str, Any]:
    """A complement with its dates and those that wait for it."""
    zone_name, rule = details.view.timezone_id, details.view.date_rule
    return {
        **complement_row(details.view, now=now),
        "date_list": [
            date_row(each, timezone_id=zone_name, date_rule=rule, now=now) for each in details.dates
        ],
        "followers": list(details.followers),
    }


def plan_row(plan: ComplementPlan, *, ends_at: datetime | None) -> dict[str, object]:
    """One complement that would be made, with all of its dates."""
    new, estimate = plan.new, plan.estimate
    return {
        "definition": plan.definition_name,
        "process_definition_id": new.process_definition_id,
        "timezone": new.timezone_id,
        "parallelism": new.parallelism,
        "order": str(new.order),
        "on_failure": str(new.on_failure),
        "reprocess": str(new.reprocess),
        "date_rule": str(new.date_rule),
        "dates": plan_date_rows(plan, plan.dates),
        "to_run": plan.to_run,
        "to_skip": len(plan.dates) - plan.to_run,
        "typical_duration": None if estimate is None else estimate.typical,
        "runs_known": 0 if estimate is None else estimate.runs,
        "estimated_duration": None if estimate is None else estimate.total,
        "estimated_end": ends_at,
    }


def plan_date_rows(plan: ComplementPlan, dates: Sequence[DatePlan]) -> list[dict[str, object]]:
    """Return a row for each planned date of a complement."""
    return [
        {
            "date": date_text(each.schedule_time, plan.new.timezone_id),
            "business_date": business_date_text(
                each.schedule_time, plan.new.date_rule, plan.new.timezone_id
            ),
            "schedule_time": each.schedule_time,
            "process_instance_id": each.process_instance_id,
            "instance_state": each.instance_state,
            "becomes": "runs" if each.skipped is None else "skipped",
            "reason": each.skipped,
        }
        for each in dates
    ]


def _names(stored: str | None) -> list[str]:
    return [name for name in (stored or "").split(",") if name]


def _params(stored: str | None) -> object:
    """The parameters as they were given; as the text that is stored, if that is no JSON.

    Masks are in the places of secret values.
    """
    if not stored:
        return {}
    try:
        found = mask_value(json.loads(stored, parse_float=str))
    except (ValueError, RecursionError):
        return stored
    return unmarked(found) if isinstance(found, dict) else found
