"""Schedules: made, changed, brought ONLINE and OFFLINE, previewed and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import RefusedError, Status, moment, page
from api.dolphinscheduler.runs import environment_of
from api.dolphinscheduler.table import Row
from common.clock import SystemClock
from common.model.rights import Action
from common.model.states import FailureStrategy, Priority, ReleaseState, WarningType
from common.store.people.rights import Thing
from common.store.people.schedule_views import ScheduleView
from operations import numbered_pages, previewing, scheduling
from operations.definitions import codes_of
from operations.errors import UsageError
from operations.projects import check_in, definition_in
from operations.references import DEFAULT_WORKER_GROUP
from operations.schedule_settings import NO_ENVIRONMENT, ScheduleSettings, read_cron
from operations.stored_schedules import zone_of_schedule
from operations.times import read_moment, read_zone

_PREVIEWED: Final = 5


def create(call: Call) -> Any:
    """Make a schedule, which is OFFLINE."""
    project = call.project
    if call.dialect.is_classic:
        number = call.needed_number("processDefinitionId")
        row = definition_in(call.session, project, definition_id=number, action=Action.AUTHOR)
    else:
        code = call.needed_number(*call.worded("DefinitionCode"))
        row = definition_in(call.session, project, code=code, action=Action.AUTHOR)
    made = scheduling.create(
        call.session, row.id, _settings(call), online=False, now=SystemClock().now()
    )
    if call.dialect.is_classic:
        return {"scheduleId": made.view.id}
    return shown(call, [made.view])[0]


def update(call: Call) -> Any:
    """Change a schedule that is OFFLINE."""
    view = _given(call, Action.AUTHOR)
    if view.release_state == ReleaseState.ONLINE:
        raise RefusedError(Status.SCHEDULE_ONLINE)
    made = scheduling.edit(call.session, view.id, _settings(call), now=SystemClock().now())
    return None if call.dialect.is_classic else shown(call, [made.view])[0]


def online(call: Call) -> Any:
    """Let a schedule fire from now on."""
    return _released(call, ReleaseState.ONLINE)


def offline(call: Call) -> Any:
    """Let a schedule fire no more."""
    return _released(call, ReleaseState.OFFLINE)


def delete(call: Call) -> None:
    """Delete a schedule that is OFFLINE."""
    view = _given(call, Action.AUTHOR)
    scheduling.delete(call.session, [view.id])


def list_page(call: Call) -> dict[str, Any]:
    """List schedules page by page, the newest first."""
    number, size = call.page_number, call.page_size
    definition = None
    if call.dialect.is_classic:
        asked = call.number("processDefinitionId")
        if asked:
            definition = definition_in(call.session, call.project, definition_id=asked).id
    else:
        asked = call.number(*call.worded("DefinitionCode"))
        if asked:
            definition = definition_in(call.session, call.project, code=asked).id
    found, total = numbered_pages.schedules(
        call.session,
        call.project.id,
        number,
        size,
        definition_id=definition,
        search=call.text("searchVal"),
    )
    return page(shown(call, found), total=total, number=number, size=size)


def list_all(call: Call) -> list[dict[str, Any]]:
    """List all schedules of a project."""
    size = numbered_pages.LARGEST_PAGE
    found, total = numbered_pages.schedules(call.session, call.project.id, 1, size)
    numbered_pages.check_whole(total, 1, size + 1)
    return shown(call, found)


def preview(call: Call) -> list[str]:
    """List the next five fires of a cron line within its window."""
    numbered_pages.check_project(call.session, call.project.id)
    settings = _settings(call)
    zone = settings.zone or call.zone
    now = SystemClock().now()
    begins = now
    if settings.first is not None:
        begins = max(now, read_moment(settings.first, zone, field="startTime"))
    previewed = previewing.of_line(settings.cron or "", zone=zone)
    found = previewing.preview(
        previewed, after=begins.isoformat(sep=" ", timespec="seconds"), count=_PREVIEWED, now=now
    )
    times = [fire.fire_time for _, fire in found.fires]
    if settings.last is not None:
        ends = read_moment(settings.last, zone, field="endTime", ends_day=True)
        times = [each for each in times if each <= ends]
    return [moment(each, zone) or "" for each in times]


def shown(call: Call, views: Sequence[ScheduleView]) -> list[dict[str, Any]]:
    """Show schedules in the words of the dialect."""
    codes = codes_of(call.session, sorted({each.process_definition_id for each in views}))
    return [_shown(call, each, codes.get(each.process_definition_id)) for each in views]


def _shown(call: Call, view: ScheduleView, code: int | None) -> dict[str, Any]:
    zone = zone_of_schedule(view, call.zone)
    made: dict[str, Any] = {
        "id": view.id,
        "projectName": call.project.name,
        "definitionDescription": None,
        "startTime": moment(view.start_time, zone),
        "endTime": moment(view.end_time, zone),
        "timezoneId": view.timezone_id or call.zone.key,
        "crontab": view.crontab,
        "failureStrategy": FailureStrategy(view.failure_strategy).name,
        "warningType": WarningType(view.warning_type).name,
        "createTime": moment(view.create_time, call.zone),
        "updateTime": moment(view.update_time, call.zone),
        "userId": view.user_id,
        "releaseState": ReleaseState(view.release_state).name,
        "warningGroupId": view.warning_group_id,
        "workerGroup": view.worker_group or "default",
    }
    for word in call.dialect.words:
        made[f"{word}InstancePriority"] = Priority(view.priority).name
        made[f"{word}DefinitionName"] = view.definition_name
        if not call.dialect.is_classic:
            made[f"{word}DefinitionCode"] = code
    if call.dialect.is_classic:
        return made | {"processDefinitionId": view.process_definition_id}
    return made | {"tenantCode": "default", "environmentCode": view.environment_code}


def _released(call: Call, wanted: ReleaseState) -> Any:
    view = _given(call, Action.AUTHOR)
    scheduling.set_release_state(call.session, wanted, ids=[view.id], now=SystemClock().now())
    return None if call.dialect.is_classic else True


def _given(call: Call, action: Action) -> ScheduleView:
    number = call.needed_number("id", "scheduleId")
    check_in(call.session, call.project, Thing.SCHEDULE, [number], action=action)
    return scheduling.details(call.session, number, now=SystemClock().now()).view


def _settings(call: Call) -> ScheduleSettings:
    """Read the object `schedule` and what stands beside it."""
    given = call.document("schedule")
    if not isinstance(given, dict):
        raise UsageError("schedule", "is no object with startTime, endTime and crontab")
    cron = _text(given, "crontab")
    if cron is None:
        raise UsageError("schedule", "has no crontab")
    zone = _text(given, "timezoneId")
    return ScheduleSettings(
        cron=read_cron(cron),
        zone=None if zone is None else read_zone(zone),
        first=_text(given, "startTime"),
        last=_text(given, "endTime"),
        failure_strategy=call.choice(
            FailureStrategy, "failureStrategy", default=FailureStrategy.CONTINUE
        ),
        priority=call.choice(Priority, *call.worded("InstancePriority"), default=Priority.MEDIUM),
        warning_type=call.choice(WarningType, "warningType", default=WarningType.NONE),
        # Whoever leaves these out means the default, in a change too.
        worker_group=call.text("workerGroup") or DEFAULT_WORKER_GROUP,
        environment=environment_of(call) or NO_ENVIRONMENT,
    )


def _text(given: Mapping[str, Any], key: str) -> str | None:
    found = given.get(key)
    if found is None or found == "":
        return None
    if not isinstance(found, str):
        raise UsageError("schedule", f"{key} is no text")
    return found


_CLASSIC: Final = "projects/{project}/schedule"
_LATER: Final = "projects/{project}/schedules"
ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=create,
        takes=Action.AUTHOR,
        thing=Thing.DEFINITION,
        classic=("POST", f"{_CLASSIC}/create"),
        later=("POST", _LATER),
        refused=Status.CREATE_SCHEDULE,
    ),
    Row(
        serve=update,
        takes=Action.AUTHOR,
        thing=Thing.SCHEDULE,
        classic=("POST", f"{_CLASSIC}/update"),
        later=("PUT", f"{_LATER}/{{id}}"),
        refused=Status.UPDATE_SCHEDULE,
    ),
    Row(
        serve=online,
        takes=Action.AUTHOR,
        thing=Thing.SCHEDULE,
        classic=("POST", f"{_CLASSIC}/online"),
        later=("POST", f"{_LATER}/{{id}}/online"),
        refused=Status.ONLINE_SCHEDULE,
    ),
    Row(
        serve=offline,
        takes=Action.AUTHOR,
        thing=Thing.SCHEDULE,
        classic=("POST", f"{_CLASSIC}/offline"),
        later=("POST", f"{_LATER}/{{id}}/offline"),
    ),
    Row(
        serve=delete,
        takes=Action.AUTHOR,
        thing=Thing.SCHEDULE,
        classic=("GET", f"{_CLASSIC}/delete"),
        later=("DELETE", f"{_LATER}/{{id}}"),
        refused=Status.DELETE_SCHEDULE,
    ),
    Row(
        serve=list_page,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("GET", f"{_CLASSIC}/list-paging"),
        later=("GET", _LATER),
    ),
    Row(
        serve=list_all,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("POST", f"{_CLASSIC}/list"),
        later=("POST", f"{_LATER}/list"),
    ),
    Row(
        serve=preview,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("POST", f"{_CLASSIC}/preview"),
        later=("POST", f"{_LATER}/preview"),
    ),
)
