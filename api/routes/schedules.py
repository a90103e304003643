"""Schedules and their fires: listed, shown, and brought ONLINE and OFFLINE."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query

from api import cursors
from api.answers import FireList, Released, ScheduleDetail, SchedulePage
from api.asking import Asked
from api.cursors import After, Limit
from api.route import Id, Route, get, post
from common.clock import SystemClock
from common.model.states import ReleaseState
from operations.documents.schedules import details_document, fire_row, released_rows, schedule_row
from operations.scheduling import details, fires, page, set_release_state
from operations.session import Session
from operations.times import cluster_zone

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


def _released(session: Session, number: int, wanted: ReleaseState) -> dict[str, Any]:
    found = set_release_state(session, wanted, ids=[number], now=_clock.now())
    (row,) = released_rows(found, wanted)
    return row


ROUTES: Final[tuple[Route, ...]] = (
    get("/schedules", list_schedules, SchedulePage),
    get("/schedules/{id}", show_schedule, ScheduleDetail),
    get("/schedules/{id}/fires", list_fires, FireList),
    post("/schedules/{id}/online", online, Released),
    post("/schedules/{id}/offline", offline, Released),
)
