"""Schedules and their fires: listed, shown, made, changed, brought ONLINE and OFFLINE, deleted."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Final, TypeVar

from fastapi import Query

from api import answers, cursors
from api.answers import (
    DeletedSchedules,
    FireList,
    NewSchedule,
    Released,
    ReleasedSchedules,
    ScheduleChange,
    ScheduleDetail,
    SchedulePage,
    ScheduleRelease,
    SchedulesRequest,
)
from api.asking import Asked
from api.cursors import After, Limit
from api.route import Id, Route, get, patch, post
from common.clock import SystemClock
from common.cron import MissingTime, RepeatedTime
from common.model.schedules import MisfirePolicy
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ReleaseState,
    WarningType,
)
from operations.documents.schedules import (
    coming_row,
    deleted_row,
    details_document,
    fire_row,
    released_rows,
    schedule_row,
)
from operations.scheduling import (
    SavedSchedule,
    ScheduleSettings,
    create,
    delete,
    details,
    edit,
    fires,
    page,
    read_cron,
    set_release_state,
)
from operations.session import Session
from operations.times import cluster_zone, read_zone

Code = TypeVar("Code", bound=IntEnum)

_clock = SystemClock()


def list_schedules(
    session: Asked,
    definition_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the schedules that you may see, by id."""
    found = page(
        session,
        definition_id=definition_id,
        after=cursors.read("schedules", after) or 0,
        limit=limit,
    )
    zone = cluster_zone(session.config)
    return {
        "items": [schedule_row(each, zone=zone) for each in found],
        "next": cursors.next_of("schedules", [each.id for each in found], limit),
    }


def show_schedule(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a schedule with its next fires."""
    found = details(session, id, now=_clock.now())
    return details_document(found, zone=cluster_zone(session.config))


def list_fires(id: Id, session: Asked, limit: Limit = 50) -> dict[str, Any]:  # noqa: A002
    """List the newest fires of a schedule."""
    return {"items": [fire_row(each) for each in fires(session, str(id), limit=limit).fires]}


def online(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let a schedule fire from now on."""
    return _released(session, id, ReleaseState.ONLINE)


def offline(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let a schedule fire no more; what runs goes on."""
    return _released(session, id, ReleaseState.OFFLINE)


def make(given: NewSchedule, session: Asked) -> dict[str, Any]:
    """Make a schedule of a definition."""
    saved = create(
        session, given.definition_id, _settings(given), online=given.online, now=_clock.now()
    )
    return _saved(session, saved)


def change(id: Id, given: ScheduleChange, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Change a schedule that is OFFLINE; what is left out stays as it is."""
    return _saved(session, edit(session, id, _settings(given), now=_clock.now()))


def release_all(given: ScheduleRelease, session: Asked) -> dict[str, Any]:
    """Bring several schedules ONLINE or OFFLINE, all or none."""
    wanted = ReleaseState[given.release_state]
    found = set_release_state(session, wanted, ids=given.ids, now=_clock.now())
    return {"items": released_rows(found, wanted)}


def delete_all(given: SchedulesRequest, session: Asked) -> dict[str, Any]:
    """Delete schedules that are OFFLINE, all or none; their fires stay in the ledger."""
    return {"items": [deleted_row(each) for each in delete(session, given.ids)]}


def _settings(given: ScheduleChange) -> ScheduleSettings:
    misfire = given.misfire_policy
    return ScheduleSettings(
        cron=None if given.cron is None else read_cron(given.cron),
        zone=None if given.zone is None else read_zone(given.zone),
        first=given.first,
        last=given.last,
        misfire_policy=None if misfire is None else MisfirePolicy(misfire),
        misfire_limit=given.misfire_limit,
        deadline=given.deadline,
        missing_time=None if given.missing_time is None else MissingTime(given.missing_time),
        repeated_time=None if given.repeated_time is None else RepeatedTime(given.repeated_time),
        execution_type="definition"
        if given.execution_type == "definition"
        else _member(ExecutionType, given.execution_type),
        failure_strategy=_member(FailureStrategy, given.failure_strategy),
        worker_group=given.worker_group,
        priority=_member(Priority, given.priority),
        start_params=given.params,
        warning_type=_member(WarningType, given.warning_type),
    )


def _member(kind: type[Code], name: str | None) -> Code | None:
    return None if name is None else kind[name]


def _saved(session: Session, saved: SavedSchedule) -> dict[str, Any]:
    row = schedule_row(saved.view, zone=cluster_zone(session.config))
    fire = saved.next_fire
    return {
        **row,
        "next_fire": None if fire is None else coming_row(fire, saved.view.id),
    }


def _released(session: Session, number: int, wanted: ReleaseState) -> dict[str, Any]:
    found = set_release_state(session, wanted, ids=[number], now=_clock.now())
    (row,) = released_rows(found, wanted)
    return row


ROUTES: Final[tuple[Route, ...]] = (
    get("/schedules", list_schedules, SchedulePage, is_quick=True),
    post("/schedules", make, answers.SavedSchedule, status=201),
    post("/schedules/release", release_all, ReleasedSchedules),
    post("/schedules/delete", delete_all, DeletedSchedules),
    patch("/schedules/{id}", change, answers.SavedSchedule),
    get("/schedules/{id}", show_schedule, ScheduleDetail, is_quick=True),
    get("/schedules/{id}/fires", list_fires, FireList, is_quick=True),
    post("/schedules/{id}/online", online, Released),
    post("/schedules/{id}/offline", offline, Released),
)
