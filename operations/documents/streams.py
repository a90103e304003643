"""Supervisors of streams as documents: the fields of `orcaflow stream …  -o json`."""

from __future__ import annotations

from common.model.states import TaskState
from common.model.streams.partitions import shown_partition
from common.model.streams.tasks import offsets_of
from common.store.people.supervisors import StreamTaskView, SupervisorView, VersionView
from operations.streams import Submitted, shown_document


def submitted_row(done: Submitted) -> dict[str, object]:
    """A submission; `ignored`: places of keys that change nothing here."""
    return {
        "id": done.id,
        "version": done.version,
        "outcome": done.outcome,
        "ignored": list(done.ignored),
    }


def stream_row(view: SupervisorView) -> dict[str, object]:
    """A supervisor; the figures are those of its last run."""
    status = view.status
    return {
        "id": view.id,
        "version": view.version,
        "project_id": view.project_id,
        "project": view.project_name,
        "process_definition_id": view.process_definition_id,
        "state": state_of(view),
        "detailed_state": view.detailed_state,
        "healthy": view.healthy,
        "suspended": view.suspended,
        "active": view.active,
        "master": view.owner,
        "stream": status.get("stream"),
        "partitions": status.get("partitions"),
        "lag": status.get("aggregateLag"),
        "updated": view.update_time,
    }


def state_of(view: SupervisorView) -> str:
    """The state; one that has ended is TERMINATED, or COMPLETED at the end of its range."""
    if view.active:
        return view.state
    return "TERMINATED" if view.document is None else "COMPLETED"


def stream_task_row(task: StreamTaskView) -> dict[str, object]:
    """A task; `status` is its own word for what it does, `state` that of its attempt."""
    report = task.status or {}
    return {
        "task": task.name,
        "group": task.group_id,
        "status": report.get("state"),
        "state": None if task.state is None else TaskState(task.state).name,
        "starts": task.assignment.get("starts"),
        "current": report.get("current"),
        "lag": report.get("lag"),
        "errors": report.get("errors"),
        "host": task.host,
        "process_instance_id": task.process_instance_id,
        "task_instance_id": task.task_instance_id,
        "started": task.start_time,
        "reported": task.status_time,
        "ending": task.ending_reason,
    }


def counts_row(task: StreamTaskView) -> dict[str, object]:
    """The counts of records that a task has reported, by Druid's names."""
    report = task.status or {}
    return {"task": task.name, "group": task.group_id, "counts": report.get("counts") or {}}


def lag_rows(view: SupervisorView) -> list[dict[str, object]]:
    """The partitions of the stream at the last run, and what no task had read of them."""
    latest = offsets_of(view.status.get("latestOffsets") or {})
    behind = offsets_of(view.status.get("minimumLag") or {})
    return [
        {"partition": shown_partition(each), "latest": latest[each], "lag": behind.get(each)}
        for each in sorted(latest)
    ]


def version_row(version: VersionView) -> dict[str, object]:
    """A version of a specification; what may be a secret in it is masked."""
    return {
        "version": version.version,
        "suspended": version.suspended,
        "terminated": version.document is None,
        "created": version.create_time,
        "spec": shown_document(version.document),
    }
