"""Causes for an attempt that waits for slots of pools. Pure."""

from __future__ import annotations

from common.why.causes import Cause, CauseKind
from common.why.facts import Attempt, Facts, PoolWait
from common.why.phrases import MAX_LISTED, counted, task_subject


def pools_cause(facts: Facts, attempt: Attempt) -> Cause:
    """Build the cause for an attempt that waits for slots, with the pools that are full."""
    waits = facts.pools.get(attempt.id, ())
    because: list[Cause] = []
    for wait in waits:
        if wait.size is None or wait.slots > wait.size:
            problem = (
                f"there is no pool {wait.name!r}"
                if wait.size is None
                else f"it asks for {wait.slots} slots, and pool {wait.name!r} has {wait.size}"
            )
            because.append(
                Cause(
                    cause=CauseKind.POOL_UNKNOWN,
                    subject=f"pool {wait.name!r}",
                    text=problem,
                    next="the attempt fails with this reason within a few seconds",
                )
            )
        elif not wait.has_room or wait.ahead:
            because.append(_pool_cause(wait))
    missing = [repr(wait.name) for wait in waits if not wait.has_room] or [
        repr(wait.name) for wait in waits
    ]
    return Cause(
        cause=CauseKind.POOL,
        subject=task_subject(attempt),
        text=f"task {attempt.name!r} waits for slots in {', '.join(missing) or 'a pool'}",
        since=attempt.submit_time,
        next="it is looked at as soon as a slot is free, and every few seconds",
        because=tuple(because),
    )


def _pool_cause(wait: PoolWait) -> Cause:
    holders = tuple(
        Cause(
            cause=CauseKind.RUNNING,
            subject=f"task instance {holder.task_instance_id}",
            text=f"task {holder.task_name!r} of process instance"
            f" {holder.process_instance_id} holds {holder.slots}",
            since=holder.since,
            next=f"orcaflow task why {holder.task_instance_id} tells more",
        )
        for holder in wait.holders[:MAX_LISTED]
    )
    if wait.hidden:
        hidden = Cause(
            cause=CauseKind.RUNNING,
            subject=f"pool {wait.name!r}",
            text=f"tasks of projects that are not yours hold {wait.hidden}",
        )
        holders = (*holders, hidden)
    ahead = f"; before it: {counted(wait.ahead, 'task')}" if wait.ahead else ""
    return Cause(
        cause=CauseKind.POOL,
        subject=f"pool {wait.name!r}",
        text=f"pool {wait.name!r}: {wait.used} of {wait.size} slots are taken, {wait.slots}"
        f" are needed{ahead}",
        next=f"orcaflow pool show {wait.name!r}",
        because=holders,
    )
