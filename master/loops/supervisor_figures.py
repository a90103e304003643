"""Counts the steps of supervisors in the metrics of their master."""

from __future__ import annotations

from collections.abc import Iterable

from common.runtime import metrics
from common.store.master.supervisor_ports import StreamTaskRow, SupervisorRows, SupervisorStep
from master.supervisors.decisions import Decision, SetEnds
from master.supervisors.view import Memory


def count_step(
    before: Memory,
    after: Memory,
    decisions: Iterable[Decision],
    rows: SupervisorRows,
    step: SupervisorStep,
) -> None:
    """Count a step that was written."""
    if after.last_run_at != before.last_run_at:
        outcome = "failed" if after.health.failed_runs else "good"
        metrics.supervisor_runs.labels(outcome=outcome).inc()
    for decision in decisions:
        if isinstance(decision, SetEnds):
            counted = metrics.stream_hand_overs if decision.finish else metrics.stream_checkpoints
            counted.inc()
    for task in rows.tasks:
        if task.assignment.name in step.closed:
            metrics.stream_tasks.labels(outcome=_outcome(task)).inc()


def _outcome(task: StreamTaskRow) -> str:
    if task.succeeded:
        return "succeeded"
    return "failed" if task.ending_since is None else "stopped"
