"""Causes for an attempt at a task: delayed, queued, running, ended, before a retry. Pure."""

from __future__ import annotations

from common.model.cluster import Node
from common.model.failures import UNEXPLAINED
from common.model.states import TaskState
from common.model.worker_needs import UNASSIGNED
from common.why.causes import Cause, CauseKind
from common.why.cluster import no_master_cause, no_zookeeper_cause, worker_causes
from common.why.facts import Attempt, Facts, LostAttempt, QueuePlace, Run
from common.why.phrases import counted, state_name, task_subject
from common.why.shape import BAD_ENDS, Shapes

_NO_WORKER = (
    CauseKind.NO_WORKER,
    CauseKind.NO_WORKER_IN_GROUP,
    CauseKind.ALL_RESERVED,
    CauseKind.WORKER_UNFIT,
    CauseKind.WORKER_DISABLED,
    CauseKind.PROJECT_SHARE,
)


def delay_cause(attempt: Attempt) -> Cause:
    return Cause(
        cause=CauseKind.DELAY,
        subject=task_subject(attempt),
        text=f"task {attempt.name!r} is delayed by its definition",
        since=attempt.submit_time,
        next="it is queued when the delay is over",
        next_at=attempt.due_at,
    )


def running_cause(facts: Facts, attempt: Attempt) -> Cause:
    """Build the cause for an attempt on a worker, which may be gone."""
    alive = facts.alive
    worker = Node(address=attempt.host or "", incarnation=attempt.worker_incarnation or 0)
    if alive is not None and worker not in alive.workers:
        return Cause(
            cause=CauseKind.WORKER_GONE,
            subject=task_subject(attempt),
            text=f"task {attempt.name!r} ran on the worker {attempt.host}, which is gone",
            since=attempt.start_time,
            next="a master takes it for lost and submits it again, unless that worker comes"
            " back within its session time-out",
            because=() if alive.masters else (no_master_cause(),),
        )
    wanted = ", and is being killed" if attempt.wanted_state is not None else ""
    waits = attempt.waits_at_manager
    queued = f"; its Spark application waits: {waits}" if waits else ""
    text = f"task {attempt.name!r} runs on {attempt.host} (attempt {attempt.attempt})"
    return Cause(
        cause=CauseKind.RUNNING,
        subject=task_subject(attempt),
        text=f"{text}{wanted}{queued}",
        since=attempt.start_time,
        next=f"orcaflow task log {attempt.id} -f shows what it does",
    )


def left_cause(run: Run, lost: LostAttempt) -> Cause:
    """Build the cause for processes that may run on, of an attempt that was given up."""
    return Cause(
        cause=CauseKind.PROCESSES_LEFT,
        subject=f"task instance {lost.id}",
        text=f"processes of attempt {lost.attempt} at {lost.name!r} may still run on {lost.host},"
        " whose worker daemon was lost: nobody has found them gone",
        since=lost.lost_at,
        next="a worker of that host, or the lost one's warden, ends them within a minute; if not,"
        f" start one there (orcaflow task list --instance {run.id} shows them)",
    )


def queued_cause(facts: Facts, attempt: Attempt) -> Cause:
    """Build the cause for an attempt in the queue, with the workers that may take it."""
    place = facts.queue.get(attempt.id, QueuePlace(ahead=0))
    alive = facts.alive
    group = place.group_name or str(place.group_id)
    whom = f"a worker of the group {group!r}" if place.group_id > 0 else "a worker"
    if attempt.host == UNASSIGNED:
        whom = f"a master to choose {whom} for it,"
    elif attempt.host:
        whom = f"{attempt.host}, which a master has chosen for it,"
    because = (
        []
        if alive is None
        else list(worker_causes(place, alive, group, percent=facts.shares.worker))
    )
    if alive is None:
        because.append(no_zookeeper_cause())
    ahead = f"; before it: {counted(place.ahead, 'task')}" if place.ahead else ""
    return Cause(
        cause=CauseKind.QUEUED,
        subject=task_subject(attempt),
        text=f"task {attempt.name!r} is in the queue and waits for {whom} with a free slot{ahead}",
        since=attempt.submit_time,
        next=None if because and because[0].cause in _NO_WORKER else "the first free slot takes it",
        because=tuple(because),
    )


def retry_cause(facts: Facts, attempt: Attempt) -> Cause:
    """Build the cause for a failed attempt before its retry."""
    late = attempt.retry_at is not None and attempt.retry_at < facts.now
    reason = f": {attempt.reason}" if attempt.reason else ""
    return Cause(
        cause=CauseKind.RETRY,
        subject=task_subject(attempt),
        text=f"task {attempt.name!r} waits for its retry; attempt {attempt.attempt} ended as"
        f" {state_name(TaskState, attempt.state)}{reason}",
        since=attempt.end_time,
        next=f"its owner makes attempt {attempt.attempt + 1}"
        + (", which is due already" if late else ""),
        next_at=attempt.retry_at,
    )


def finished_cause(shapes: Shapes, run: Run, attempt: Attempt) -> Cause:
    """Build the cause for an ended attempt that no other follows."""
    state = state_name(TaskState, attempt.state)
    reason = f": {attempt.reason}" if attempt.reason else ""
    reason += _why_not_retried(shapes, run, attempt)
    bad = attempt.state in BAD_ENDS
    return Cause(
        cause=CauseKind.FAILED if bad else CauseKind.ENDED,
        subject=task_subject(attempt),
        text=f"task {attempt.name!r} has ended: {state} (attempt {attempt.attempt}){reason}",
        since=attempt.end_time,
        next=f"orcaflow task log {attempt.id} shows what it said"
        if bad and attempt.host is not None
        else None,
    )


def _why_not_retried(shapes: Shapes, run: Run, attempt: Attempt) -> str:
    """Return a clause on why no other attempt follows, though one could; else nothing."""
    shape = shapes.of(run)
    failure = attempt.failure or UNEXPLAINED.get(attempt.state)
    if shape is None or attempt.name not in shape.graph.nodes or failure is None:
        return ""
    node = shape.graph.nodes[attempt.name]
    forbids = node.retry_policy.why_not(failure)
    if forbids is None or attempt.retry_times >= node.max_retry_times:
        return ""
    return f"; it is not tried again, for {forbids}"
