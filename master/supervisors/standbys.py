"""Standbys: tasks that are started shortly before a hand-over, so that it takes little time.

Pure. A standby has no work. `creation` gives a new group those of its predecessor, in the same step
in which that one is told its ends; a group of other work, or of another layout, may have them too.
They are an offer: without them a hand-over goes on as well, and takes as long as a task needs to
start. Nothing is remembered of them but that they were started: the others are found in the view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from common.model.streams.sequences import standby_name
from common.model.streams.tasks import TaskStatus
from master.supervisors.decisions import StartStandby
from master.supervisors.draft import CLAIM_LIMIT, READY_LIMIT, Draft
from master.supervisors.health import State
from master.supervisors.view import StreamTask, TaskGroup


def start(draft: Draft, groups: Iterable[TaskGroup]) -> None:
    """Start the successors of reading groups ahead, once for each of them."""
    for group in groups:
        if group.prepared_at is not None or not _has_successor(draft, group):
            continue
        missing = draft.spec.io.replicas - len(_of(draft, group.group_id))
        if missing > 0:
            draft.prepared.add(group.group_id)
        for _ in range(missing):
            draft.decide(
                StartStandby(
                    name=draft.task_name(standby_name(draft.spec, group.group_id)),
                    group_id=group.group_id,
                    base_sequence=standby_name(draft.spec, group.group_id),
                )
            )
        draft.reading[group.group_id] = replace(group, prepared_at=draft.now)


def keep(draft: Draft, groups: Iterable[TaskGroup]) -> None:
    """Take over the standbys that a former owner has started for groups whose time is over."""
    for group in groups:
        if group.prepared_at is None and _of(draft, group.group_id):
            draft.reading[group.group_id] = replace(group, prepared_at=draft.now)


def are_awaited(draft: Draft, group: TaskGroup) -> bool:
    """Return True if it's worth to wait for the standbys of a group that is to be handed over."""
    since = group.prepared_at
    if since is None or draft.now >= since + READY_LIMIT or not _has_successor(draft, group):
        return False
    if group.group_id in draft.prepared:
        return True
    return any(
        task.assigned or draft.now < since + CLAIM_LIMIT
        for task in _of(draft, group.group_id)
        if not _is_ready(task)
    )


def take(draft: Draft, group_id: int, most: int) -> list[str]:
    """Return the names of standbys to give work to, those that are ready first."""
    fit = [task for task in _of(draft, group_id) if _is_ready(task) or not _is_late(draft, task)]
    fit.sort(key=lambda task: (not _is_ready(task), not task.assigned, task.name))
    names = [task.name for task in fit[:most]]
    draft.given.update(names)
    return names


def stop_unneeded(draft: Draft) -> None:
    """End the standbys that no hand-over is expected to need."""
    for name in sorted(draft.view.tasks):
        task = draft.view.tasks[name]
        if task.standby_of is None or not _is_free(draft, task):
            continue
        group = draft.reading.get(task.standby_of)
        if group is None or group.prepared_at is None or not _has_successor(draft, group):
            if draft.stopping_since is not None:
                # Nobody is there later to see that it has ended.
                draft.kill((name,), "the supervisor was stopped")
            else:
                draft.stop((name,), "no hand-over needs the standby any more")


def _has_successor(draft: Draft, group: TaskGroup) -> bool:
    return not (
        draft.spec.suspended
        or draft.stopping_since is not None
        or draft.rescaling is not None
        or draft.bounds is not None
        or draft.health.state is State.IDLE
        or group.group_id not in draft.layout
        # The standbys may have the very slots for which its tasks wait.
        or not any(task.assigned for task in draft.tasks_of(group))
    )


def _of(draft: Draft, group_id: int) -> list[StreamTask]:
    return [task for task in draft.standbys.get(group_id, ()) if _is_free(draft, task)]


def _is_free(draft: Draft, task: StreamTask) -> bool:
    return task.end is None and task.ending_since is None and task.name not in draft.given


def _is_ready(task: StreamTask) -> bool:
    return task.assigned and task.status is TaskStatus.STANDBY


def _is_late(draft: Draft, task: StreamTask) -> bool:
    begun: datetime | None = task.assigned_at
    return begun is not None and draft.now >= begun + READY_LIMIT
