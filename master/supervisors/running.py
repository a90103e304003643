"""The run of a supervisor: ten steps from the partitions of its stream to its tasks.

Pure. Runs are level-triggered: each compares all that is with all that should be, so a lost notice
costs a period and nothing else. Step 1 of the original, registering a listener, has no equal here:
a master hears of its tasks anyway.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from common.model.streams.partitions import Partition
from common.model.streams.spec import Offsets
from master.supervisors import conversations, creation, discovery, standbys
from master.supervisors.decisions import EndSupervisor, EventKind, SaveTaskCount, ScheduleRun
from master.supervisors.draft import Draft, begin_of
from master.supervisors.health import State
from master.supervisors.view import StreamSnapshot, StreamTask, TaskGroup

SOONEST: Final = timedelta(seconds=1)
"""The least time between the begins of two runs."""


def run(draft: Draft) -> None:
    """Carry out one run, unless the last one began less than a second ago."""
    if draft.last_run_at is not None and draft.now < draft.last_run_at + SOONEST:
        draft.decide(ScheduleRun(at=draft.last_run_at + SOONEST))
        return
    draft.last_run_at = draft.now
    _steps(draft)
    draft.health = draft.health.after_run(good=not draft.has_failed, suspended=draft.spec.suspended)


def _steps(draft: Draft) -> None:
    draft.towards(State.CONNECTING_TO_STREAM)
    if not discovery.update_partitions(draft) and draft.stopping_since is None:
        return
    draft.towards(State.DISCOVERING_INITIAL_TASKS)
    discovery.discover_tasks(draft)
    _check_reading(draft)
    discovery.watch_layout(draft)
    _go_on(draft)
    _prepare_hand_overs(draft)
    _begin_hand_overs(draft)
    _check_publishing(draft)
    is_idle = _is_idle(draft)
    _make_tasks(draft, is_idle=is_idle)
    standbys.stop_unneeded(draft)


def _make_tasks(draft: Draft, *, is_idle: bool) -> None:
    """Steps 8 and 9."""
    if draft.stopping_since is not None:
        _finish_stop(draft)
    elif draft.rescaling is not None:
        _finish_rescaling(draft)
    elif creation.is_published(draft):
        draft.decide(EndSupervisor(is_complete=True))
    elif not (is_idle or draft.spec.suspended):
        draft.towards(State.CREATING_TASKS)
        creation.create_tasks(draft)


def _check_reading(draft: Draft) -> None:
    """Step 7, and the bounded tasks that have come to their ends by themselves."""
    for group_id in sorted(draft.reading):
        group = draft.reading[group_id]
        if draft.has_succeeded(group):
            draft.complete(group)
            # It has published its range, and only the store knows its end for certain.
            draft.forget_offsets(group.starts)
            del draft.reading[group_id]
            continue
        group = draft.without_ended(group)
        tasks = draft.tasks_of(group)
        others = [each.name for each in tasks if each.base_sequence != group.base_sequence]
        if others:
            draft.stop(others, "the task does other work than its group")
            group = draft.without(group, others)
        draft.reading[group_id] = group
        ended = _self_ended(draft, group)
        if ended is not None and not group.agrees:
            conversations.to_publishing(draft, group, ended)


def _self_ended(draft: Draft, group: TaskGroup) -> Offsets | None:
    if draft.bounds is None:
        return None
    publishing = (task for task in draft.tasks_of(group) if task.publishes)
    return next((task.ends for task in publishing if task.ends is not None), None)


def _go_on(draft: Draft) -> None:
    for group_id in sorted(draft.reading):
        group = conversations.go_on(draft, draft.reading[group_id])
        if group_id in draft.reading:
            draft.reading[group_id] = group
    for index, group in enumerate(draft.publishing):
        draft.publishing[index] = conversations.go_on(draft, group)


def _prepare_hand_overs(draft: Draft) -> None:
    """Start the successors of groups that are handed over soon, or as soon as these are ready."""
    early_at, lead = draft.early_stop_at, draft.standby_lead
    soon = _due_by(draft, draft.now + lead)
    if early_at is not None and draft.now >= early_at - lead:
        early = [
            group for group in draft.reading.values() if discovery.lacks_partitions(draft, group)
        ]
        soon += early
        if draft.now >= early_at:
            draft.early_stop_at = None
            draft.requested.update(group.group_id for group in early)
    # One whose time is over already is not kept waiting for standbys that nobody has started.
    over = _due_by(draft, draft.now)
    standbys.keep(draft, over)
    wanted = {group.group_id for group in soon} - {group.group_id for group in over}
    wanted |= draft.requested
    standbys.start(
        draft,
        [
            group
            for group_id, group in draft.reading.items()
            if group_id in wanted and not group.agrees and not _is_unwanted(draft, group)
        ],
    )


def _begin_hand_overs(draft: Draft) -> None:
    """Step 5: hand over the groups whose time is over, and all that are not wanted any more."""
    due = {group.group_id for group in _due_by(draft, draft.now)}
    waiting = set()
    for group_id in sorted(draft.reading):
        group = draft.reading[group_id]
        is_wanted = not _is_unwanted(draft, group)
        if group.agrees or (is_wanted and group_id not in due | draft.requested):
            continue
        if is_wanted and standbys.are_awaited(draft, group):
            waiting.add(group_id)
        else:
            conversations.begin(draft, group, finish=True)
    draft.requested &= waiting


def _due_by(draft: Draft, moment: datetime) -> list[TaskGroup]:
    """Return the groups whose time is over at a moment, as many as may end at once."""
    reading = list(draft.reading.values())
    room = draft.spec.io.stop_task_count or len(reading)
    room -= sum(group.agrees for group in reading)
    due = []
    for group in reading:
        begin = begin_of(draft.tasks_of(group))
        if (
            begin is not None
            and moment >= begin + draft.spec.io.task_duration
            and not group.agrees
            and group.group_id not in draft.requested
            and not _is_unwanted(draft, group)
        ):
            due.append((begin, group.group_id, group))
    due.sort(key=lambda each: each[:2])
    return [group for _, _, group in due[: max(0, room)]]


def _is_unwanted(draft: Draft, group: TaskGroup) -> bool:
    return (
        draft.spec.suspended
        or draft.stopping_since is not None
        or draft.rescaling is not None
        or group.work != draft.view.work
        or any(draft.group_of(each) != group.group_id for each in group.starts)
    )


def _check_publishing(draft: Draft) -> None:
    """Step 6: drop the groups that have published; give up those that failed or took too long."""
    left = list(draft.publishing)
    draft.publishing = []
    while left:
        group = left.pop(0)
        if draft.has_succeeded(group):
            draft.complete(group)
            continue
        group = draft.without_ended(group)
        is_late = group.completion_at is not None and draft.now >= group.completion_at
        if group.tasks and not is_late:
            draft.publishing.append(group)
            continue
        left = _give_up(draft, group, left, is_late=is_late)


def _give_up(
    draft: Draft, group: TaskGroup, left: list[TaskGroup], *, is_late: bool
) -> list[TaskGroup]:
    """End a group that did not publish, with all that build on its ends; return the others."""
    reason = "did not publish in time" if is_late else "failed before it published"
    draft.alert(EventKind.WARNING, f"task group {group.base_sequence} {reason}; it is read again")
    draft.kill((task.name for task in draft.tasks_of(group)), f"the group {reason}")
    draft.forget_offsets(group.starts)
    lost = [group]
    kept = []
    for later in left:
        if any(later.overlaps(each) for each in lost):
            lost.append(later)
            draft.kill((task.name for task in draft.tasks_of(later)), f"an earlier group {reason}")
            draft.forget_offsets(later.starts)
        else:
            kept.append(later)
    for group_id in sorted(draft.reading):
        reading = draft.reading[group_id]
        if any(reading.overlaps(each) for each in lost):
            draft.drop(reading, f"an earlier group {reason}")
    return kept


def _is_idle(draft: Draft) -> bool:
    """Step 8: True if nothing new has come, and all was read, for long enough.

    The time counts from the last run that found anything, since nothing has come since then.
    """
    rule, stream = draft.spec.io.idle, draft.view.stream
    if not rule.enabled or draft.spec.suspended:
        draft.quiet_since = None
        return False
    if not isinstance(stream, StreamSnapshot):
        return False
    is_quiet = stream.latest == draft.last_latest and not any(lag_of(draft).values())
    draft.last_latest = stream.latest
    if not is_quiet or draft.quiet_since is None:
        draft.quiet_since = draft.now
        if draft.health.state is State.IDLE:
            draft.towards(State.RUNNING)
        return False
    if draft.now - draft.quiet_since < rule.inactive_after:
        return False
    draft.towards(State.IDLE)
    return True


def lag_of(draft: Draft) -> Offsets:
    """The number of records of each partition that no task has read yet."""
    stream = draft.view.stream
    if not isinstance(stream, StreamSnapshot):
        return {}
    positions: dict[Partition, int] = {}
    for partition, latest in stream.latest.items():
        offset = draft.offsets.get(partition)
        if offset is None:
            offset = draft.view.stored.get(partition, latest)
        positions[partition] = offset
    for group in draft.reading.values():
        for partition, offset in _reached(draft.tasks_of(group)).items():
            positions[partition] = max(offset, positions.get(partition, 0))
    return {
        partition: max(0, latest - positions[partition])
        for partition, latest in stream.latest.items()
    }


def _reached(tasks: list[StreamTask]) -> dict[Partition, int]:
    reached: dict[Partition, int] = {}
    for task in tasks:
        for partition, offset in task.offsets.items():
            reached[partition] = max(offset, reached.get(partition, 0))
    return reached


def _finish_stop(draft: Draft) -> None:
    since = draft.stopping_since
    if since is None:
        return
    is_late = draft.now >= since + draft.spec.tuning.shutdown_timeout
    if draft.reading and not is_late:
        return
    for group_id in sorted(draft.reading):
        draft.drop(draft.reading[group_id], "the supervisor was stopped before the task published")
    draft.decide(EndSupervisor())


def _finish_rescaling(draft: Draft) -> None:
    if draft.rescaling is None or draft.reading:
        return
    draft.decide(SaveTaskCount(task_count=draft.rescaling.task_count))
    draft.rescaling = None
    draft.last_scaled_at = draft.now
    draft.decide(ScheduleRun(at=draft.now + SOONEST))
