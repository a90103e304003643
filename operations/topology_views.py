"""Topologies as people are shown them: what a row, a run and a report come to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from common.model.states import LIVE_PROCESS_STATES, ProcessState, TaskState
from common.model.topologies import status_of
from common.model.topology_verdicts import Judgement, WorkerFacts, judge, shape_of
from common.store.people.topologies import TopologyView
from operations.documents.instances import name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyLine:
    """A topology in one line. `reason`: why nothing goes on, for people."""

    name: str
    status: str
    version: int
    generation: int
    project_id: int
    project: str | None
    cores: int | None
    components: int
    executors: int
    tasks: int
    uptime_seconds: float | None
    batch: int | None
    lag: int | None
    process_instance_id: int | None
    run_state: str | None
    task_instance_id: int | None
    host: str | None
    verdict: str | None
    reason: str
    created: datetime
    updated: datetime


def is_live(view: TopologyView) -> bool:
    """Return True if a run is live, or is about to begin."""
    return view.starting or (view.run is not None and view.run.state in LIVE_PROCESS_STATES)


def line_of(view: TopologyView) -> TopologyLine:
    """Put a topology into one line."""
    shape = shape_of(view.wanted, view.graph)
    judged = judgement_of(view)
    report = view.report
    return TopologyLine(
        name=view.name,
        status=status_of(view.wanted, report),
        version=view.version,
        generation=view.generation,
        project_id=view.project_id,
        project=view.project_name,
        cores=cores_of(view),
        components=len(view.graph.parts),
        executors=sum(executors for executors, _ in shape.values()),
        tasks=sum(tasks for _, tasks in shape.values()),
        uptime_seconds=uptime_of(view),
        batch=None if report is None or report.batch < 0 else report.batch,
        lag=None if report is None else sum(report.lag.values()),
        process_instance_id=None if view.run is None else view.run.id,
        run_state=None if view.run is None else name_of(ProcessState, view.run.state),
        task_instance_id=None if view.attempt is None else view.attempt.id,
        host=None if view.attempt is None else view.attempt.host,
        verdict=None if judged is None else judged.verdict.value,
        reason=reason_of(view),
        created=view.create_time,
        updated=view.update_time,
    )


def cores_of(view: TopologyView) -> int | None:
    """Return the cores that it runs with, else those that a rebalance has set."""
    if view.report is not None and view.report.cores:
        return view.report.cores
    return view.wanted.cores


def uptime_of(view: TopologyView) -> float | None:
    """Return the seconds since the running attempt has begun its work."""
    if view.report is None or view.report.began is None or not is_running(view):
        return None
    if view.attempt is None or view.holder != view.attempt.id:
        return None
    return max(timedelta(), view.looked_at - view.report.began).total_seconds()


def judgement_of(view: TopologyView) -> Judgement | None:
    """Return a supervisor's verdict on the attempt; None if there is none, or it has ended."""
    if view.attempt is None or view.run is None or view.run.state not in LIVE_PROCESS_STATES:
        return None
    facts = WorkerFacts(
        attempt=view.attempt.id,
        state=view.attempt.state,
        started_at=view.attempt.start_time,
        lost=view.attempt.lost_at is not None,
        holder=view.holder,
        reported_at=view.report_time,
        report=view.report,
    )
    return judge(facts, view.wanted, view.graph, now=view.looked_at)


def reason_of(view: TopologyView) -> str:
    """Return why nothing goes on, for people; empty if all is well."""
    if view.run is None or view.run.state not in LIVE_PROCESS_STATES:
        if view.starting:
            return "no master has begun its run yet"
        if view.wanted.killed:
            return ""
        if view.run is None:
            return "no run has begun"
        state = name_of(ProcessState, view.run.state)
        why = (view.attempt.reason if view.attempt else None) or view.run.reason or "no reason"
        return f"run {view.run.id} is {state}: {why}"
    if view.attempt is not None and view.attempt.state == TaskState.FAILURE:
        return f"attempt {view.attempt.number} failed, and another follows: {view.attempt.reason}"
    return "" if view.report is None else view.report.trouble


def is_running(view: TopologyView) -> bool:
    """Return True if a worker runs the attempt."""
    return view.attempt is not None and view.attempt.state == TaskState.RUNNING
