"""Workers by Druid's paths: their room, and those that are taken out of service."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from api.druid.table import Call, Row
from api.policy import Who
from common.model.workers import WorkerMode
from operations.stream_tasks import Stage, StreamTaskInfo, list_stream_tasks, stage_of
from operations.workers import list_workers, set_mode

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
