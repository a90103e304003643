"""Previews: the next fires of stored schedules or of a cron line, before they happen.

Nothing is written.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, repeat
from typing import Final
from zoneinfo import ZoneInfo

from common.config import cluster_zone
from common.cron import MissingTime, RepeatedTime, Timetable
from common.firing import ScheduleFaultError, plan_fires, timetable_of
from common.model.rights import Action
from common.model.schedules import FireOutcome, Schedule
from common.model.states import ReleaseState
from common.store.people.rights import Thing
from common.store.people.schedule_views import ScheduleView, schedules
from operations.coming_fires import ClockChange, ComingFire, clock_changes, coming
from operations.errors import ForbiddenError
from operations.rights import seen
from operations.session import Session, operation
from operations.stored_schedules import NO_END, as_schedule, schedules_of, schedules_with_ids
from operations.times import read_moment, stored_name

MAX_OVERDUE: Final = 100_000
"""The limit for counting overdue fires in a preview; at least one is counted per schedule."""
LINE_ID: Final = 0
"""The id of the one schedule of a preview of a cron line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """The schedules to preview: stored ones in `views`, or the `line` of a mere cron line.

    `faults` are those of schedules that can't fire; all others have a timetable, by id. `zone` is
    the cluster's, or that of the line.
    """

    views: tuple[ScheduleView, ...] = ()
    line: Schedule | None = None
    zone: ZoneInfo
    timetables: Mapping[int, Timetable]
    faults: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """Fires of an ONLINE schedule that are due, with the outcomes that a master would give now."""

    schedule_id: int
    since: datetime
    outcomes: Mapping[FireOutcome, int]

    @property
    def number(self) -> int:
        """The number of counted fires; counting ends at a limit (`MAX_OVERDUE`)."""
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Fires in the order of their times, and clock changes, each with the id of its schedule.

    `overdue` is empty for a preview from another time than now.
    """

    fires: tuple[tuple[int, ComingFire], ...]
    clock_changes: tuple[tuple[int, ClockChange], ...]
    overdue: tuple[Overdue, ...]


@operation
def of_target(session: Session, target: str) -> Previewed:
    """The schedule with an id, or those of a definition."""
    with session.engine.connect() as db:
        # A name is for the owner of the database alone, as an id that may be a name is.
        if not session.principal.owns_database:
            raise ForbiddenError("only the command line previews by name, at the database itself")
        views = schedules_of(db, session.principal, target)
    return of_views(views, zone=cluster_zone(session.config))


def of_schedule(session: Session, schedule_id: int) -> Previewed:
    """The schedule with this id."""
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.SCHEDULE, schedule_id)
        views = schedules_with_ids(db, [schedule_id])
    return of_views(views, zone=cluster_zone(session.config))


def of_definition(session: Session, definition_id: int) -> Previewed:
    """The schedules of the definition with this id, which may have none."""
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.DEFINITION, definition_id)
        views = schedules(db, definition_id=definition_id)
    return of_views(views, zone=cluster_zone(session.config))


def of_views(views: Sequence[ScheduleView], *, zone: ZoneInfo) -> Previewed:
    """Stored schedules; those that name no zone are read in `zone`, the cluster's."""
    timetables: dict[int, Timetable] = {}
    faults: dict[int, str] = {}
    for view in views:
        try:
            timetables[view.id] = timetable_of(as_schedule(view), zone=zone)
        except ScheduleFaultError as error:
            faults[view.id] = str(error)
    return Previewed(views=tuple(views), zone=zone, timetables=timetables, faults=faults)


def of_line(
    cron: str,
    *,
    zone: ZoneInfo,
    missing: MissingTime = MissingTime.SHIFT,
    repeated: RepeatedTime = RepeatedTime.FIRST,
) -> Previewed:
    """A cron line as if a schedule without an end had it."""
    line = Schedule(
        id=LINE_ID,
        process_definition_id=0,
        definition_name=None,
        definition_is_online=False,
        crontab=cron,
        timezone_id=stored_name(zone),
        missing_time=missing.value,
        repeated_time=repeated.value,
        start_time=datetime(1970, 1, 1, tzinfo=UTC),
        end_time=NO_END,
    )
    timetables = {LINE_ID: timetable_of(line, zone=zone)}
    return Previewed(line=line, zone=zone, timetables=timetables, faults={})


def preview(previewed: Previewed, *, after: str | None, count: int, now: datetime) -> Preview:
    """The next `count` fires, and the clock changes among them.

    `after` is a text, read in the zone of each schedule; None is now.
    """
    timetables = previewed.timetables
    since = {
        number: now if after is None else read_moment(after, each.zone, field="after")
        for number, each in timetables.items()
    }
    fires = _merged(timetables, since, count)
    last = fires[-1][1].fire_time if len(fires) == count else None
    return Preview(
        fires=tuple(fires),
        clock_changes=tuple(
            (number, change)
            for number, each in timetables.items()
            for change in clock_changes(each, since[number], last)
        ),
        overdue=() if after is not None else tuple(_overdue(previewed, now)),
    )


def _overdue(previewed: Previewed, now: datetime) -> Iterator[Overdue]:
    left = MAX_OVERDUE
    for view in previewed.views:
        is_online = view.release_state == ReleaseState.ONLINE and view.fault is None
        if not is_online or view.id not in previewed.timetables:
            continue
        plan = plan_fires(as_schedule(view), now=now, zone=previewed.zone, limit=max(left, 1))
        left -= len(plan.fires)
        if plan.fires:
            yield Overdue(
                schedule_id=view.id,
                since=plan.fires[0].fire_time,
                outcomes=Counter(fire.outcome for fire in plan.fires),
            )


def _merged(
    timetables: Mapping[int, Timetable], since: Mapping[int, datetime], count: int
) -> Sequence[tuple[int, ComingFire]]:
    merged = heapq.merge(
        *(zip(repeat(number), coming(each, since[number])) for number, each in timetables.items()),
        key=lambda pair: (pair[1].fire_time, pair[0]),
    )
    return list(islice(merged, count))
