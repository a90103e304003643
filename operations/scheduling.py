"""Schedules: made, changed, brought ONLINE and OFFLINE, deleted and listed, with their ledger.

Each function is one transaction: all of it is written or nothing. Adds the word *settings*: the
columns of a schedule that people choose, before they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo

from common.cron import Cron, CronError, MissingTime, RepeatedTime, Timetable
from common.errors import NotAllowedError
from common.firing import ScheduleFaultError, timetable_of
from common.model.alerts import warning_group_of
from common.model.rights import Action
from common.model.schedules import FireOutcome, MisfirePolicy, Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ReleaseState,
    WarningType,
)
from common.store.people import schedule_requests as store
from common.store.people.rights import Thing
from common.store.people.schedule_views import FireView, ScheduleView, fire_counts, schedules
from common.store.people.schedule_views import fires as stored_fires
from operations.coming_fires import ComingFire, coming
from operations.errors import ForbiddenError, UsageError
from operations.lookup import (
    definition_given,
    definition_named,
    environment_named,
    worker_group_named,
)
from operations.rights import change, seen
from operations.schedule_checks import check_released, check_schedule, check_window, too_often
from operations.session import Session, operation
from operations.start_params import stored_params
from operations.stored_schedules import (
    NO_END,
    as_schedule,
    id_in,
    next_plan,
    schedules_of,
    schedules_with_ids,
    zone_of_schedule,
)
from operations.tags import changed_meanwhile, hashed, names
from operations.times import cluster_zone, read_moment, read_seconds, stored_name

if TYPE_CHECKING:
    from common.config import Config
    from common.store.connect import Connection

NO_ENVIRONMENT = "none"
"""The word that takes an environment away; none has that name."""

_NEXT_FIRES = 5
_CHANGES = ("schedule.create", "schedule.edit", "schedule.online", "schedule.offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The settings that are given; None leaves a setting as it is.

    `first` and `last` are texts, read in the schedule's zone: `now` and `never` are words there.
    `deadline` is in seconds, 0 for none; `start_params` empty takes all of them away. `environment`
    is a name or a code, and `NO_ENVIRONMENT` takes it away.
    """

    cron: str | None = None
    zone: ZoneInfo | None = None
    first: str | None = None
    last: str | None = None
    misfire_policy: MisfirePolicy | None = None
    misfire_limit: int | None = None
    deadline: int | None = None
    missing_time: MissingTime | None = None
    repeated_time: RepeatedTime | None = None
    execution_type: ExecutionType | Literal["definition"] | None = None
    failure_strategy: FailureStrategy | None = None
    worker_group: str | None = None
    environment: str | int | None = None
    priority: Priority | None = None
    start_params: Mapping[str, str] | None = None
    warning_type: WarningType | None = None


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


def read_cron(text: str) -> str:
    """The line with single blanks between its fields; raises a `UsageError` of the field `cron`."""
    try:
        Cron.parse(text)
    except CronError as error:
        raise UsageError("cron", str(error)) from error
    return " ".join(text.split())


def read_deadline(text: str) -> int:
    """Seconds of a span, 0 for `none`; raises a `UsageError` of the field `deadline`."""
    return 0 if text == "none" else read_seconds(text, field="deadline")


@operation
def create(
    session: Session,
    definition: str | int,
    settings: ScheduleSettings,
    *,
    online: bool,
    now: datetime,
) -> SavedSchedule:
    """Make a schedule of a definition; `online` needs it and its sub processes to be ONLINE.

    The settings need a cron line. By default the zone is the cluster's, the window begins now and
    has no end, and all else is as the table has it.
    """
    if settings.cron is None:
        raise UsageError("cron", "a schedule needs a cron line")
    zone = settings.zone or cluster_zone(session.config)
    columns = {
        "timezone_id": stored_name(zone),
        "missing_time": MissingTime.SHIFT.value,
        "repeated_time": RepeatedTime.FIRST.value,
        "start_time": _start("now", zone, now),
        "end_time": NO_END,
        "user_id": session.principal.user_id,
        **_columns(settings, zone=zone, now=now),
    }
    with change(session, "schedule.create", "schedule", object_name=str(definition)) as asked:
        db = asked.db
        row = definition_given(db, session.principal, Action.AUTHOR, definition)
        asked.project_id = row.project_id
        asked.object_name = row.name
        columns |= _named_columns(db, settings) | _warning_group(settings, given=0)
        _check_columns(session.config, columns, zone)
        _check_pace(db, session, columns, row.id)
        if online:
            check_released(db, [row.id])
            columns["release_state"] = int(ReleaseState.ONLINE)
        made = store.create_schedule(db, process_definition_id=row.id, values=columns, at=now)
        asked.object_id = made
        views = schedules(db, definition_id=row.id)
    view = next(each for each in views if each.id == made)
    return _saved(session, view, now=now, others=[each.id for each in views if each.id != made])


@operation
def edit(
    session: Session,
    schedule_id: int,
    settings: ScheduleSettings,
    *,
    now: datetime,
    expected: str | None = None,
) -> SavedSchedule:
    """Change a schedule that is OFFLINE. Another zone leaves the instants of its window alone.

    `expected` is the tag that it has to have (`ChangedMeanwhileError`).
    """
    with change(session, "schedule.edit", "schedule", object_id=schedule_id) as asked:
        db = asked.db
        asked.project_id = seen(
            db, session.principal, Action.AUTHOR, Thing.SCHEDULE, schedule_id
        ).project_id
        store.lock_schedules(db, [schedule_id])
        (view,) = schedules_with_ids(db, [schedule_id])
        if expected is not None:
            _check_tag(db, view, expected)
        zone = settings.zone or zone_of_schedule(view, cluster_zone(session.config))
        columns = _columns(settings, zone=zone, now=now) | _named_columns(db, settings)
        if not columns:
            raise UsageError(None, "say what is to be changed; see --help")
        if view.release_state != ReleaseState.OFFLINE:
            raise NotAllowedError(
                f"schedule {schedule_id} is ONLINE and can't be changed; take it off first:"
                f" orcaflow schedule offline {schedule_id}"
            )
        _check_columns(session.config, _columns_of(view) | columns, zone)
        _check_pace(db, session, columns, view.process_definition_id)
        columns |= _warning_group(settings, given=view.warning_group_id)
        store.edit_schedule(db, schedule_id, values=columns, at=now)
        (view,) = schedules_with_ids(db, [schedule_id])
    return _saved(session, view, now=now)


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
    zone = cluster_zone(session.config)
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
        found = _chosen(db, ids, definition_name)
        if wanted is ReleaseState.ONLINE:
            check_released(db, [view.process_definition_id for view in found])
        chosen = [view.id for view in found]
        store.lock_schedules(db, chosen)
        found = schedules_with_ids(db, chosen)
        for view in found if wanted is ReleaseState.ONLINE else ():
            try:
                check_schedule(
                    as_schedule(view),
                    zone=zone,
                    limit_bytes=session.config.command.param_limit_bytes,
                )
            except ScheduleFaultError as error:
                raise NotAllowedError(
                    f"schedule {view.id} can't fire: {error} (orcaflow schedule edit {view.id})"
                ) from error
            reason = too_often(
                db, session.principal, session.config.api, view.crontab, view.process_definition_id
            )
            if reason is not None:
                raise ForbiddenError(f"schedule {view.id} can't be brought ONLINE: {reason}")
        changed = store.release_schedules(db, chosen, wanted=wanted, at=now)
    return ReleasedSchedules(views=tuple(found), changed=changed)


def _chosen(
    db: Connection, ids: Sequence[int] | None, definition_name: str | None
) -> list[ScheduleView]:
    if ids:
        return schedules_with_ids(db, ids)
    if definition_name is None:
        return schedules(db)
    return schedules_of(db, definition_name, by_name=True)


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
        if definition_name is None:
            return schedules(db)
        return schedules(db, definition_id=definition_named(db, definition_name).id)


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
            definition = definition_named(db, target)
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
        **{key: value for key, value in _columns_of(view).items() if key != "start_params"},
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


def _columns(settings: ScheduleSettings, *, zone: ZoneInfo, now: datetime) -> dict[str, Any]:
    """The columns of the settings that are given, but for those that name rows."""
    columns: dict[str, Any] = {}
    if settings.misfire_policy is not None:
        columns["misfire_policy"] = settings.misfire_policy.value
    if settings.misfire_limit is not None:
        columns["misfire_limit"] = settings.misfire_limit
    if settings.deadline is not None:
        columns["deadline"] = settings.deadline
    if settings.missing_time is not None:
        columns["missing_time"] = settings.missing_time.value
    if settings.repeated_time is not None:
        columns["repeated_time"] = settings.repeated_time.value
    if settings.execution_type is not None:
        own = settings.execution_type
        columns["execution_type"] = None if own == "definition" else int(own)
    if settings.failure_strategy is not None:
        columns["failure_strategy"] = int(settings.failure_strategy)
    if settings.priority is not None:
        columns["process_instance_priority"] = int(settings.priority)
    if settings.warning_type is not None:
        columns["warning_type"] = int(settings.warning_type)
    if settings.start_params is not None:
        given = settings.start_params
        columns["start_params"] = stored_params(given) if given else None
    if settings.cron is not None:
        columns["crontab"] = settings.cron
    if settings.zone is not None:
        columns["timezone_id"] = stored_name(settings.zone)
    if settings.first is not None:
        columns["start_time"] = _start(settings.first, zone, now)
    if settings.last is not None:
        columns["end_time"] = _end(settings.last, zone)
    return columns


def _start(text: str, zone: ZoneInfo, now: datetime) -> datetime:
    if text.strip() == "now":
        return now.replace(microsecond=0)
    return read_moment(text, zone, field="from")


def _end(text: str, zone: ZoneInfo) -> datetime:
    if text.strip() == "never":
        return NO_END
    return min(read_moment(text, zone, field="to", ends_day=True), NO_END)


def _named_columns(db: Connection, settings: ScheduleSettings) -> dict[str, Any]:
    """The columns that name a worker group and an environment, which have to be there."""
    columns: dict[str, Any] = {}
    if settings.worker_group is not None:
        columns["worker_group_id"] = worker_group_named(db, settings.worker_group)
    wanted = settings.environment
    if wanted is not None:
        is_none = wanted == NO_ENVIRONMENT
        columns["environment_code"] = -1 if is_none else environment_named(db, wanted)
    return columns


def _warning_group(settings: ScheduleSettings, *, given: int) -> dict[str, Any]:
    """The group that hears of the runs' ends, where a row names none and somebody is to hear."""
    if settings.warning_type is None or given:
        return {}
    return {"warning_group_id": warning_group_of(settings.warning_type)}


def _check_columns(config: Config, columns: Mapping[str, Any], zone: ZoneInfo) -> None:
    """Refuse columns by which a schedule would never fire."""
    check_window(columns["start_time"], columns["end_time"], zone=zone)
    kind = columns.get("execution_type")
    made = Schedule(
        id=0,
        process_definition_id=0,
        definition_name=None,
        definition_is_online=False,
        crontab=columns["crontab"],
        timezone_id=columns["timezone_id"],
        missing_time=columns["missing_time"],
        repeated_time=columns["repeated_time"],
        start_time=columns["start_time"],
        end_time=columns["end_time"],
        execution_type=None if kind is None else ExecutionType(kind),
        start_params=columns.get("start_params"),
        environment_code=columns.get("environment_code", -1),
    )
    check_schedule(made, zone=zone, limit_bytes=config.command.param_limit_bytes)


def _check_pace(
    db: Connection, session: Session, columns: Mapping[str, Any], definition_id: int
) -> None:
    """Refuse a line that fires more often than schedules of this role may."""
    if "crontab" in columns:
        reason = too_often(
            db, session.principal, session.config.api, columns["crontab"], definition_id
        )
        if reason is not None:
            raise UsageError("cron", reason)


def _columns_of(view: ScheduleView) -> dict[str, Any]:
    """The columns that `_check_columns` looks at, as they are stored."""
    return {
        "crontab": view.crontab,
        "timezone_id": view.timezone_id,
        "missing_time": view.missing_time,
        "repeated_time": view.repeated_time,
        "start_time": view.start_time,
        "end_time": view.end_time,
        "execution_type": view.execution_type,
        "start_params": view.start_params,
        "environment_code": view.environment_code,
    }
