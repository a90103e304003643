"""Schedules: made, changed, brought ONLINE and OFFLINE, deleted and listed, with their ledger.

Each function is one transaction: all of it is written or nothing. Their settings are read and
checked in `operations.schedule_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from common.config import cluster_zone
from common.cron import Timetable
from common.errors import NotAllowedError
from common.firing import ScheduleFaultError, timetable_of
from common.model.rights import Action, Principal
from common.model.schedules import FireOutcome
from common.model.states import (
    ReleaseState,
)
from common.store.people import schedule_requests as store
from common.store.people.definitions import DefinitionRow, definition_by_id
from common.store.people.rights import Thing
from common.store.people.schedule_views import FireView, ScheduleView, fire_counts, schedules
from common.store.people.schedule_views import fires as stored_fires
from operations.coming_fires import ComingFire, coming
from operations.errors import ForbiddenError, UsageError
from operations.lookup import (
    definition_given,
    definition_named,
)
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import Change, change, seen
from operations.schedule_checks import check_released, check_schedule, too_often
from operations.schedule_settings import (
    ScheduleSettings,
    check_columns,
    check_pace,
    columns_of,
    given_columns,
    named_columns,
    new_columns,
    warning_group,
)
from operations.session import Session, operation
from operations.start_params import checked_params, marked_params, stored_params
from operations.stored_schedules import (
    as_schedule,
    id_in,
    next_plan,
    schedules_of,
    schedules_with_ids,
    zone_of_schedule,
)
from operations.tags import changed_meanwhile, hashed, names

if TYPE_CHECKING:
    from common.store.connect import Connection

_NEXT_FIRES = 5
_CHANGES = ("schedule.create", "schedule.edit", "schedule.online", "schedule.offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSchedule:
    """A schedule that was made or changed; `next_fire` is None if it never fires again.

    `others` are the ids of the definition's other schedules, after a new one was made.
    """

    view: ScheduleView
    timetable: Timetable
    next_fire: ComingFire | None
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDetails:
    """A schedule with its next fires, its fault if it has one, and its fires by outcome."""

    view: ScheduleView
    fault: str | None
    next_fires: tuple[ComingFire, ...]
    fire_counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedSchedules:
    """The chosen schedules as they were found, and the ids of those whose state has changed."""

    views: tuple[ScheduleView, ...]
    changed: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Fires, the newest first, and the zone of each schedule; the cluster's for one deleted."""

    fires: tuple[FireView, ...]
    zones: Mapping[int, ZoneInfo]


@operation
def create(
    session: Session,
    definition: str | int,
    settings: ScheduleSettings,
    *,
    online: bool,
    now: datetime,
    once: Once | None = None,
) -> SavedSchedule:
    """Make a schedule of a definition; `online` needs it and its sub processes to be ONLINE.

    The settings need a cron line. By default the zone is the cluster's, the window begins now and
    has no end, and all else is as the table has it. A request that was carried out before (`once`)
    makes nothing, and has the schedule of then.
    """
    if settings.cron is None:
        raise UsageError("cron", "a schedule needs a cron line")
    zone = settings.zone or cluster_zone(session.config)
    columns = {
        **new_columns(zone=zone, now=now),
        "user_id": session.principal.user_id,
        **given_columns(settings, zone=zone, now=now),
    }
    with change(session, "schedule.create", "schedule", object_name=str(definition)) as asked:
        db = asked.db
        row = definition_given(db, session.principal, Action.AUTHOR, definition)
        asked.project_id = row.project_id
        asked.object_name = row.name
        answered = None if once is None else first_answer(db, session.principal, once)
        if answered is not None:
            asked.detail, made = "as before", answered
            # Whoever made it may have deleted it since.
            schedules_with_ids(db, [made])
        else:
            columns |= _start_params(settings, row, stored=None)
            made = _created(asked, session, row.id, settings, columns, online=online, now=now)
            if once is not None:
                keep_answer(db, session.principal, once, made)
        asked.object_id = made
        views = schedules(db, definition_id=row.id)
    view = next(each for each in views if each.id == made)
    return _saved(session, view, now=now, others=[each.id for each in views if each.id != made])


def _created(
    asked: Change,
    session: Session,
    definition_id: int,
    settings: ScheduleSettings,
    columns: dict[str, Any],
    *,
    online: bool,
    now: datetime,
) -> int:
    """Check and store a new schedule; its id. `columns` lack those settings that name rows."""
    db = asked.db
    columns |= named_columns(db, settings, definition_id) | warning_group(settings, given=0)
    check_columns(session.config, columns, settings.zone or cluster_zone(session.config))
    check_pace(db, session, columns, definition_id)
    if online:
        check_released(db, [definition_id])
        columns["release_state"] = int(ReleaseState.ONLINE)
    return store.create_schedule(db, process_definition_id=definition_id, values=columns, at=now)


def _start_params(
    settings: ScheduleSettings, definition: DefinitionRow | None, *, stored: str | None
) -> dict[str, str | None]:
    """Return the column of start-up parameters, with masks replaced by stored secrets."""
    if not settings.start_params:
        return {}
    params = checked_params(settings.start_params, definition, stored=stored)
    return {"start_params": stored_params(marked_params(params, definition)) if params else None}


@operation
def edit(
    session: Session,
    schedule_id: int,
    settings: ScheduleSettings,
    *,
    now: datetime,
    expected: str | None = None,
    online: bool = False,
) -> SavedSchedule:
    """Change a schedule that is OFFLINE. Another zone leaves the instants of its window alone.

    With `online` it is ONLINE afterwards, and may be so before: a change of one that fires leaves
    it ONLINE, or changes nothing. `expected` is the tag that it has to have
    (`ChangedMeanwhileError`).
    """
    with change(session, "schedule.edit", "schedule", object_id=schedule_id) as asked:
        db = asked.db
        asked.project_id = seen(
            db, session.principal, Action.AUTHOR, Thing.SCHEDULE, schedule_id
        ).project_id
        if online:
            # Definitions are locked before schedules.
            (view,) = schedules_with_ids(db, [schedule_id])
            check_released(db, [view.process_definition_id])
        store.lock_schedules(db, [schedule_id])
        (view,) = schedules_with_ids(db, [schedule_id])
        if expected is not None:
            _check_tag(db, view, expected)
        zone = settings.zone or zone_of_schedule(view, cluster_zone(session.config))
        columns = given_columns(settings, zone=zone, now=now)
        columns |= named_columns(db, settings, view.process_definition_id)
        columns |= _start_params(
            settings,
            definition_by_id(db, view.process_definition_id),
            stored=view.start_params,
        )
        if not columns:
            raise UsageError(None, "say what is to be changed; see --help")
        state = ReleaseState(view.release_state)
        if state is not ReleaseState.OFFLINE and not online:
            raise NotAllowedError(
                f"schedule {schedule_id} is ONLINE and can't be changed; change it with --online,"
                f" which keeps it ONLINE, or take it off first:"
                f" orcaflow schedule offline {schedule_id}"
            )
        check_columns(session.config, columns_of(view) | columns, zone)
        check_pace(db, session, columns, view.process_definition_id)
        columns |= warning_group(settings, given=view.warning_group_id)
        if not store.edit_schedule(db, schedule_id, values=columns, at=now, state=state):
            raise NotAllowedError(f"schedule {schedule_id} has just changed; read it again")
        (view,) = schedules_with_ids(db, [schedule_id])
        if online:
            _check_online(db, session, [view])
            if store.release_schedules(db, [schedule_id], wanted=ReleaseState.ONLINE, at=now):
                asked.detail = "brought ONLINE"
            (view,) = schedules_with_ids(db, [schedule_id])
    return _saved(session, view, now=now)


def _check_online(db: Connection, session: Session, views: Sequence[ScheduleView]) -> None:
    """Raise for the first of these schedules that may not be ONLINE."""
    # Imported here because listing schedules does not need it.
    from operations.granted_schedules import check_schedules_granted

    zone, config = cluster_zone(session.config), session.config
    check_schedules_granted(db, views)
    for view in views:
        try:
            check_schedule(
                as_schedule(view), zone=zone, limit_bytes=config.command.param_limit_bytes
            )
        except ScheduleFaultError as error:
            raise NotAllowedError(
                f"schedule {view.id} can't fire: {error} (orcaflow schedule edit {view.id})"
            ) from error
        reason = too_often(
            db, session.principal, config.api, view.crontab, view.process_definition_id
        )
        if reason is not None:
            raise ForbiddenError(f"schedule {view.id} can't be brought ONLINE: {reason}")


@operation
def set_release_state(
    session: Session,
    wanted: ReleaseState,
    *,
    ids: Sequence[int] | None = None,
    definition_name: str | None = None,
    now: datetime,
) -> ReleasedSchedules:
    """Bring schedules ONLINE or OFFLINE: those with these ids, else of a definition, else all.

    Nothing changes if one of them can't be brought ONLINE: `NotAllowedError` names it.
    """
    with change(
        session,
        f"schedule.{wanted.name.lower()}",
        "schedule",
        object_id=ids[0] if ids is not None and len(ids) == 1 else None,
        object_name=", ".join(map(str, ids)) if ids else definition_name,
    ) as made:
        db = made.db
        for number in ids or ():
            made.project_id = seen(
                db, session.principal, Action.AUTHOR, Thing.SCHEDULE, number
            ).project_id
        found = _chosen(db, session.principal, ids, definition_name)
        if wanted is ReleaseState.ONLINE:
            check_released(db, [view.process_definition_id for view in found])
        chosen = [view.id for view in found]
        store.lock_schedules(db, chosen)
        found = schedules_with_ids(db, chosen)
        if wanted is ReleaseState.ONLINE:
            _check_online(db, session, found)
        changed = store.release_schedules(db, chosen, wanted=wanted, at=now)
    return ReleasedSchedules(views=tuple(found), changed=changed)


def _chosen(
    db: Connection, principal: Principal, ids: Sequence[int] | None, definition_name: str | None
) -> list[ScheduleView]:
    if ids:
        return schedules_with_ids(db, ids)
    if definition_name is None:
        return schedules(db, principal=principal)
    return schedules_of(db, principal, definition_name, by_name=True)


@operation
def delete(
    session: Session, ids: Sequence[int], *, expected: str | None = None
) -> list[ScheduleView]:
    """Delete schedules that are OFFLINE, all of these or none; their fires stay in the ledger.

    `expected` is the tag that each has to have (`ChangedMeanwhileError`).
    """
    listed = ", ".join(map(str, ids))
    with change(session, "schedule.delete", "schedule", object_name=listed) as asked:
        db = asked.db
        for number in ids:
            asked.project_id = seen(
                db, session.principal, Action.AUTHOR, Thing.SCHEDULE, number
            ).project_id
        store.lock_schedules(db, ids)
        found = schedules_with_ids(db, ids)
        for view in found:
            if expected is not None:
                _check_tag(db, view, expected)
            if view.release_state != ReleaseState.OFFLINE:
                raise NotAllowedError(
                    f"schedule {view.id} is ONLINE and can't be deleted; take it off first:"
                    f" orcaflow schedule offline {view.id}"
                )
        store.delete_schedules(db, ids)
    return found


def page(
    session: Session, *, definition_id: int | None = None, after: int = 0, limit: int
) -> list[ScheduleView]:
    """The schedules that the principal sees, by id, from the one after `after` on."""
    with session.engine.connect() as db:
        return schedules(
            db,
            definition_id=definition_id,
            principal=session.principal,
            after=after,
            limit=limit,
        )


@operation
def find(session: Session, *, definition_name: str | None = None) -> list[ScheduleView]:
    """All schedules, or those of a definition."""
    with session.engine.connect() as db:
        number = (
            None
            if definition_name is None
            else definition_named(db, session.principal, definition_name).id
        )
        return schedules(db, definition_id=number, principal=session.principal)


@operation
def details(session: Session, schedule_id: int, *, now: datetime) -> ScheduleDetails:
    """One schedule with its next five fires, of which an OFFLINE or faulty one has none."""
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.SCHEDULE, schedule_id)
        (view,) = schedules_with_ids(db, [schedule_id])
        counts = fire_counts(db, schedule_id)
    zone = cluster_zone(session.config)
    fault = next_plan(view, zone=zone).fault
    next_fires: tuple[ComingFire, ...] = ()
    if view.release_state == ReleaseState.ONLINE and fault is None:
        try:
            timetable = timetable_of(as_schedule(view), zone=zone)
            next_fires = tuple(islice(coming(timetable, now), _NEXT_FIRES))
        except ScheduleFaultError as error:
            fault = str(error)
    return ScheduleDetails(view=view, fault=fault, next_fires=next_fires, fire_counts=counts)


@operation
def fires(
    session: Session,
    target: str,
    *,
    outcomes: Sequence[FireOutcome] | None = None,
    limit: int,
    behind: int | None = None,
) -> Ledger:
    """The newest fires of a schedule, be it deleted, or of a definition's schedules.

    `behind`: only those of a schedule that stand behind the fire with this id.
    """
    words = None if not outcomes else [each.value for each in outcomes]
    with session.engine.connect() as db:
        number = id_in(target)
        if number is not None:
            seen(db, session.principal, Action.VIEW, Thing.SCHEDULE, number)
        # The fires of a schedule that has been deleted are still there.
        if number is not None and stored_fires(db, schedule_id=number, limit=1):
            found = stored_fires(db, schedule_id=number, outcomes=words, limit=limit, behind=behind)
        elif number is not None:
            schedules_with_ids(db, [number])
            found = []
        else:
            definition = definition_named(db, session.principal, target, takes_ids=False)
            found = stored_fires(db, definition_id=definition.id, outcomes=words, limit=limit)
        return _ledger(session, db, found)


def definition_fires(
    session: Session,
    definition_id: int,
    *,
    outcomes: Sequence[FireOutcome] | None = None,
    limit: int,
    behind: int | None = None,
) -> Ledger:
    """The newest fires of the schedules of a definition, those that are deleted too."""
    words = None if not outcomes else [each.value for each in outcomes]
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.DEFINITION, definition_id)
        found = stored_fires(
            db, definition_id=definition_id, outcomes=words, limit=limit, behind=behind
        )
        return _ledger(session, db, found)


def _ledger(session: Session, db: Connection, found: Sequence[FireView]) -> Ledger:
    known = schedules(db, ids={each.schedule_id for each in found})
    cluster = cluster_zone(session.config)
    zones = dict.fromkeys((each.schedule_id for each in found), cluster)
    zones |= {each.id: zone_of_schedule(each, cluster) for each in known}
    return Ledger(fires=tuple(found), zones=zones)


def schedule_tag(view: ScheduleView) -> str:
    """The tag of a schedule as it is now: another one after each change, and no secret in it."""
    settings = {
        "id": view.id,
        "definition": view.process_definition_id,
        # Of parameters it says that they were changed, and nothing that one could guess them by.
        "changed": view.update_time,
        **{key: value for key, value in columns_of(view).items() if key != "start_params"},
    }
    return f"s{view.id}-{hashed(settings)}"


def _check_tag(db: Connection, view: ScheduleView, expected: str) -> None:
    now = schedule_tag(view)
    if not names(expected, now):
        raise changed_meanwhile(
            db,
            f"schedule {view.id} is not as it was when you read it",
            "schedule",
            view.id,
            actions=_CHANGES,
            update_time=view.update_time,
            tag=now,
        )


def _saved(
    session: Session, view: ScheduleView, *, now: datetime, others: Sequence[int] = ()
) -> SavedSchedule:
    timetable = timetable_of(as_schedule(view), zone=cluster_zone(session.config))
    return SavedSchedule(
        view=view,
        timetable=timetable,
        next_fire=next(coming(timetable, now), None),
        others=tuple(others),
    )
