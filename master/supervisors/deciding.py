"""Decides what follows from a notice to a supervisor.

Pure. The entry point of this package: `decide` never raises for anything that a view can hold.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from common.model.streams.spec import Offsets
from master.supervisors import conversations
from master.supervisors.decisions import (
    Decision,
    EndSupervisor,
    EventKind,
    RemoveOffsets,
    ScheduleRun,
    SetOffsets,
)
from master.supervisors.draft import Draft
from master.supervisors.health import State
from master.supervisors.notices import (
    Checkpoint,
    GracefulShutdown,
    HandOver,
    Notice,
    Reset,
    ResetOffsets,
    Run,
    Scale,
    Shutdown,
)
from master.supervisors.running import run
from master.supervisors.view import Rescaling, SupervisorView


def decide(view: SupervisorView, notice: Notice, *, now: datetime) -> tuple[Decision, ...]:
    """Return the decisions for a notice, in the order in which they are to be carried out."""
    draft = Draft(view, now)
    match notice:
        case Run():
            run(draft)
        case Reset():
            _reset(draft, notice)
        case ResetOffsets():
            _reset_offsets(draft, notice.offsets)
        case Checkpoint():
            _checkpoint(draft, notice)
        case HandOver():
            _hand_over(draft, notice)
        case Scale():
            _scale(draft, notice.task_count)
        case GracefulShutdown():
            draft.stopping_since = draft.stopping_since or now
            draft.towards(State.STOPPING)
            draft.decide(ScheduleRun(at=now))
        case Shutdown():
            draft.towards(State.STOPPING)
            draft.decide(EndSupervisor())
        case _:
            assert_never(notice)
    return draft.finished()


def _reset(draft: Draft, notice: Reset) -> None:
    """Forget stored offsets, and give up the groups that read on from them.

    Groups that publish are left alone: what they read was read from a good start.
    """
    topic = draft.spec.io.topic
    if notice.stream is not None and notice.stream != topic:
        draft.alert(
            EventKind.WARNING,
            f"a reset of the stream {notice.stream!r} was ignored; this one reads {topic!r}",
        )
        return
    if notice.offsets is None:
        draft.decide(RemoveOffsets(partitions=None))
        for group_id in sorted(draft.reading):
            draft.drop(draft.reading[group_id], "the supervisor was reset")
        draft.offsets = dict.fromkeys(draft.offsets)
    else:
        offsets = _as_seen(draft, notice)
        if not _resets_anything(draft, offsets):
            if offsets:
                draft.alert(
                    EventKind.WARNING, "a reset was ignored: it had been carried out before"
                )
            return
        seen = {each: notice.seen[each] for each in sorted(offsets) if each in notice.seen}
        others = tuple(each for each in sorted(offsets) if each not in seen)
        if others:
            draft.decide(RemoveOffsets(partitions=others))
        if seen:
            # A task may publish in this very moment: then the whole step is looked at again.
            draft.decide(RemoveOffsets(partitions=tuple(seen), expected=seen))
        _drop_readers(draft, offsets)
    draft.decide(ScheduleRun(at=draft.now))


def _as_seen(draft: Draft, notice: Reset) -> Offsets:
    """Return the partitions to reset without those that have been published on since."""
    kept = {}
    for partition, offset in (notice.offsets or {}).items():
        stored = draft.view.stored.get(partition)
        if partition in notice.seen and stored is not None and stored != notice.seen[partition]:
            draft.alert(
                EventKind.WARNING,
                f"a reset of partition {partition} was ignored: it is published up to {stored} by"
                f" now, and was up to {notice.seen[partition]} when the reset was asked for",
            )
        else:
            kept[partition] = offset
    return kept


def _resets_anything(draft: Draft, offsets: Offsets) -> bool:
    if any(partition in draft.view.stored for partition in offsets):
        return True
    return any(
        group.starts.get(partition) == offset
        for group in draft.reading.values()
        for partition, offset in offsets.items()
    )


def _reset_offsets(draft: Draft, offsets: Offsets) -> None:
    draft.decide(SetOffsets(offsets=dict(offsets)))
    _drop_readers(draft, offsets)
    draft.decide(ScheduleRun(at=draft.now))


def _drop_readers(draft: Draft, offsets: Offsets) -> None:
    for group_id in sorted(draft.reading):
        group = draft.reading[group_id]
        if any(partition in group.starts for partition in offsets):
            draft.drop(group, "its offsets were reset")
    # Not even an earlier group that publishes tells the start now.
    draft.offsets.update(dict.fromkeys(offsets))


def _checkpoint(draft: Draft, notice: Checkpoint) -> None:
    """Begin a checkpoint, unless another replica has asked for the same one already."""
    group = draft.reading.get(notice.group_id)
    if group is None or group.base_sequence != notice.base_sequence:
        if any(each.base_sequence == notice.base_sequence for each in draft.publishing):
            draft.alert(
                EventKind.WARNING,
                f"a checkpoint of {notice.base_sequence} was ignored: the group publishes",
            )
            return
        draft.fail(f"a checkpoint was asked for the unknown task group {notice.base_sequence}")
        return
    if group.agrees:
        return
    number, newest = group.newest_checkpoint
    known = [each for each in group.checkpoints if group.checkpoints[each] == notice.previous]
    if not known:
        draft.fail(
            f"a checkpoint of {notice.base_sequence} was asked after one that the group never had"
        )
    elif newest == notice.previous:
        conversations.begin(draft, group, finish=False)
    elif max(known) < number - 1:
        # A replica that is one behind requests the checkpoint that the group has just made.
        draft.fail(
            f"a task of {notice.base_sequence} requested the checkpoint after {max(known)}, but"
            f" the group has made {number}: the task missed the ends of a sequence"
        )


def _hand_over(draft: Draft, notice: HandOver) -> None:
    unknown = sorted(notice.group_ids - draft.reading.keys())
    if unknown:
        draft.alert(EventKind.WARNING, f"there is no reading task group {unknown[0]} to hand over")
    draft.requested |= notice.group_ids & draft.reading.keys()
    draft.decide(ScheduleRun(at=draft.now))


def _scale(draft: Draft, task_count: int) -> None:
    """Begin to change the number of groups, unless a hand-over is under way or it is too soon."""
    rule = draft.spec.io.scaling
    last = draft.last_scaled_at
    refused = (
        draft.spec.suspended
        or draft.stopping_since is not None
        or draft.rescaling is not None
        or task_count == draft.spec.io.task_count
        or task_count < 1
        or bool(draft.publishing)
        or any(group.agrees for group in draft.reading.values())
    )
    if refused or (rule and last is not None and draft.now < last + rule.cool_down):
        return
    draft.rescaling = Rescaling(task_count=task_count)
    draft.decide(ScheduleRun(at=draft.now))
