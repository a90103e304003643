"""Step 9 of a run: new groups, and tasks for groups that are short of replicas.

Pure. A group starts where the last one ended, else at the stored offsets, else where the stream is
asked to begin; that answer is stored at once, so that it is asked only once. An offset that the
stream no longer has is never passed over silently, neither for a new group nor for the replacement
of a task. The tasks of a new group are the standbys that wait for it, as far as there are any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from common.model.streams.partitions import Partition, topic_of
from common.model.streams.sequences import base_sequence_name
from common.model.streams.spec import Bounds, Offsets
from master.supervisors import standbys
from master.supervisors.decisions import (
    AssignTask,
    EventKind,
    RecordStarts,
    RemoveOffsets,
    ScheduleRun,
    StartTask,
)
from master.supervisors.discovery import NOT_READING, verify_checkpoints
from master.supervisors.draft import Draft
from master.supervisors.view import StreamSnapshot, TaskGroup

_LOOK_AGAIN: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starts:
    """The starts of a group, and those of them that the stream was asked for."""

    offsets: dict[Partition, int]
    asked: dict[Partition, int]


def create_tasks(draft: Draft) -> None:
    """Make missing groups, and start tasks until each group has its replicas."""
    replicas = draft.spec.io.replicas
    for group_id in sorted(draft.reading):
        if len(draft.reading[group_id].tasks) < replicas:
            verify_checkpoints(draft, draft.reading[group_id])
            if group_id in draft.reading:
                _check_start(draft, draft.reading[group_id])
    _create_groups(draft)
    has_started = False
    for group_id in sorted(draft.reading):
        group = draft.reading[group_id]
        missing = replicas - len(group.tasks)
        if missing > 0 and not group.agrees and _expired(draft, group) is None:
            draft.reading[group_id] = _start(draft, group, missing)
            has_started = True
    if has_started:
        draft.decide(ScheduleRun(at=draft.now + _LOOK_AGAIN))


def _check_start(draft: Draft, group: TaskGroup) -> None:
    """Drop or hand over a group that has to be read from an expired offset.

    Every task that is started there fails. Tasks that read already continue.
    """
    expired = _expired(draft, group)
    if expired is None or group.agrees:
        return
    if all(task.status in NOT_READING for task in draft.tasks_of(group)):
        draft.drop(group, f"{expired} has expired before a task of the group read it")
    elif group.group_id not in draft.requested:
        draft.requested.add(group.group_id)
        draft.alert(
            EventKind.WARNING,
            f"a task of {group.base_sequence} can't be replaced, since {expired} has expired; the"
            " group is handed over now",
        )
        draft.decide(ScheduleRun(at=draft.now))


def _expired(draft: Draft, group: TaskGroup) -> str | None:
    """Name the offset from which a new task of a group would read, if the stream has lost it."""
    stream = draft.view.stream
    if not isinstance(stream, StreamSnapshot):
        return None
    starts = group.checkpoints[min(group.checkpoints)]
    return next(
        (
            f"offset {starts[each]} of partition {each} of {draft.spec.io.topic!r}"
            for each in sorted(starts)
            if starts[each] < stream.earliest.get(each, starts[each])
        ),
        None,
    )


def is_published(draft: Draft) -> bool:
    """Return True if all of a bounded range is published, and no task is left."""
    bounds, stored = draft.bounds, draft.view.stored
    if bounds is None or draft.reading or draft.publishing:
        return False
    return all(
        stored.get(partition, bounds.starts[partition]) >= end
        for partition, end in bounds.ends.items()
    )


def _create_groups(draft: Draft) -> None:
    """Make the missing groups; one that can't be made fails the run, and harms no other."""
    taken = {partition for group in draft.reading.values() for partition in group.starts}
    recorded: dict[Partition, int] = {}
    for group_id, partitions in draft.layout.items():
        if group_id in draft.reading or any(each in taken for each in partitions):
            # Groups of another layout still read some of them; they are being handed over.
            continue
        starts = _starts(draft, partitions)
        if starts is not None and starts.offsets:
            recorded.update(starts.asked)
            draft.reading[group_id] = _new_group(draft, group_id, starts.offsets)
    if recorded:
        draft.decide(RecordStarts(offsets=recorded))


def _starts(draft: Draft, partitions: tuple[Partition, ...]) -> _Starts | None:
    stream = draft.view.stream
    if not isinstance(stream, StreamSnapshot):
        # The failed run was noted when the partitions were asked for.
        return None
    found = _Starts(offsets={}, asked={})
    for partition in partitions:
        if partition not in stream.latest:
            # The others of its group are read; it joins them at a hand-over once it is back.
            draft.fail(_absence(draft, stream, partition), of_stream=True)
            continue
        offset = draft.offsets.get(partition)
        if offset is not None and offset < stream.earliest.get(partition, offset):
            if any(partition in each.starts for each in draft.publishing):
                draft.fail(
                    f"{_expiry(draft, partition, offset, stream.earliest[partition])}. The"
                    " supervisor checks this again after the earlier records are published"
                )
                return None
            # No group publishes up to there any more: the stored offset counts.
            offset = draft.offsets[partition] = None
        if offset is None:
            offset = draft.view.stored.get(partition)
            if offset is None:
                offset = found.asked[partition] = _first(draft, stream, partition)
            earliest = stream.earliest.get(partition, offset)
            if offset < earliest:
                _lost(draft, partition, offset, earliest)
                return None
        if draft.bounds is None:
            found.offsets[partition] = offset
        elif not _within(draft, draft.bounds, partition, offset):
            return None
        elif offset < draft.bounds.ends[partition]:
            found.offsets[partition] = offset
    return found


def _absence(draft: Draft, stream: StreamSnapshot, partition: Partition) -> str:
    topic = topic_of(partition, draft.spec.io.topic)
    if topic in stream.troubles:
        return f"partition {partition} can't be read now: {stream.troubles[topic]}"
    return f"partition {partition} of {draft.spec.io.topic!r} is gone"


def _first(draft: Draft, stream: StreamSnapshot, partition: Partition) -> int:
    """Return the start of a partition of which nothing is stored."""
    if draft.bounds is not None:
        return draft.bounds.starts[partition]
    if draft.spec.io.use_earliest_offset or partition in draft.later:
        return stream.earliest[partition]
    return stream.latest[partition]


def _within(draft: Draft, bounds: Bounds, partition: Partition, offset: int) -> bool:
    if offset >= bounds.starts[partition]:
        return True
    draft.fail(
        f"partition {partition} of {draft.spec.id!r} is published up to {offset}, before the start"
        f" of boundedStreamConfig ({bounds.starts[partition]}); reset its offsets first"
    )
    return False


def _lost(draft: Draft, partition: Partition, offset: int, earliest: int) -> None:
    what = _expiry(draft, partition, offset, earliest)
    resets = draft.spec.tuning.reset_offset_automatically and draft.bounds is None
    if resets and not draft.has_reset:
        # One partition a run, so that a mistake has time to be seen.
        draft.has_reset = True
        # A task that was given up may still have published: what it has read is not lost then.
        draft.decide(RemoveOffsets(partitions=(partition,), expected={partition: offset}))
        draft.forget_offsets((partition,))
        draft.alert(EventKind.POSSIBLE_LOSS, f"{what}; reset because of resetOffsetAutomatically")
        draft.fail(f"{what}; it was reset")
        return
    draft.fail(
        f"{what}. Reset the supervisor to go on without these records, or set"
        " tuningConfig.resetOffsetAutomatically"
    )


def _expiry(draft: Draft, partition: Partition, offset: int, earliest: int) -> str:
    return (
        f"offset {offset} of partition {partition} of {draft.spec.io.topic!r} has expired; the"
        f" stream begins at {earliest}"
    )


def _new_group(draft: Draft, group_id: int, starts: Offsets) -> TaskGroup:
    min_time, max_time = _message_times(draft)
    return TaskGroup(
        group_id=group_id,
        work=draft.view.work,
        starts=starts,
        base_sequence=base_sequence_name(
            draft.spec, draft.view.work, starts=starts, min_time=min_time, max_time=max_time
        ),
        min_time=min_time,
        max_time=max_time,
        checkpoints={0: starts},
    )


def _message_times(draft: Draft) -> tuple[datetime | None, datetime | None]:
    """Return the times of messages that a group accepts, fixed when it is made."""
    io = draft.spec.io
    least = io.late_start
    if least is None and io.late_period is not None:
        least = draft.now - io.late_period
    if io.early_period is None:
        return least, None
    return least, draft.now + io.task_duration + io.early_period


def _start(draft: Draft, group: TaskGroup, missing: int) -> TaskGroup:
    bounds = draft.bounds
    ends = None if bounds is None else {each: bounds.ends[each] for each in group.starts}
    # Beside a task of the group a standby might be on the same worker.
    names = [] if group.tasks else standbys.take(draft, group.group_id, missing)
    kinds: list[type[StartTask | AssignTask]] = [AssignTask] * len(names)
    for _ in range(missing - len(names)):
        names.append(draft.task_name(group.base_sequence))
        kinds.append(StartTask)
    for kind, name in zip(kinds, names, strict=True):
        draft.decide(
            kind(
                name=name,
                group_id=group.group_id,
                base_sequence=group.base_sequence,
                starts=group.starts,
                checkpoints=group.checkpoints,
                min_time=group.min_time,
                max_time=group.max_time,
                ends=ends,
            )
        )
    return replace(group, tasks=(*group.tasks, *names))
