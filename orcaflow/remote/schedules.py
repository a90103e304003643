"""The operations on schedules that an api-server answers, and their values out of its documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from common.errors import NotFoundError
from common.firing import timetable_of
from common.model.schedules import FireOutcome, Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    WarningType,
)
from common.schedule_simulator import (
    ClockChange,
    ClockChangeKind,
    ClusterReport,
    Peak,
    PoolReport,
    Problem,
    ProblemKind,
    RunCost,
    ScheduleReport,
    Simulation,
    TooManyFiresError,
)
from common.store.people.schedule_views import FireView, ScheduleView
from operations.coming_fires import ComingFire, Mark
from operations.errors import UsageError
from operations.previewing import Previewed, of_views
from operations.schedule_settings import ScheduleSettings
from operations.scheduling import Ledger, ReleasedSchedules, SavedSchedule, ScheduleDetails
from operations.simulating import SimulatedSchedules, SimulationRequest
from operations.stored_schedules import NO_END, as_schedule, id_in
from operations.worker_slots import Capacity
from orcaflow.remote.client import Client
from orcaflow.remote.definitions import definition_named
from orcaflow.remote.documents import code_of, moment_of

_PAGE: Final = 500
_UTC: Final = ZoneInfo("UTC")
"""The cluster's zone, where a document has named it already wherever it counts."""
_DEFAULT_GROUP: Final = "default"
_MOST_FIRES: Final = 50_000
"""No server plays more of them."""


def schedule_of(row: Mapping[str, Any]) -> ScheduleView:
    """A schedule; its next fire is told, so that it is not to be counted anew."""
    group = row["worker_group"]
    return ScheduleView(
        id=row["id"],
        process_definition_id=row["process_definition_id"],
        definition_name=row["definition"],
        project_name=row["project"],
        definition_is_online=row["definition_online"],
        crontab=row["crontab"],
        timezone_id=row["timezone_id"],
        start_time=datetime.fromisoformat(row["start_time"]),
        end_time=moment_of(row["end_time"]) or NO_END,
        release_state=code_of(ReleaseState, row["release_state"]) or 0,
        missing_time=row["missing_time"],
        repeated_time=row["repeated_time"],
        misfire_policy=row["misfire_policy"],
        misfire_limit=row["misfire_limit"],
        deadline=None if row["deadline"] is None else timedelta(seconds=row["deadline"]),
        execution_type=code_of(ExecutionType, row["execution_type"]),
        failure_strategy=code_of(FailureStrategy, row["failure_strategy"]) or 0,
        warning_type=code_of(WarningType, row["warning_type"]) or 0,
        warning_group_id=0,
        priority=code_of(Priority, row["priority"]) or 0,
        worker_group_id=-1 if group == _DEFAULT_GROUP else 0,
        worker_group=group,
        environment_code=-1,
        environment=row["environment"],
        start_params=json.dumps(row["params"]) if row["params"] else None,
        user_id=0,
        counted_from=None,
        next_fire_time=moment_of(row["next_fire_time"]),
        fault=row["fault"],
        create_time=datetime.fromisoformat(row["create_time"]),
        update_time=datetime.fromisoformat(row["update_time"]),
    )


def create(
    client: Client,
    definition: str,
    settings: ScheduleSettings,
    *,
    online: bool,
    now: datetime,
) -> SavedSchedule:
    """Make a schedule of a definition; `now` is the server's."""
    del now
    number = definition_named(client, definition).id
    body = {**_body(settings), "definition_id": number, "online": online}
    return _saved(client.post("/schedules", body))


def edit(
    client: Client,
    schedule_id: int,
    settings: ScheduleSettings,
    *,
    now: datetime,
    online: bool = False,
) -> SavedSchedule:
    """Change a schedule that is OFFLINE, or with `online` any; `now` is the server's."""
    del now
    body = _body(settings) | ({"online": True} if online else {})
    return _saved(client.patch(f"/schedules/{schedule_id}", body))


def set_release_state(
    client: Client,
    wanted: ReleaseState,
    *,
    ids: Sequence[int] | None = None,
    definition_name: str | None = None,
    now: datetime,
) -> ReleasedSchedules:
    """Bring schedules ONLINE or OFFLINE, all or none; `now` is the server's."""
    del now
    if ids:
        views = _with_ids(client, ids)
    elif definition_name is None:
        views = find(client)
    else:
        views = _of_definition(client, definition_name)
    if not views:
        return ReleasedSchedules(views=(), changed=frozenset())
    if len(views) > _PAGE:
        raise UsageError("ids", f"over HTTP no more than {_PAGE} schedules are released at a time")
    body = {"ids": [each.id for each in views], "release_state": wanted.name}
    items = client.post("/schedules/release", body)["items"]
    return ReleasedSchedules(
        views=tuple(views), changed=frozenset(each["id"] for each in items if each["changed"])
    )


def delete(client: Client, ids: Sequence[int]) -> list[ScheduleView]:
    """Delete schedules that are OFFLINE, all of these or none."""
    views = _with_ids(client, ids)
    client.post("/schedules/delete", {"ids": [each.id for each in views]})
    return views


def find(
    client: Client, *, definition_name: str | None = None, takes_ids: bool = True
) -> list[ScheduleView]:
    """List all schedules or those of a definition, a page at a time."""
    number = (
        None
        if definition_name is None
        else definition_named(client, definition_name, takes_ids=takes_ids).id
    )
    return _listed(client, number)


def details(client: Client, schedule_id: int, *, now: datetime) -> ScheduleDetails:
    """Return one schedule with its next fires; `now` is the server's."""
    del now
    row = client.get(f"/schedules/{schedule_id}")
    return ScheduleDetails(
        view=schedule_of(row),
        fault=row["fault"],
        next_fires=tuple(_coming(each) for each in row["next_fires"]),
        fire_counts=row["fires"],
    )


def fires(
    client: Client,
    target: str,
    *,
    outcomes: Sequence[FireOutcome] | None = None,
    limit: int,
) -> Ledger:
    """Return the newest fires of a schedule, or of a definition's schedules."""
    number = id_in(target)
    if number is None:
        path = f"/definitions/{definition_named(client, target).id}/fires"
    else:
        path = f"/schedules/{_fitting(number)}/fires"
    words = [each.value for each in outcomes or ()]
    rows: list[Mapping[str, Any]] = []
    after: str | None = None
    while len(rows) < limit:
        asked = {"outcome": words, "limit": min(_PAGE, limit - len(rows)), "after": after}
        answer = client.get(path, asked)
        rows += answer["items"]
        after = answer["next"]
        if after is None:
            break
    return Ledger(
        fires=tuple(_fire(each, place) for place, each in enumerate(rows)),
        zones={each["schedule_id"]: ZoneInfo(each["timezone_id"]) for each in rows},
    )


def of_target(client: Client, target: str) -> Previewed:
    """Return the schedule with an id, or those of a definition, to be previewed here."""
    number = id_in(target)
    if number is None:
        views = _of_definition(client, target)
    else:
        try:
            views = _with_ids(client, [_fitting(number)])
        except NotFoundError as error:
            try:
                views = _of_definition(client, target, takes_ids=False)
            except NotFoundError:
                raise error from None
    return of_views(views, zone=_UTC)


def simulate(client: Client, request: SimulationRequest, *, now: datetime) -> SimulatedSchedules:
    """Have the server play schedules on a virtual clock; `now` is the server's."""
    del now
    name = request.definition_name
    number = None if name is None else definition_named(client, name).id
    body = {
        "definition_id": number,
        "days": request.days,
        "first": request.first,
        "offline_too": request.offline_too,
        "pessimistic": request.pessimistic,
        "assume": f"{round(request.assumed.total_seconds())}s",
        "slots": request.slots,
        "outages": list(request.outages),
        "max_fires": min(request.max_fires, _MOST_FIRES),
    }
    try:
        return _simulated(client.post("/schedules/simulate", body))
    except UsageError as error:
        raise TooManyFiresError(str(error)) if error.field == "max_fires" else error from None
    except NotFoundError as error:
        said = str(error).replace(f" of definition {number}", f" of {name!r:.200}")
        raise NotFoundError(said) from None


def _body(settings: ScheduleSettings) -> dict[str, Any]:
    """The settings that are given, as fields of a request."""
    kind = settings.execution_type
    params = settings.start_params
    found = {
        "cron": settings.cron,
        "zone": None if settings.zone is None else settings.zone.key,
        "first": settings.first,
        "last": settings.last,
        "misfire_policy": settings.misfire_policy,
        "misfire_limit": settings.misfire_limit,
        "deadline": settings.deadline,
        "missing_time": settings.missing_time,
        "repeated_time": settings.repeated_time,
        "execution_type": kind.name if isinstance(kind, ExecutionType) else kind,
        "failure_strategy": _name(settings.failure_strategy),
        "worker_group": settings.worker_group,
        "environment": settings.environment,
        "priority": _name(settings.priority),
        "params": None if params is None else dict(params),
        "warning_type": _name(settings.warning_type),
    }
    return {key: value for key, value in found.items() if value is not None}


def _name(member: FailureStrategy | Priority | WarningType | None) -> str | None:
    return None if member is None else member.name


def _saved(row: Mapping[str, Any]) -> SavedSchedule:
    view, fire = schedule_of(row), row["next_fire"]
    return SavedSchedule(
        view=view,
        timetable=timetable_of(as_schedule(view), zone=_UTC),
        next_fire=None if fire is None else _coming(fire),
        others=tuple(row["other_schedules"]),
    )


def _with_ids(client: Client, ids: Sequence[int]) -> list[ScheduleView]:
    """Return these schedules, each once; `NotFoundError` for the first that is missing."""
    found = {each: schedule_of(client.get(f"/schedules/{_fitting(each)}")) for each in ids}
    return [found[each] for each in sorted(found)]


def _fitting(number: int) -> int:
    if not 0 < number < 2**31:
        raise NotFoundError(f"there is no schedule {number}; see `orcaflow schedule list`")
    return number


def _of_definition(client: Client, name: str, *, takes_ids: bool = True) -> list[ScheduleView]:
    found = find(client, definition_name=name, takes_ids=takes_ids)
    if not found:
        raise NotFoundError(
            f"{name!r} has no schedule; make one: orcaflow schedule create {name!r} --cron"
            " '0 0 3 * * ? *'"
        )
    return found


def _listed(client: Client, definition_id: int | None) -> list[ScheduleView]:
    found: list[ScheduleView] = []
    after: str | None = None
    while True:
        asked = {"definition_id": definition_id, "limit": _PAGE, "after": after}
        answer = client.get("/schedules", asked)
        found += [schedule_of(row) for row in answer["items"]]
        after = answer["next"]
        if after is None:
            return found


def _coming(row: Mapping[str, Any]) -> ComingFire:
    return ComingFire(
        fire_time=datetime.fromisoformat(row["fire_time"]),
        local=datetime.fromisoformat(row["local"]),
        meant=datetime.fromisoformat(row["meant"]),
        mark=None if row["clock"] is None else Mark(row["clock"]),
    )


def _fire(row: Mapping[str, Any], number: int) -> FireView:
    return FireView(
        id=number,
        schedule_id=row["schedule_id"],
        process_definition_id=0,
        definition_name=row["definition"],
        fire_time=datetime.fromisoformat(row["fire_time"]),
        outcome=row["outcome"],
        reason=row["reason"],
        command_id=row["command_id"],
        process_instance_id=row["process_instance_id"],
        instance_state=code_of(ProcessState, row["instance_state"]),
        refusal=None,
        create_time=datetime.fromisoformat(row["decided_at"]),
    )


def _simulated(document: Mapping[str, Any]) -> SimulatedSchedules:
    cluster = document["cluster"]
    return SimulatedSchedules(
        simulation=Simulation(
            begin=datetime.fromisoformat(document["begin"]),
            end=datetime.fromisoformat(document["end"]),
            schedules=tuple(_report(row) for row in document["schedules"]),
            cluster=ClusterReport(
                slots=cluster["slots"],
                peak=cluster["peak"],
                peak_at=moment_of(cluster["peak_at"]),
                peak_wanted=cluster["peak_wanted"],
                busiest_hour=moment_of(cluster["busiest_hour"]),
                busiest_slots=cluster["busiest_slots"],
                backlog=cluster["backlog"],
                most_backlog=cluster["most_backlog"],
                backlog_grows=cluster["never_catches_up"],
                pools=tuple(
                    PoolReport(name=each["name"], size=each["size"], peak=each["peak"])
                    for each in cluster["pools"]
                ),
            ),
            problems=tuple(
                Problem(
                    kind=ProblemKind(each["kind"]),
                    text=each["text"],
                    schedule_id=each["schedule_id"],
                )
                for each in document["problems"]
            ),
        ),
        zone=ZoneInfo(document["zone"]),
        capacity=Capacity(cluster["slots"], cluster["slots_known_by"]),
    )


def _report(row: Mapping[str, Any]) -> ScheduleReport:
    return ScheduleReport(
        schedule=Schedule(
            id=row["id"],
            process_definition_id=0,
            definition_name=row["definition"],
            definition_is_online=True,
            crontab=row["crontab"],
            timezone_id=row["timezone_id"],
            missing_time="",
            repeated_time="",
            start_time=NO_END,
            end_time=NO_END,
            priority=Priority[row["priority"]],
        ),
        execution_type=ExecutionType[row["execution_type"]],
        run_cost=RunCost(
            duration=timedelta(seconds=row["takes"]),
            peak=Peak(slots=row["takes_slots"], pools=row["takes_of_pools"]),
            runs=row["history"],
        ),
        fires=row["fires"],
        outcomes=Counter({FireOutcome(key): each for key, each in row["outcomes"].items()}),
        undecided=row["undecided"],
        late=row["late"],
        ended=row["ended"],
        going_on=row["going_on"],
        stopped=row["stopped"],
        discarded=row["discarded"],
        waiting=row["waiting"],
        overlaps=row["overlaps"],
        most_at_once=row["at_once"],
        waited=row["waited"],
        longest_wait=timedelta(seconds=row["longest_wait"]),
        median_wait=timedelta(seconds=row["median_wait"]),
        backlog_grows=row["never_catches_up"],
        clock_changes=tuple(
            ClockChange(
                kind=ClockChangeKind(each["kind"]),
                day=date.fromisoformat(each["day"]),
                fires=each["fires"],
            )
            for each in row["oddities"]
        ),
        fault=row["fault"],
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "previewing.of_target": of_target,
    "scheduling.create": create,
    "scheduling.delete": delete,
    "scheduling.details": details,
    "scheduling.edit": edit,
    "scheduling.find": find,
    "scheduling.fires": fires,
    "scheduling.set_release_state": set_release_state,
    "simulating.simulate": simulate,
}
