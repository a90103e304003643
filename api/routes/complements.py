"""Complements and their dates: listed, shown, and steered."""

from __future__ import annotations

from typing import Any, Final

from api import cursors
from api.answers import Complement, ComplementPage, DateList, state_of
from api.asking import Asked
from api.cursors import After, Limit
from api.route import Id, Route, get, post
from common.clock import SystemClock
from common.store.people.complement_views import ComplementView
from operations import complement_control
from operations.documents.complements import complement_row, date_row
from operations.session import Session
from operations.stored_complements import details, find

_clock = SystemClock()


def list_complements(session: Asked, limit: Limit = 50, after: After = None) -> dict[str, Any]:
    """List the complements that you may see, the newest first."""
    found = find(session, limit=limit, before=cursors.read("complements", after))
    return {
        "items": [_row(each) for each in found],
        "next": cursors.next_of("complements", [each.id for each in found], limit),
    }


def show_complement(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a complement with the number of its dates by state."""
    return _shown(session, id)


def list_dates(id: Id, session: Asked, limit: Limit = 100) -> dict[str, Any]:  # noqa: A002
    """List dates of a complement: failed ones first, then those that run, then the next ones."""
    found = details(session, id, limit=limit)
    zone = found.view.timezone_id
    now = _clock.now()
    return {"items": [date_row(each, timezone_id=zone, now=now) for each in found.dates]}


def pause(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Begin no further date of a complement."""
    complement_control.pause(session, id, now=_clock.now())
    return _shown(session, id)


def resume(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Go on with a paused complement."""
    complement_control.resume(session, id, now=_clock.now())
    return _shown(session, id)


def cancel(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Begin no further date of a complement, and stop those that run."""
    complement_control.cancel(session, id, now=_clock.now())
    return _shown(session, id)


def retry(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Run the failed dates of a complement again."""
    complement_control.retry(session, id, now=_clock.now())
    return _shown(session, id)


def _shown(session: Session, number: int) -> dict[str, object]:
    return _row(details(session, number, limit=1).view)


def _row(view: ComplementView) -> dict[str, object]:
    row = complement_row(view, now=_clock.now())
    return row | {"state": state_of(row)}


ROUTES: Final[tuple[Route, ...]] = (
    get("/complements", list_complements, ComplementPage, is_quick=True),
    get("/complements/{id}", show_complement, Complement, is_quick=True),
    get("/complements/{id}/dates", list_dates, DateList, is_quick=True),
    post("/complements/{id}/pause", pause, Complement),
    post("/complements/{id}/resume", resume, Complement),
    post("/complements/{id}/cancel", cancel, Complement),
    post("/complements/{id}/retry", retry, Complement),
)
