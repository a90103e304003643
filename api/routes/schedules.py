"""Schedules and their fires: listed, shown, made, changed, brought ONLINE and OFFLINE, deleted."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from fastapi import Query, Response

from api import cursors, schedule_answers
from api.answers import Released
from api.asking import Asked, Condition, needed
from api.cursors import After, Limit
from api.route import Id, Route, delete, get, patch, post
from api.schedule_answers import (
    DeletedSchedules,
    FirePage,
    NewSchedule,
    Preview,
    ReleasedSchedules,
    ScheduleChange,
    ScheduleDetail,
    SchedulePage,
    ScheduleRelease,
    SchedulesRequest,
    SimulationRequest,
)
from common.clock import SystemClock
from common.config import cluster_zone
from common.cron import MissingTime, RepeatedTime
from common.model.schedules import FireOutcome, MisfirePolicy
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ReleaseState,
    WarningType,
)
from common.schedule_simulator import TooManyFiresError
from common.store.people.schedule_views import ScheduleView
from operations import previewing, scheduling, simulating
from operations.documents.schedules import (
    coming_row,
    deleted_row,
    details_document,
    fire_row,
    preview_document,
    released_rows,
    schedule_row,
)
from operations.documents.simulations import simulation_document
from operations.errors import UsageError
from operations.schedule_settings import ScheduleSettings, read_cron
from operations.scheduling import (
    Ledger,
    SavedSchedule,
    create,
    details,
    edit,
    fires,
    page,
    schedule_tag,
    set_release_state,
)
from operations.session import Session
from operations.times import read_zone

Code = TypeVar("Code", bound=IntEnum)

_clock = SystemClock()

Outcomes: TypeAlias = Annotated[
    list[FireOutcome] | None, Query(max_length=4, description="Only fires of these outcomes.")
]


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
    return {
        "items": [_row(session, each) for each in found],
        "next": cursors.next_of("schedules", [each.id for each in found], limit),
    }


def show_schedule(
    id: Id,  # noqa: A002  # The path's name.
    session: Asked,
    response: Response,
) -> dict[str, Any]:
    """Show a schedule with its next fires; its ETag is what a change of it names in `If-Match`."""
    found = details(session, id, now=_clock.now())
    response.headers["ETag"] = f'"{schedule_tag(found.view)}"'
    document = details_document(found, zone=cluster_zone(session.config))
    return document | {"definition_online": found.view.definition_is_online}


def list_fires(
    id: Id,  # noqa: A002
    session: Asked,
    outcome: Outcomes = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the fires of a schedule, the newest first."""
    return _fires(
        fires(session, str(id), outcomes=outcome, limit=limit, behind=_behind(after)),
        limit,
    )


def list_fires_of_definition(
    id: Id,  # noqa: A002
    session: Asked,
    outcome: Outcomes = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the fires of a definition's schedules, deleted ones too, the newest first."""
    found = scheduling.definition_fires(
        session, id, outcomes=outcome, limit=limit, behind=_behind(after)
    )
    return _fires(found, limit)


def preview(
    session: Asked,
    *,
    schedule_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    definition_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    cron: Annotated[str | None, Query(min_length=1, max_length=1000)] = None,
    zone: Annotated[str | None, Query(min_length=1, max_length=255)] = None,
    missing_time: Annotated[Literal["shift", "skip"] | None, Query()] = None,
    repeated_time: Annotated[Literal["first", "second", "both"] | None, Query()] = None,
    from_: Annotated[
        str | None,
        Query(alias="from", max_length=255, description="Fires after this, in the zone; else now."),
    ] = None,
    limit: Limit = 10,
) -> dict[str, Any]:
    """List the next fires of a schedule, of a definition's schedules, or of a mere cron line."""
    given = [each for each in (schedule_id, definition_id, cron) if each is not None]
    if len(given) != 1:
        raise UsageError(None, "give one of schedule_id, definition_id and cron")
    if cron is None and (zone or missing_time or repeated_time):
        raise UsageError(None, "zone, missing_time and repeated_time go with cron")
    if cron is not None:
        previewed = previewing.of_line(
            read_cron(cron),
            zone=cluster_zone(session.config) if zone is None else read_zone(zone),
            missing=MissingTime(missing_time or "shift"),
            repeated=RepeatedTime(repeated_time or "first"),
        )
    elif schedule_id is not None:
        previewed = previewing.of_schedule(session, schedule_id)
    else:
        previewed = previewing.of_definition(session, definition_id or 0)
    found = previewing.preview(previewed, after=from_, count=limit, now=_clock.now())
    document = preview_document(previewed, found)
    heads = [row | {"blocker": row["hindrance"]} for row in document["schedules"]]
    return {**document, "schedules": heads}


def simulate(given: SimulationRequest, session: Asked) -> dict[str, Any]:
    """Play schedules on a virtual clock: overlaps, queueing and misfires before they happen."""
    request = simulating.SimulationRequest(
        days=given.days,
        first=given.first,
        definition_id=given.definition_id,
        offline_too=given.offline_too,
        pessimistic=given.pessimistic,
        assumed=simulating.read_assumed(given.assume),
        slots=given.slots,
        outages=tuple(given.outages),
        max_fires=given.max_fires,
    )
    try:
        document = simulation_document(simulating.simulate(session, request, now=_clock.now()))
    except TooManyFiresError as error:
        raise UsageError("max_fires", str(error)) from error
    return {**document, "begin": document["from"], "end": document["to"]}


def online(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let a schedule fire from now on."""
    return _released(session, id, ReleaseState.ONLINE)


def offline(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let a schedule fire no more; what runs goes on."""
    return _released(session, id, ReleaseState.OFFLINE)


def make(given: NewSchedule, session: Asked, response: Response) -> dict[str, Any]:
    """Make a schedule of a definition."""
    saved = create(
        session, given.definition_id, _settings(given), online=given.online, now=_clock.now()
    )
    return _saved(session, saved, response)


def change(
    id: Id,  # noqa: A002
    given: ScheduleChange,
    session: Asked,
    response: Response,
    condition: Condition = None,
) -> dict[str, Any]:
    """Change a schedule that is OFFLINE and as you have read it; what is left out stays.

    With `online` it may be ONLINE too, and is ONLINE afterwards; if that fails, nothing changes.
    """
    saved = edit(
        session,
        id,
        _settings(given),
        now=_clock.now(),
        expected=needed(condition),
        online=given.online,
    )
    return _saved(session, saved, response)


def delete_one(id: Id, session: Asked, condition: Condition = None) -> dict[str, Any]:  # noqa: A002
    """Delete a schedule that is OFFLINE and as you have read it; its fires stay in the ledger."""
    (gone,) = scheduling.delete(session, [id], expected=needed(condition))
    return deleted_row(gone)


def release_all(given: ScheduleRelease, session: Asked) -> dict[str, Any]:
    """Bring several schedules ONLINE or OFFLINE, all or none."""
    wanted = ReleaseState[given.release_state]
    found = set_release_state(session, wanted, ids=given.ids, now=_clock.now())
    return {"items": released_rows(found, wanted)}


def delete_all(given: SchedulesRequest, session: Asked) -> dict[str, Any]:
    """Delete schedules that are OFFLINE, all or none; their fires stay in the ledger."""
    return {"items": [deleted_row(each) for each in scheduling.delete(session, given.ids)]}


def _settings(given: ScheduleChange) -> ScheduleSettings:
    misfire = given.misfire_policy
    return ScheduleSettings(
        cron=None if given.cron is None else read_cron(given.cron),
        zone=None if given.zone is None else read_zone(given.zone),
        first=given.first,
        last=given.last,
        misfire_policy=None if misfire is None else MisfirePolicy(misfire),
        misfire_limit=given.misfire_limit,
        deadline=given.deadline,
        missing_time=None if given.missing_time is None else MissingTime(given.missing_time),
        repeated_time=None if given.repeated_time is None else RepeatedTime(given.repeated_time),
        execution_type="definition"
        if given.execution_type == "definition"
        else _member(ExecutionType, given.execution_type),
        failure_strategy=_member(FailureStrategy, given.failure_strategy),
        worker_group=given.worker_group,
        environment=given.environment,
        priority=_member(Priority, given.priority),
        start_params=given.params,
        warning_type=_member(WarningType, given.warning_type),
    )


def _member(kind: type[Code], name: str | None) -> Code | None:
    return None if name is None else kind[name]


def _saved(session: Session, saved: SavedSchedule, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{schedule_tag(saved.view)}"'
    fire = saved.next_fire
    return {
        **_row(session, saved.view),
        "next_fire": None if fire is None else coming_row(fire, saved.view.id),
        "other_schedules": list(saved.others),
    }


def _row(session: Session, view: ScheduleView) -> dict[str, Any]:
    row = schedule_row(view, zone=cluster_zone(session.config))
    return row | {"definition_online": view.definition_is_online}


def _behind(after: str | None) -> int | None:
    return cursors.read("fires", after, largest=cursors.LARGEST_BIG_ID)


def _fires(ledger: Ledger, limit: int) -> dict[str, Any]:
    rows = [
        fire_row(each) | {"timezone_id": ledger.zones[each.schedule_id].key}
        for each in ledger.fires
    ]
    return {
        "items": rows,
        "next": cursors.next_of("fires", [each.id for each in ledger.fires], limit),
    }


def _released(session: Session, number: int, wanted: ReleaseState) -> dict[str, Any]:
    found = set_release_state(session, wanted, ids=[number], now=_clock.now())
    (row,) = released_rows(found, wanted)
    return row


ROUTES: Final[tuple[Route, ...]] = (
    get("/schedules", list_schedules, SchedulePage, is_quick=True),
    post("/schedules", make, schedule_answers.SavedSchedule, status=201),
    get("/schedules/preview", preview, Preview, is_heavy=True),
    post("/schedules/simulate", simulate, schedule_answers.Simulation, is_heavy=True),
    post("/schedules/release", release_all, ReleasedSchedules),
    post("/schedules/delete", delete_all, DeletedSchedules),
    patch("/schedules/{id}", change, schedule_answers.SavedSchedule, is_conditional=True),
    delete("/schedules/{id}", delete_one, schedule_answers.DeletedSchedule, is_conditional=True),
    get("/schedules/{id}", show_schedule, ScheduleDetail),
    get("/schedules/{id}/fires", list_fires, FirePage, is_quick=True),
    get("/definitions/{id}/fires", list_fires_of_definition, FirePage),
    post("/schedules/{id}/online", online, Released),
    post("/schedules/{id}/offline", offline, Released),
)
