"""Steps 2 and 3 of a run: partitions of the stream, tasks of other owners, and their checkpoints.

Pure. A task that no group has was started by a former owner, or was given up. One that publishes
may go on; one that reads joins the group of its work, and any other is stopped.
"""

from __future__ import annotations

from dataclasses import replace

from common.model.streams.partitions import topic_of
from common.model.streams.sequences import base_sequence_name
from common.model.streams.spec import Offsets
from common.model.streams.tasks import TaskStatus
from master.supervisors import conversations
from master.supervisors.decisions import EventKind
from master.supervisors.draft import ANSWER_LIMIT, Draft
from master.supervisors.view import StreamFailure, StreamSnapshot, StreamTask, TaskGroup

_SHOWN_TOPICS = 5
NOT_READING = frozenset({TaskStatus.NOT_STARTED, TaskStatus.STARTING, TaskStatus.STANDBY})


def update_partitions(draft: Draft) -> bool:
    """Learn new partitions; False if the run must end, since no run has known any yet."""
    stream = draft.view.stream
    if isinstance(stream, StreamFailure):
        draft.fail(stream.reason, of_stream=True)
        return draft.health.has_succeeded
    if not stream.latest:
        draft.fail(_nothing(draft, stream), of_stream=True)
        return draft.health.has_succeeded
    known = set(draft.partitions)
    wanted = stream.latest if draft.bounds is None else draft.bounds.starts
    missing = [partition for partition in wanted if partition not in stream.latest]
    if missing:
        draft.fail(f"the topic has no partition {missing[0]}, which boundedStreamConfig names")
        return False
    found = sorted(partition for partition in wanted if partition not in known)
    if known or draft.view.stored:
        # A new owner knows none, but what was read from has a stored offset: the others are new.
        draft.later.update(each for each in found if each not in draft.view.stored)
    if found:
        draft.partitions = sorted((*draft.partitions, *found))
    for partition in found:
        draft.offsets.setdefault(partition, None)
    if draft.spec.io.has_pattern and draft.bounds is None:
        _leave_topics(draft, stream)
    return True


def _leave_topics(draft: Draft, stream: StreamSnapshot) -> None:
    """Forget the partitions of topics that were deleted, or that another pattern left out.

    What a task reads of them now is published with the rest. Their stored offsets stay.
    """
    gone = {
        each
        for each in draft.partitions
        if each not in stream.latest and topic_of(each, "") not in stream.troubles
    }
    if not gone:
        return
    draft.partitions = [each for each in draft.partitions if each not in gone]
    topics = sorted({topic_of(each, "") for each in gone})
    shown = ", ".join(topics[:_SHOWN_TOPICS]) + (" and others" * (len(topics) > _SHOWN_TOPICS))
    draft.alert(
        EventKind.WARNING,
        f"topics left the supervisor: {shown}. They were deleted, or the pattern"
        f" {draft.spec.io.topic!r} leaves them out; their offsets stay stored",
    )


def _nothing(draft: Draft, stream: StreamSnapshot) -> str:
    topic = draft.spec.io.topic
    if not draft.spec.io.has_pattern:
        return f"the topic {topic!r} has no partitions, or does not exist"
    if stream.troubles:
        name = min(stream.troubles)
        return f"no topic of the pattern {topic!r} can be read; {name}: {stream.troubles[name]}"
    return f"no topic matches the pattern {topic!r}"


def watch_layout(draft: Draft) -> None:
    """Have groups that lack partitions end early, once the transition time is over."""
    if draft.early_stop_at is None and any(
        draft.tasks_of(group) and lacks_partitions(draft, group)
        for group in draft.reading.values()
        if not group.agrees and group.group_id not in draft.requested
    ):
        draft.early_stop_at = draft.now + draft.spec.tuning.repartition_transition


def lacks_partitions(draft: Draft, group: TaskGroup) -> bool:
    """Return True if the layout gives a reading group partitions that it does not read."""
    stream = draft.view.stream
    if draft.bounds is not None or isinstance(stream, StreamFailure):
        return False
    return any(
        partition not in group.starts and partition in stream.latest
        for partition in draft.layout.get(group.group_id, ())
    )


def discover_tasks(draft: Draft) -> None:
    """Give each unknown task to a group, or stop it; then check the groups that grew."""
    known = {name for group in (*draft.reading.values(), *draft.publishing) for name in group.tasks}
    grown: list[int] = []
    for name in sorted(draft.view.tasks.keys() - known):
        task = draft.view.tasks[name]
        if task.end is not None:
            continue
        if task.ending_since is not None:
            _remind(draft, task)
        elif task.standby_of is not None:
            # It has no work that could be another one; `standbys` ends it if it is not needed.
            continue
        elif task.publishes:
            _join_publishing(draft, task)
        elif _joins_reading(draft, task):
            grown.append(draft.group_of(min(task.starts)))
        else:
            draft.stop((name,), "the task does other work than the supervisor wants")
    for group_id in dict.fromkeys(grown):
        verify_checkpoints(draft, draft.reading[group_id])
    if not draft.has_discovered:
        _resume_all(draft)
        draft.has_discovered = True


def verify_checkpoints(draft: Draft, group: TaskGroup) -> None:
    """Set a group's checkpoints by its tasks and the store; kill the tasks that disagree.

    The first task that has a checkpoint at the stored offsets tells where the group stands; while
    an earlier group publishes, the stored offsets are behind, and the first checkpoint counts.
    """
    if group.agrees:
        # Replicas differ until all have taken note of their ends.
        return
    told = [
        task
        for task in draft.tasks_of(group)
        if task.checkpoints and task.status not in NOT_READING
    ]
    told.sort(key=lambda task: (-min(task.checkpoints), task.name))
    waits = draft.waits_for_publication(group)
    agreed: dict[int, Offsets] | None = None
    wrong: list[str] = []
    for task in told:
        if agreed is None:
            first = _first_agreed(draft, task, waits=waits)
            if first is None:
                wrong.append(task.name)
                continue
            agreed = _from(task, first)
        elif _from(task, min(agreed)) != agreed:
            wrong.append(task.name)
    draft.kill(wrong, "the task's checkpoints differ from those of its group or from the store")
    if agreed is not None:
        group = replace(group, checkpoints=agreed)
    if wrong:
        group = draft.without(group, wrong)
    draft.reading[group.group_id] = group
    if (wrong and agreed is None) or not (group.tasks or waits):
        draft.drop(group, "no task of the group agrees with the store")


def _first_agreed(draft: Draft, task: StreamTask, *, waits: bool) -> int | None:
    if waits:
        return min(task.checkpoints)
    stored = draft.view.stored
    for number in sorted(task.checkpoints, reverse=True):
        offsets = task.checkpoints[number]
        if all(stored.get(partition, offset) == offset for partition, offset in offsets.items()):
            return number
    return None


def _from(task: StreamTask, first: int) -> dict[int, Offsets]:
    return {
        number: task.checkpoints[number] for number in sorted(task.checkpoints) if number >= first
    }


def _remind(draft: Draft, task: StreamTask) -> None:
    if task.ending_since is not None and draft.now >= task.ending_since + ANSWER_LIMIT:
        draft.kill((task.name,), "the task did not stop when it was asked to")


def _join_publishing(draft: Draft, task: StreamTask) -> None:
    for index, group in enumerate(draft.publishing):
        if group.base_sequence == task.base_sequence and group.starts == task.starts:
            draft.publishing[index] = replace(group, tasks=(*group.tasks, task.name))
            break
    else:
        group = replace(
            _group_of(draft, task),
            ends=task.ends,
            completion_at=draft.now + draft.spec.io.completion_timeout,
        )
        draft.publishing.append(group)
        # Oldest first, as its successor builds on what it publishes.
        draft.publishing.sort(key=lambda each: sorted(each.starts.items()))
    for partition in sorted(task.starts):
        end = None if task.ends is None else task.ends.get(partition)
        start = draft.offsets.get(partition)
        if end is None or start is None or start < end:
            draft.offsets[partition] = end


def _joins_reading(draft: Draft, task: StreamTask) -> bool:
    group_ids = {draft.group_of(partition) for partition in task.starts}
    if len(group_ids) != 1 or task.base_sequence != base_sequence_name(
        draft.spec,
        draft.view.work,
        starts=task.starts,
        min_time=task.min_time,
        max_time=task.max_time,
    ):
        return False
    group = draft.reading.get(group_ids.pop())
    if group is None:
        group = _group_of(draft, task)
    elif group.base_sequence != task.base_sequence or group.starts != task.starts:
        return False
    else:
        group = replace(
            group,
            tasks=(*group.tasks, task.name),
            requests=max(group.requests, task.request),
        )
    draft.reading[group.group_id] = group
    return True


def _group_of(draft: Draft, task: StreamTask) -> TaskGroup:
    return TaskGroup(
        group_id=draft.group_of(min(task.starts, default=0)),
        work=draft.view.work,
        starts=task.starts,
        base_sequence=task.base_sequence,
        min_time=task.min_time,
        max_time=task.max_time,
        tasks=(task.name,),
        checkpoints=task.checkpoints or {0: task.starts},
        requests=task.request,
    )


def _resume_all(draft: Draft) -> None:
    """Resume tasks that a former owner paused, perhaps in its last moment.

    A task that is paused although its last order was another one is killed if it stays paused.
    """
    for group_id in sorted(draft.reading):
        group = draft.reading[group_id]
        if group.agrees:
            continue
        tasks = draft.tasks_of(group)
        paused = tuple(task.name for task in tasks if task.paused)
        if paused:
            draft.reading[group_id] = conversations.resume(draft, group, paused)
        elif any(
            task.status is TaskStatus.PAUSED and task.request_seen < task.request for task in tasks
        ):
            draft.reading[group_id] = conversations.await_resumed(draft, group)
