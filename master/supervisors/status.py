"""The status of a supervisor for people, as JSON in Druid's shape.

Pure. Offsets of tasks are those of their last reports; the lag of a partition is what no task has
read yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from common.model.streams.tasks import offsets_document
from master.supervisors.draft import Draft
from master.supervisors.health import Health
from master.supervisors.running import lag_of
from master.supervisors.view import Memory, StreamSnapshot, SupervisorView, TaskGroup


def status_of(view: SupervisorView, memory: Memory, *, now: datetime) -> dict[str, Any]:
    """Return the payload of a status; `memory` is the one after the decisions on this view."""
    io = view.spec.io
    draft = Draft(view, now)
    lag = lag_of(draft)
    latest = view.stream.latest if isinstance(view.stream, StreamSnapshot) else {}
    reading = [memory.reading[group_id] for group_id in sorted(memory.reading)]
    return {
        "dataSource": view.spec.id,
        "stream": io.topic,
        "partitions": len(memory.partitions),
        "replicas": io.replicas,
        "taskCount": io.task_count,
        "durationSeconds": int(io.task_duration.total_seconds()),
        "activeTasks": [
            task for group in reading for task in _tasks(view, group, "ACTIVE", now, lag)
        ],
        "publishingTasks": [
            task
            for group in memory.publishing
            for task in _tasks(view, group, "PUBLISHING", now, {})
        ],
        "latestOffsets": offsets_document(latest),
        "minimumLag": offsets_document(lag),
        "aggregateLag": sum(lag.values()),
        "offsetsLastUpdated": now.isoformat() if latest else None,
    }


def errors_of(health: Health) -> tuple[dict[str, Any], ...]:
    """Return the errors of the last runs, oldest first."""
    return tuple(
        {
            "timestamp": each.at.isoformat(),
            "message": each.text,
            "streamException": each.of_stream,
        }
        for each in health.errors
    )


def _tasks(
    view: SupervisorView, group: TaskGroup, kind: str, now: datetime, lag: Any
) -> Iterable[dict[str, Any]]:
    for name in group.tasks:
        task = view.tasks.get(name)
        started = None if task is None else task.started
        left = None
        if kind == "ACTIVE" and started is not None:
            left = (started + view.spec.io.task_duration - now).total_seconds()
        elif group.completion_at is not None:
            left = (group.completion_at - now).total_seconds()
        yield {
            "id": name,
            "groupId": group.group_id,
            "startingOffsets": offsets_document(group.starts),
            "currentOffsets": offsets_document({} if task is None else task.offsets),
            "endOffsets": None if group.ends is None else offsets_document(group.ends),
            "startTime": None if started is None else started.isoformat(),
            "remainingSeconds": None if left is None else max(0, int(left)),
            "type": kind,
            "lag": {
                str(partition): lag[partition]
                for partition in sorted(group.starts)
                if partition in lag
            },
        }
