"""Drafts of schedules: settings that are checked and looked at before they are stored.

Nothing is written. A draft takes the right to store it, and is refused for what its storing would
be refused for, but for the state of the schedule and of its definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from common.config import cluster_zone
from common.firing import timetable_of
from common.model.rights import Action
from common.model.schedules import Schedule
from common.model.states import ReleaseState
from common.store.people.definitions import DefinitionRow
from common.store.people.rights import Thing
from common.store.people.schedule_views import ScheduleView
from operations.lookup import definition_given
from operations.previewing import LINE_ID, Previewed
from operations.rights import seen
from operations.schedule_settings import (
    ScheduleSettings,
    check_columns,
    check_pace,
    columns_of,
    given_columns,
    named_columns,
    new_columns,
)
from operations.session import Session
from operations.stored_schedules import schedules_with_ids, zone_of_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schedule to make of a definition, or one to change; `view` is None for a new one."""

    definition_id: int
    definition_name: str | None
    definition_is_online: bool
    view: ScheduleView | None = None


def new_draft(session: Session, definition_id: int) -> Draft:
    """A schedule to make of a definition, which the principal is an author of."""
    with session.engine.connect() as db:
        found = definition_given(db, session.principal, Action.AUTHOR, definition_id)
    return Draft(
        definition_id=found.id,
        definition_name=found.name,
        definition_is_online=_is_online(found),
    )


def draft_of(session: Session, schedule_id: int) -> Draft:
    """A schedule to change, which the principal may do."""
    with session.engine.connect() as db:
        seen(db, session.principal, Action.AUTHOR, Thing.SCHEDULE, schedule_id)
        (view,) = schedules_with_ids(db, [schedule_id])
    return Draft(
        definition_id=view.process_definition_id,
        definition_name=view.definition_name,
        definition_is_online=view.definition_is_online,
        view=view,
    )


def look_ahead(
    session: Session, draft: Draft, settings: ScheduleSettings, *, now: datetime
) -> Previewed:
    """The schedule as it would fire with these settings; a `UsageError` names one that is wrong."""
    stored = draft.view
    cluster = cluster_zone(session.config)
    zone = settings.zone or (cluster if stored is None else zone_of_schedule(stored, cluster))
    columns = (
        new_columns(zone=zone, now=now) if stored is None else columns_of(stored)
    ) | given_columns(settings, zone=zone, now=now)
    with session.engine.connect() as db:
        columns |= named_columns(db, settings, draft.definition_id)
        check_columns(session.config, columns, zone)
        # The pace of a line that stays is asked about no more than it is by its storing.
        check_pace(
            db,
            session,
            columns if settings.cron is not None else {},
            draft.definition_id,
        )
    line = Schedule(
        id=LINE_ID,
        process_definition_id=draft.definition_id,
        definition_name=draft.definition_name,
        definition_is_online=draft.definition_is_online,
        **{
            name: columns[name]
            for name in (
                *("crontab", "timezone_id", "missing_time", "repeated_time"),
                *("start_time", "end_time"),
            )
        },
    )
    timetables = {LINE_ID: timetable_of(line, zone=zone)}
    return Previewed(line=line, zone=zone, timetables=timetables, faults={})


def _is_online(definition: DefinitionRow) -> bool:
    return definition.usable and definition.release_state is ReleaseState.ONLINE
