"""The calendar of schedules, a week at a time, and the simulation of the weeks to come."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from fastapi import Response

from api import cursors
from api.console.looks import NOT_BEGUN, Look, of_fire
from api.console.rendering import rendered
from api.console.table import Visit, order, page
from api.console.week import DAYS, Fire, days_of, monday_of
from api.marking import marked
from api.policy import LIST
from common.clock import SystemClock
from common.config import cluster_zone
from common.errors import NotFoundError
from common.schedule_simulator import TooManyFiresError
from operations import simulating
from operations.calendars import CalendarFire, calendar
from operations.documents.simulations import simulation_document
from operations.errors import UsageError

_LIMIT: Final = 50
_FIRST: Final = date(1970, 1, 5)
_LAST: Final = date(9998, 12, 20)
_LONGEST_DAYS: Final = 366
_MOST_FIRES: Final = 50_000
_TO_COME: Final = Look(marked("to come"), NOT_BEGUN.glyph, NOT_BEGUN.colour)
_clock = SystemClock()


def show(visit: Visit) -> Response:
    """Show the week of a date in `week`, or this one."""
    session, now = visit.session, _clock.now()
    zone = cluster_zone(session.config)
    monday = _monday(visit, now.astimezone(zone).date())
    found = calendar(
        session,
        first=_midnight(monday, zone),
        last=_midnight(monday + timedelta(days=DAYS), zone),
        now=now,
        after=cursors.read("schedules", visit.query.get("after")) or 0,
        limit=_LIMIT,
    )
    return rendered(
        "calendar.html",
        zone=session.zone,
        visit=visit,
        zone_name=zone.key,
        days=[monday + timedelta(days=each) for each in range(DAYS)],
        today=now.astimezone(zone).date(),
        before=monday - timedelta(days=DAYS),
        behind=monday + timedelta(days=DAYS),
        monday=monday,
        rows=[(each, days_of([_fire(one) for one in each.fires], monday, zone)) for each in found],
        looks=[_TO_COME, of_fire("fired", None), of_fire("skipped", None), of_fire("missed", None)],
        next=cursors.next_of("schedules", [each.view.id for each in found], _LIMIT),
    )


def _monday(visit: Visit, today: date) -> date:
    text = visit.query.get("week")
    try:
        day = today if text is None else date.fromisoformat(text)
    except ValueError:
        raise UsageError(
            "week", visit.said("%(text)s is no date, as 2013-01-31 is", text=f"{text!r:.50}")
        ) from None
    if not _FIRST <= day <= _LAST:
        raise UsageError(
            "week", visit.said("is from %(first)s to %(last)s", first=_FIRST, last=_LAST)
        )
    return monday_of(day)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _fire(fire: CalendarFire) -> Fire:
    look = _TO_COME if fire.outcome is None else of_fire(fire.outcome, fire.instance_state)
    return Fire(at=fire.fire_time, look=look, run=fire.process_instance_id)


def simulate(visit: Visit) -> Response:
    """Play the schedules on a virtual clock, and show what would overlap, wait and be missed."""
    form = visit.form
    request = simulating.SimulationRequest(
        days=_number(visit, form.get("days") or "30", "days", _LONGEST_DAYS),
        offline_too="offline_too" in form,
        pessimistic="pessimistic" in form,
        assumed=simulating.read_assumed(form.get("assume") or "60s"),
        slots=_number(visit, form["slots"], "slots", 1_000_000) if form.get("slots") else None,
        max_fires=_MOST_FIRES,
    )
    simulated, trouble = None, None
    try:
        found = simulating.simulate(visit.session, request, now=_clock.now())
        simulated = simulation_document(found)
    except NotFoundError:
        trouble = visit.said("No schedule is ONLINE, so nothing would fire.")
    except TooManyFiresError as error:
        trouble = str(error)
    return rendered(
        "simulation.html",
        zone=visit.session.zone,
        visit=visit,
        simulation=simulated,
        trouble=trouble,
        days=request.days,
    )


def _number(visit: Visit, text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= most):
        raise UsageError(name, visit.said("is a whole number from 1 to %(most)s", most=f"{most:,}"))
    return int(text)


PAGES: Final = (
    page("/schedules/calendar", LIST, show, is_heavy=True),
    order("/schedules/simulate", LIST, simulate, is_heavy=True),
)
