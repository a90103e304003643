"""Schedules along days: the fires of the ledger, and those to come exactly as they will fire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from common.config import cluster_zone
from common.firing import ScheduleFaultError, timetable_of
from common.model.states import ReleaseState
from common.store.connect import Connection
from common.store.people.schedule_views import ScheduleView, fires_between
from operations.scheduling import page
from operations.session import Session, operation
from operations.stored_schedules import as_schedule

MOST_FIRES: Final = 2_000
"""The fires of one schedule in a calendar; what comes after them is left out."""
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFire:
    """A fire; `outcome` is that of the ledger, None of one that is still to come."""

    fire_time: datetime
    outcome: str | None = None
    process_instance_id: int | None = None
    instance_state: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRow:
    """A schedule with its fires by time. `held` is the reason that none is to come.

    `is_cut`: it has more fires than `MOST_FIRES`.
    """

    view: ScheduleView
    fires: tuple[CalendarFire, ...]
    held: str | None
    is_cut: bool


@operation
def calendar(
    session: Session, *, first: datetime, last: datetime, now: datetime, after: int, limit: int
) -> list[CalendarRow]:
    """The schedules that the principal sees, by id, with their fires from `first` to before `last`.

    Fires before now are those of the ledger alone, as masters have decided them.
    """
    zone = cluster_zone(session.config)
    views = page(session, after=after, limit=limit)
    with session.engine.connect() as db:
        return [_row(db, each, first=first, last=last, now=now, zone=zone) for each in views]


def _row(
    db: Connection,
    view: ScheduleView,
    *,
    first: datetime,
    last: datetime,
    now: datetime,
    zone: ZoneInfo,
) -> CalendarRow:
    known = [
        CalendarFire(
            fire_time=each.fire_time,
            outcome=each.outcome,
            process_instance_id=each.process_instance_id,
            instance_state=each.instance_state,
        )
        for each in fires_between(db, view.id, first=first, last=last, limit=MOST_FIRES + 1)
    ]
    held = _held(view)
    left = MOST_FIRES + 1 - len(known)
    coming: Sequence[CalendarFire] = ()
    if held is None:
        # What the ledger has of later than now was fired by a clock that is ahead of ours.
        since = max([first, now + _SECOND, *(each.fire_time + _SECOND for each in known)])
        try:
            times = _coming(view, since, last - _SECOND, zone=zone)
            coming = [CalendarFire(fire_time=each) for each in islice(times, left)]
        except ScheduleFaultError as error:
            held = str(error)
    fires = [*known, *coming]
    return CalendarRow(
        view=view,
        fires=tuple(fires[:MOST_FIRES]),
        held=held,
        is_cut=len(fires) > MOST_FIRES,
    )


def _coming(
    view: ScheduleView, first: datetime, last: datetime, *, zone: ZoneInfo
) -> Iterator[datetime]:
    timetable = timetable_of(as_schedule(view), zone=zone)
    return timetable.between(first, last) if first <= last else iter(())


def _held(view: ScheduleView) -> str | None:
    if view.release_state != ReleaseState.ONLINE:
        return "OFFLINE"
    if view.definition_name is None:
        return "its definition is gone"
    return None if view.definition_is_online else "its definition is OFFLINE"
