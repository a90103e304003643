"""The operations on complements that an api-server answers, and their values out of its documents.

A remote watcher asks for each complement and its dates one after the other, not as of one moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from common.model.complement_states import (
    ComplementState,
    DateState,
    OnFailure,
    Reprocess,
    RunOrder,
)
from common.model.complements import NewComplement, RunSettings
from common.model.date_rules import DateRule
from common.model.states import (
    FailureStrategy,
    Priority,
    ProcessState,
    TaskDependType,
)
from common.store.people.complement_requests import Retried
from common.store.people.complement_views import (
    LIVE_DATES,
    RUN_DATES,
    ComplementDateView,
    ComplementView,
)
from operations.complement_plans import ComplementPlan, DatePlan, Estimate, typical_duration
from operations.complement_progress import FEW_FAILURES, KEPT_DURATIONS, OVERLAP, Sight
from operations.complementing import ComplementOptions
from operations.stored_complements import ComplementDetails
from orcaflow.remote.client import Client
from orcaflow.remote.definitions import definition_named
from orcaflow.remote.documents import code_of, moment_of

_PAGE: Final = 500


def complement_of(row: Mapping[str, Any]) -> ComplementView:
    """A complement with its dates counted."""
    return ComplementView(
        id=row["id"],
        process_definition_id=row["process_definition_id"],
        definition_name=row["definition"],
        project_name=row["project"],
        state=row["state"]["code"],
        state_reason=row["reason"],
        parallelism=row["parallelism"],
        run_order=row["order"],
        on_failure=row["on_failure"],
        reprocess=row["reprocess"],
        date_rule=row["date_rule"],
        timezone_id=row["timezone"],
        after_id=row["after_id"] or 0,
        command_id=row["command_id"] or 0,
        task_depend_type=code_of(TaskDependType, row["task_depend_type"]) or 0,
        failure_strategy=code_of(FailureStrategy, row["failure_strategy"]) or 0,
        priority=code_of(Priority, row["priority"]) or 0,
        worker_group_id=row["worker_group_id"],
        environment_code=-1,
        environment=row["environment"],
        start_node_names=",".join(row["start_nodes"]) or None,
        start_params=_params(row["start_params"]),
        create_time=datetime.fromisoformat(row["create_time"]),
        end_time=moment_of(row["end_time"]),
        dates={str(state): number for state in DateState if (number := row[str(state)])},
    )


def _params(given: Any) -> str | None:
    if isinstance(given, str):
        return given
    return json.dumps(given, ensure_ascii=False) if given else None


def plan(client: Client, definition: str, options: ComplementOptions) -> list[ComplementPlan]:
    """Return the plans of all complements that `create` would make."""
    items = client.post("/complements/plan", _body(client, definition, options))["items"]
    return [_plan_of(row, options) for row in items]


def create(
    client: Client, definition: str, options: ComplementOptions, *, now: datetime
) -> list[ComplementView]:
    """Make the complement of a definition, then those downstream; `now` is the server's."""
    del now
    items = client.post("/complements", _body(client, definition, options))["items"]
    return [complement_of(row) for row in items]


def find(
    client: Client,
    *,
    definition_name: str | None = None,
    states: Sequence[ComplementState] | None = None,
    limit: int,
) -> list[ComplementView]:
    """List complements, the newest first, a page at a time."""
    number = None if definition_name is None else definition_named(client, definition_name).id
    words = [each.name for each in states or ()]
    found: list[ComplementView] = []
    after: str | None = None
    while len(found) < limit:
        page = min(_PAGE, limit - len(found))
        asked = {"definition_id": number, "state": words, "limit": page, "after": after}
        answer = client.get("/complements", asked)
        found += [complement_of(row) for row in answer["items"]]
        after = answer["next"]
        if after is None:
            break
    return found


def details(
    client: Client,
    complement_id: int,
    *,
    states: Sequence[DateState] | None = None,
    limit: int | None = None,
) -> ComplementDetails:
    """Return a complement with dates of it: all, or those that tell most."""
    row = client.get(f"/complements/{complement_id}")
    if limit is not None and limit <= _PAGE:
        asked = {"state": [each.value for each in states or ()], "limit": limit}
        items = client.get(f"/complements/{complement_id}/dates", asked)["items"]
        dates = [_date_of(each, complement_id) for each in items]
    else:
        dates = _all_dates(client, complement_id, states or ())
        if limit is not None:
            dates = sorted(dates, key=_telling)[:limit]
    return ComplementDetails(
        view=complement_of(row),
        dates=tuple(sorted(dates, key=lambda each: each.position)),
        followers=tuple(row["followers"]),
    )


def with_id(client: Client, complement_id: int) -> ComplementView:
    """Return the complement as it is now."""
    return complement_of(client.get(f"/complements/{complement_id}"))


def pause(client: Client, complement_id: int, *, now: datetime) -> None:
    """Have no further date begin; `now` is the server's."""
    del now
    client.post(f"/complements/{complement_id}/pause")


def resume(client: Client, complement_id: int, *, now: datetime) -> None:
    """Have a paused complement go on; `now` is the server's."""
    del now
    client.post(f"/complements/{complement_id}/resume")


def cancel(client: Client, complement_id: int, *, now: datetime) -> None:
    """Have no further date begin, and those that run be stopped; `now` is the server's."""
    del now
    client.post(f"/complements/{complement_id}/cancel")


def retry(client: Client, complement_id: int, *, now: datetime) -> Retried:
    """Have the failed dates run again; `now` is the server's."""
    del now
    answer = client.post(f"/complements/{complement_id}/retry")
    return Retried(dates=answer["retried"], followers=tuple(answer["followers"]))


class _RemoteWatcher:
    """Looks at complements of a server, and remembers what it has reported as ended."""

    def __init__(self, client: Client, complement_ids: Sequence[int], *, briefly: bool) -> None:
        self._client = client
        self._briefly = briefly
        self._reported = {each: _Reported() for each in complement_ids}

    def observe(self) -> list[Sight]:
        """The complements, one after the other."""
        return [self._sight(number, known) for number, known in self._reported.items()]

    def _sight(self, number: int, known: _Reported) -> Sight:
        row = self._client.get(f"/complements/{number}")
        view = complement_of(row)
        live: list[ComplementDateView] = []
        if view.count(*LIVE_DATES):
            live = _all_dates(self._client, number, LIVE_DATES)
        if self._briefly:
            return Sight(view=view, live=tuple(live))
        failed: tuple[ComplementDateView, ...] = ()
        if view.count(DateState.FAILURE):
            few = {"state": DateState.FAILURE.value, "limit": FEW_FAILURES}
            items = self._client.get(f"/complements/{number}/dates", few)["items"]
            failed = tuple(_date_of(each, number) for each in items)
        ended = known.new([] if not view.count(*RUN_DATES) else self._changed(number, known.since))
        usual = row["typical_duration"]
        return Sight(
            view=view,
            live=tuple(live),
            failed=failed,
            ended=tuple(ended),
            typical=known.typical(None if usual is None else timedelta(seconds=usual)),
        )

    def _changed(self, number: int, since: datetime | None) -> list[ComplementDateView]:
        return _all_dates(self._client, number, RUN_DATES, since=since)


class _Reported:
    """The dates of one complement that were reported as ended at looks before."""

    def __init__(self) -> None:
        self.since: datetime | None = None
        self._keys: set[tuple[int, str, int]] | None = None
        self._durations: list[timedelta] = []

    def new(self, found: Sequence[ComplementDateView]) -> list[ComplementDateView]:
        """Those that have not been reported yet; of the first look they are only counted."""
        keys = {(each.id, each.state, each.process_instance_id): each for each in found}
        latest = max((each.update_time for each in found), default=None)
        if latest is not None:
            # Clocks of masters differ; what comes twice is known by its key.
            self.since = max(latest - OVERLAP, self.since or latest - OVERLAP)
        if self._keys is None:
            self._keys = set(keys)
            return []
        fresh = [each for key, each in keys.items() if key not in self._keys]
        self._keys.update(keys)
        self._durations += [
            span
            for each in fresh
            if each.state == DateState.SUCCESS
            and each.end_time
            and (span := each.duration(each.end_time)) is not None
        ]
        del self._durations[:-KEPT_DURATIONS]
        return fresh

    def typical(self, usual: timedelta | None) -> timedelta | None:
        """The duration of one date, by those that were seen, else as it usually is."""
        return typical_duration(self._durations) or usual


def watcher_of(
    client: Client, complement_ids: Sequence[int], *, briefly: bool = False
) -> _RemoteWatcher:
    """Return someone who looks at complements."""
    return _RemoteWatcher(client, complement_ids, briefly=briefly)


def _all_dates(
    client: Client,
    complement_id: int,
    states: Sequence[DateState],
    *,
    since: datetime | None = None,
) -> list[ComplementDateView]:
    found: list[ComplementDateView] = []
    after: str | None = None
    while True:
        asked = {
            "state": [each.value for each in states],
            "order": "position",
            "since": None if since is None else since.isoformat(),
            "limit": _PAGE,
            "after": after,
        }
        answer = client.get(f"/complements/{complement_id}/dates", asked)
        found += [_date_of(row, complement_id) for row in answer["items"]]
        after = answer["next"]
        if after is None:
            return found


def _telling(date: ComplementDateView) -> tuple[int, int]:
    """The place among those that tell most: failed ones, then live ones, then the next ones."""
    if date.state == DateState.FAILURE:
        return 0, date.position
    if date.state in LIVE_DATES:
        return 1, date.position
    return (2 if date.state == DateState.PENDING else 3), date.position


def _date_of(row: Mapping[str, Any], complement_id: int) -> ComplementDateView:
    return ComplementDateView(
        id=row["id"],
        complement_id=complement_id,
        position=row["position"],
        schedule_time=datetime.fromisoformat(row["schedule_time"]),
        state=row["state"],
        reason=row["reason"],
        process_instance_id=row["process_instance_id"] or 0,
        instance_state=code_of(ProcessState, row["instance_state"]),
        start_time=moment_of(row["start_time"]),
        end_time=moment_of(row["end_time"]),
        update_time=datetime.fromisoformat(row["update_time"]),
        duration_from=moment_of(row["duration_from"]),
    )


def _body(client: Client, definition: str, options: ComplementOptions) -> dict[str, Any]:
    return {
        "definition_id": definition_named(client, definition).id,
        "first": options.first,
        "last": options.last,
        "dates": list(options.dates),
        "zone": options.zone,
        "parallelism": options.parallelism,
        "order": options.order.value,
        "on_failure": options.on_failure.value,
        "reprocess": options.reprocess.value,
        "date_rule": options.date_rule,
        "downstream": options.downstream.value,
        "confirmed": options.confirmed,
        "start_nodes": list(options.start_nodes),
        "depend": options.task_depend_type.name,
        "failure_strategy": options.failure_strategy.name,
        "priority": options.priority.name,
        "worker_group": options.worker_group,
        "environment": options.environment,
        "params": dict(options.start_params),
        "warning_type": options.warning_type.name,
    }


def _plan_of(row: Mapping[str, Any], options: ComplementOptions) -> ComplementPlan:
    dates = tuple(
        DatePlan(
            schedule_time=datetime.fromisoformat(each["schedule_time"]),
            process_instance_id=each["process_instance_id"],
            instance_state=each["instance_state"],
            skipped=each["reason"],
        )
        for each in row["dates"]
    )
    estimate = None
    if row["typical_duration"] is not None:
        estimate = Estimate(
            typical=timedelta(seconds=row["typical_duration"]),
            runs=row["runs_known"],
            rounds=-(-row["to_run"] // row["parallelism"]),
            total=timedelta(seconds=row["estimated_duration"]),
        )
    return ComplementPlan(
        definition_name=row["definition"],
        new=NewComplement(
            process_definition_id=row["process_definition_id"],
            dates=tuple(each.schedule_time for each in dates),
            timezone_id=row["timezone"],
            parallelism=row["parallelism"],
            order=RunOrder(row["order"]),
            on_failure=OnFailure(row["on_failure"]),
            reprocess=Reprocess(row["reprocess"]),
            date_rule=DateRule(row["date_rule"]),
            settings=RunSettings(task_depend_type=options.task_depend_type),
            after=row["after"],
        ),
        dates=dates,
        estimate=estimate,
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "complement_control.cancel": cancel,
    "complement_control.pause": pause,
    "complement_control.resume": resume,
    "complement_control.retry": retry,
    "complement_progress.watcher_of": watcher_of,
    "complementing.create": create,
    "complementing.plan": plan,
    "stored_complements.details": details,
    "stored_complements.find": find,
    "stored_complements.with_id": with_id,
}
