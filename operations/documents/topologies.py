"""Topologies as documents: the fields of `orcaflow topology …  -o json`, and of the HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from common.model.states import ProcessState, TaskState
from common.model.topologies import ComponentReport, Figures, RunState, status_of
from common.model.topology_verdicts import shape_of
from common.store.people.topologies import TopologyVersion, TopologyView
from operations.documents.instances import name_of
from operations.topologies import OrderedTopology
from operations.topology_submission import SubmittedTopology
from operations.topology_views import (
    TopologyLine,
    cores_of,
    judgement_of,
    reason_of,
    uptime_of,
)


def submitted_row(done: SubmittedTopology) -> dict[str, object]:
    """A submission, with the command that begins a run, if one does."""
    return {**asdict(done), "notes": list(done.notes)}


def ordered_row(done: OrderedTopology) -> dict[str, object]:
    """An order: `number` is that of what is wanted now."""
    return asdict(done)


def line_row(line: TopologyLine) -> dict[str, object]:
    """A topology in a list."""
    return asdict(line)


def view_row(view: TopologyView) -> dict[str, object]:
    """A topology with all that its row has: the documents of what is wanted, report and graph."""
    run, attempt = view.run, view.attempt
    return {
        "name": view.name,
        "project_id": view.project_id,
        "process_definition_id": view.process_definition_id,
        "version": view.version,
        "generation": view.generation,
        "wanted": view.wanted.document(),
        "report": None if view.report is None else view.report.document(),
        "reported": view.report_time,
        "holder": view.holder,
        "graph": view.graph.document(),
        "starting": view.starting,
        "run": None if run is None else asdict(run),
        "attempt": None if attempt is None else asdict(attempt),
        "created": view.create_time,
        "updated": view.update_time,
        "looked_at": view.looked_at,
    }


def status_row(view: TopologyView, window: str) -> dict[str, object]:
    """A topology with its run, its attempt, and the figures of its components in a window."""
    report, judged = view.report, judgement_of(view)
    return {
        "name": view.name,
        "status": status_of(view.wanted, report).value,
        "state": None if report is None else RunState(report.state).value,
        "reason": reason_of(view),
        "verdict": None if judged is None else judged.verdict.value,
        "verdict_reason": None if judged is None else judged.reason,
        "version": view.version,
        "running_version": None if report is None else report.version,
        "generation": view.generation,
        "project_id": view.project_id,
        "process_definition_id": view.process_definition_id,
        "wanted": view.wanted.number,
        "obeyed": None if report is None else report.obeyed,
        "cores": cores_of(view),
        "uptime_seconds": uptime_of(view),
        "batch": None if report is None or report.batch < 0 else report.batch,
        "failures": None if report is None else report.failures,
        "lag": {} if report is None else dict(report.lag),
        "errors": 0 if report is None else len(report.errors),
        "process_instance_id": None if view.run is None else view.run.id,
        "run_state": None if view.run is None else name_of(ProcessState, view.run.state),
        "task_instance_id": None if view.attempt is None else view.attempt.id,
        "attempt": None if view.attempt is None else view.attempt.number,
        "attempt_state": None if view.attempt is None else name_of(TaskState, view.attempt.state),
        "host": None if view.attempt is None else view.attempt.host,
        "reported": view.report_time,
        "created": view.create_time,
        "updated": view.update_time,
        "window": window,
        "components": component_rows(view, window),
    }


def component_rows(view: TopologyView, window: str) -> list[dict[str, object]]:
    """The components in the order of their declaration, with their figures in a window.

    `executors` and `tasks` are those that run, else those that are wanted. `skew`: the share of the
    busiest task, as a multiple of the mean; `hot_key` is what it saw most.
    """
    reported = {} if view.report is None else {each.id: each for each in view.report.components}
    shape = shape_of(view.wanted, view.graph)
    rows: list[dict[str, object]] = []
    for part in view.graph.parts:
        found = reported.get(part.id)
        executors, tasks = shape[part.id]
        figures = (found.windows.get(window) if found else None) or Figures()
        rows.append(
            {
                "component": part.id,
                "kind": part.kind,
                "executors": found.executors if found else executors,
                "tasks": found.tasks if found else tasks,
                "emitted": _sum(figures.emitted),
                "transferred": _sum(figures.transferred),
                "executed": _sum(figures.executed),
                "acked": _sum(figures.acked),
                "failed": _sum(figures.failed),
                "latency_ms": round(figures.latency_ms, 3),
                "capacity": round(figures.capacity, 3),
                "lag": None if view.report is None else view.report.lag.get(part.id),
                "skew": None if found is None else skew_of(found),
                "hot_key": None if found is None else found.hot_key or None,
                "by_task": [] if found is None else list(found.by_task),
            }
        )
    return rows


def skew_of(found: ComponentReport) -> float | None:
    """Return by how much the busiest task has executed more than the mean; None before the first.

    1.0 is an even spread; of n tasks, n is one that does it all.
    """
    whole = sum(found.by_task)
    return None if not whole else round(max(found.by_task) * len(found.by_task) / whole, 2)


def error_rows(view: TopologyView) -> list[dict[str, object]]:
    """The last errors of components, as the task has reported them."""
    return [
        {
            "time": each.time,
            "component": each.component,
            "task": each.task,
            "error": each.error,
        }
        for each in ([] if view.report is None else view.report.errors)
    ]


def version_row(version: TopologyVersion) -> dict[str, Any]:
    """A version of a topology, with its graph."""
    return {
        "version": version.version,
        "user_id": version.user_id,
        "components": len(version.graph.parts),
        "created": version.create_time,
        "graph": version.graph.document(),
    }


def _sum(counts: Mapping[str, int]) -> int:
    return sum(counts.values())
