"""Causes for an attempt that waits for locks on datasets. Pure."""

from __future__ import annotations

from common.why.causes import Cause, CauseKind
from common.why.facts import Attempt, Facts, LockWait
from common.why.phrases import MAX_LISTED, task_subject


def locks_cause(facts: Facts, attempt: Attempt) -> Cause:
    """Build the cause for an attempt that waits for locks, with those that are in the way."""
    waits = facts.locks.get(attempt.id, ())
    because = [_wait_cause(wait) for wait in waits if wait.problem or wait.holders or wait.hidden]
    missing = ", ".join(f"{wait.type} of {wait.dataset} {wait.interval}" for wait in waits)
    return Cause(
        cause=CauseKind.LOCK,
        subject=task_subject(attempt),
        text=f"task {attempt.name!r} waits for locks: {missing}",
        since=attempt.submit_time,
        next="they are asked for as soon as an attempt with locks ends, and every few seconds",
        because=tuple(because),
    )


def _wait_cause(wait: LockWait) -> Cause:
    subject = f"dataset {wait.dataset}"
    if wait.problem:
        return Cause(
            cause=CauseKind.LOCK_IMPOSSIBLE,
            subject=subject,
            text=wait.problem,
            next="the attempt fails with this reason within a few seconds",
        )
    holders = tuple(
        Cause(
            cause=CauseKind.RUNNING,
            subject=f"task instance {holder.task_instance_id}",
            text=f"task {holder.task_name!r} of process instance {holder.process_instance_id}"
            f" holds {holder.lock}",
            next=f"orcaflow task why {holder.task_instance_id} tells more",
        )
        for holder in wait.holders[:MAX_LISTED]
    )
    if wait.hidden:
        hidden = Cause(
            cause=CauseKind.RUNNING,
            subject=subject,
            text=f"tasks of projects that are not yours hold {wait.hidden}",
        )
        holders = (*holders, hidden)
    return Cause(
        cause=CauseKind.LOCK,
        subject=subject,
        text=f"{wait.type} of {wait.dataset} {wait.interval} can't stand beside locks of equal or"
        " higher priority",
        next=f"orcaflow locks list --dataset {wait.dataset}",
        because=holders,
    )
