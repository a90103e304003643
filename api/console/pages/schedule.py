"""A schedule: the fires to come, those in the ledger, and its release."""

from __future__ import annotations

from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api.console.looks import of_fire
from api.console.rendering import rendered
from api.console.table import Serve, Visit, order, page
from api.policy import Policy
from common.clock import SystemClock
from common.config import cluster_zone
from common.model.rights import Action
from common.model.states import ReleaseState
from common.store.people.rights import Thing
from operations.documents.schedules import fire_row, schedule_row
from operations.rights import may
from operations.scheduling import details, fires, schedule_tag, set_release_state

_FIRES: Final = 50
_AUTHOR: Final = Policy(takes=Action.AUTHOR, thing="schedule")
_clock = SystemClock()


def show(visit: Visit) -> Response:
    """Show a schedule with its next and its last fires."""
    session = visit.session
    found = details(session, visit.id, now=_clock.now())
    ledger = fires(session, str(visit.id), limit=_FIRES)
    is_online = found.view.release_state == ReleaseState.ONLINE
    may_order = may(session, Action.AUTHOR, Thing.SCHEDULE, visit.id)
    verb = "offline" if is_online else "online"
    return rendered(
        "schedule.html",
        zone=session.zone,
        visit=visit,
        schedule=schedule_row(found.view, zone=cluster_zone(session.config)),
        fault=found.fault,
        definition_is_online=found.view.definition_is_online,
        next_fires=found.next_fires,
        verb=verb if may_order else None,
        # As a condition names it.
        tag=f'"{schedule_tag(found.view)}"',
        fires=[
            (fire_row(each), of_fire(each.outcome, each.instance_state)) for each in ledger.fires
        ],
    )


def _released(wanted: ReleaseState) -> Serve:
    def serve(visit: Visit) -> Response:
        set_release_state(visit.session, wanted, ids=[visit.id], now=_clock.now())
        return RedirectResponse(f"/schedules/{visit.id}", status_code=303)

    return serve


PAGES: Final = (
    page("/schedules/{id}", Policy(takes=Action.VIEW, thing="schedule"), show),
    order("/schedules/{id}/online", _AUTHOR, _released(ReleaseState.ONLINE)),
    order("/schedules/{id}/offline", _AUTHOR, _released(ReleaseState.OFFLINE)),
)
