"""Workers by Druid's paths: their room, their choice, those that are taken out of service."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Final

from api.druid.table import Call, Row, moment
from api.policy import Who
from common.model.workers import WorkerMode
from common.strict_json import strict_json
from operations.stream_tasks import MOST, Stage, StreamTaskInfo, list_stream_tasks, stage_of
from operations.worker_strategies import set_strategy, strategy_history
from operations.workers import list_workers, set_mode

_KEY: Final = "worker.config"
_NEVER: Final = "1970-01-01T00:00:00.000Z"


def show_all(call: Call) -> list[dict[str, Any]]:
    """List the living workers, with those of their stream tasks that the caller sees."""
    tasks: dict[str | None, list[StreamTaskInfo]] = defaultdict(list)
    for task in list_stream_tasks(call.session, most_complete=0):
        if stage_of(task) is Stage.RUNNING:
            tasks[task.host].append(task)
    found = []
    for view in list_workers(call.session):
        if not view.is_alive:
            continue
        status = view.status
        mine = tasks[view.address]
        found.append(
            {
                "worker": {
                    "scheme": "http",
                    "host": view.address,
                    "ip": view.address.rpartition(":")[0].strip("[]"),
                    "capacity": 0 if status is None else status.capacity,
                    # As Druid tells one that is disabled.
                    "version": ""
                    if status is None or view.mode is WorkerMode.DISABLED
                    else status.version,
                    "category": "" if status is None else status.category,
                },
                "currCapacityUsed": 0 if status is None else status.used,
                "currParallelIndexCapacityUsed": 0,
                "availabilityGroups": sorted({each.base_sequence for each in mine}),
                "runningTasks": [each.name for each in mine],
                "lastCompletedTaskTime": _NEVER,
                "blacklistedUntil": None,
            }
        )
    return found


def show_capacity(call: Call) -> dict[str, Any]:
    """Add up the room of the living workers."""
    told = [view.status for view in list_workers(call.session) if view.is_alive]
    return {
        "currentClusterCapacity": sum(each.capacity for each in told if each is not None),
        "maximumCapacityWithAutoScale": -1,
        "usedClusterCapacity": sum(each.used for each in told if each is not None),
    }


def show_strategy(call: Call) -> dict[str, Any]:
    """Show the dynamic configuration of workers: the strategy by which they are chosen."""
    return dict(strategy_history(call.session, limit=1)[0].document)


def change_strategy(call: Call) -> None:
    """Have workers be chosen by another strategy; the header `X-Druid-Comment` is its note."""
    document = strict_json(call.body)
    if isinstance(document, dict):
        # Druid's own console sends these, too, with nothing in them.
        document = {
            name: each
            for name, each in document.items()
            if (name, each) not in (("type", "default"), ("autoScaler", None))
        }
    note = call.request.headers.get("x-druid-comment", "").strip()
    set_strategy(call.session, document, note=note or None)


def show_strategies(call: Call) -> list[dict[str, Any]]:
    """List the strategies that there were, the newest first: `count` of them, or by `interval`."""
    count, during = call.number("count"), call.interval("interval")
    found = strategy_history(call.session, limit=min(count or MOST, MOST))
    if during is not None:
        found = [each for each in found if each.since and during.start <= each.since < during.end]
    return [
        {
            "key": _KEY,
            "type": _KEY,
            "auditInfo": {"author": each.user_name, "comment": each.note or "", "ip": ""},
            "payload": json.dumps(each.document),
            "auditTime": moment(each.since),
        }
        for each in found
        if each.version > 0
    ]


def enable(call: Call) -> dict[str, Any]:
    """Put a worker into service."""
    set_mode(call.session, call.id, WorkerMode.ENABLED)
    return {call.id: "enabled"}


def disable(call: Call) -> dict[str, Any]:
    """Take a worker out of service: what it runs goes on, and it takes nothing more."""
    set_mode(call.session, call.id, WorkerMode.DISABLED)
    return {call.id: "disabled"}


ROWS: Final[tuple[Row, ...]] = (
    Row(method="GET", path="workers", serve=show_all, takes=Who.USER),
    Row(method="GET", path="worker", serve=show_strategy, takes=Who.USER),
    Row(method="POST", path="worker", serve=change_strategy, takes=Who.ADMINISTRATOR),
    Row(method="GET", path="worker/history", serve=show_strategies, takes=Who.USER),
    Row(method="GET", path="totalWorkerCapacity", serve=show_capacity, takes=Who.USER),
    Row(
        method="POST",
        path="worker/{id}/enable",
        serve=enable,
        takes=Who.ADMINISTRATOR,
        thing="worker",
    ),
    Row(
        method="POST",
        path="worker/{id}/disable",
        serve=disable,
        takes=Who.ADMINISTRATOR,
        thing="worker",
    ),
)
