"""A complement: its progress, the state of each date, its orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import cursors
from api.console.dates import CELL, Date, lines_of
from api.console.looks import of_date, of_run
from api.console.rendering import rendered
from api.console.table import Serve, Visit, order, page
from api.policy import Policy
from common.clock import SystemClock
from common.model.complement_states import ComplementState, DateState
from common.model.rights import Action
from common.store.people.rights import Thing
from operations import complement_control
from operations.complement_plans import typical_of
from operations.documents.complements import complement_row, date_row
from operations.rights import may
from operations.session import Session
from operations.stored_complements import details

_MOST: Final = 1_000
_OPERATE: Final = Policy(takes=Action.OPERATE, thing="complement")
_clock = SystemClock()

_GOING: Final = ("pause", "cancel")
_VERBS: Final[Mapping[int, tuple[str, ...]]] = {
    ComplementState.SUBMITTED: ("cancel",),
    ComplementState.RUNNING: _GOING,
    ComplementState.READY_PAUSE: ("resume", "cancel"),
    ComplementState.PAUSE: ("resume", "cancel"),
    ComplementState.FAILURE: ("retry",),
}


def show(visit: Visit) -> Response:
    """Show a complement with its dates in the order in which they run, a thousand at a time."""
    session, now = visit.session, _clock.now()
    behind = cursors.read("dates", visit.query.get("after"))
    found = details(session, visit.id, limit=_MOST, behind=-1 if behind is None else behind)
    view = found.view
    rows = [
        date_row(each, timezone_id=view.timezone_id, date_rule=view.date_rule, now=now)
        for each in found.dates
    ]
    may_order = may(session, Action.OPERATE, Thing.COMPLEMENT, visit.id)
    return rendered(
        "complement.html",
        zone=session.zone,
        visit=visit,
        complement=complement_row(view, now=now),
        look=of_run(view.state),
        verbs=_VERBS.get(view.state, ()) if may_order else (),
        shares=[(of_date(state), view.count(state)) for state in DateState if view.count(state)],
        typical=typical_of(session, view),
        lines=lines_of([_date(each) for each in rows]),
        cell=CELL,
        failed=[each for each in rows if each["state"] == DateState.FAILURE],
        followers=found.followers,
        next=cursors.next_of("dates", [each.position for each in found.dates], _MOST),
    )


def _date(row: Mapping[str, Any]) -> Date:
    return Date(
        text=row["date"],
        state=row["state"],
        run=row["process_instance_id"],
        span=row["duration"],
        reason=row["reason"],
    )


def _retry(session: Session, number: int, *, now: datetime) -> None:
    complement_control.retry(session, number, now=now)


def _ordered(carry_out: Callable[..., None]) -> Serve:
    def serve(visit: Visit) -> Response:
        carry_out(visit.session, visit.id, now=_clock.now())
        return RedirectResponse(f"/complements/{visit.id}", status_code=303)

    return serve


PAGES: Final = (
    page("/complements/{id}", Policy(takes=Action.VIEW, thing="complement"), show),
    order("/complements/{id}/pause", _OPERATE, _ordered(complement_control.pause)),
    order("/complements/{id}/resume", _OPERATE, _ordered(complement_control.resume)),
    order("/complements/{id}/cancel", _OPERATE, _ordered(complement_control.cancel)),
    order("/complements/{id}/retry", _OPERATE, _ordered(_retry)),
)
