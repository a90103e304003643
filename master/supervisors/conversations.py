"""Conversations with the tasks of a group: hand-overs and checkpoints.

Pure. All tasks are asked to pause; once all have, or the silent ones are killed, the greatest
offsets that any has reached are the ends, and all are told. A task that was slower reads on to
them. A task that does not take note of its ends in time is killed too. The same applies to a task
that stays paused after the order to resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from common.model.streams.spec import Offsets
from common.model.streams.tasks import TaskStatus
from master.supervisors.decisions import AskPause, ResumeTasks, SetEnds
from master.supervisors.draft import ANSWER_LIMIT, Draft
from master.supervisors.view import Conversation, Question, StreamTask, TaskGroup


def begin(draft: Draft, group: TaskGroup, *, finish: bool) -> None:
    """Ask the tasks of a reading group to pause; one without a task that could is dropped."""
    unassigned = [task.name for task in draft.tasks_of(group) if not task.assigned]
    if unassigned:
        # It would answer at some time or never; its substitute begins at the agreed offsets.
        draft.kill(unassigned, "the group agrees on offsets before the task was assigned")
        group = draft.without(group, unassigned)
    tasks = draft.tasks_of(group)
    draft.reading[group.group_id] = group
    if not tasks:
        draft.drop(group, "no task of the group reads")
        return
    request = group.requests + 1
    draft.decide(AskPause(tasks=tuple(task.name for task in tasks), request=request))
    draft.reading[group.group_id] = replace(
        group,
        requests=request,
        conversation=Conversation(
            question=Question.PAUSE, request=request, since=draft.now, finish=finish
        ),
    )


def go_on(draft: Draft, group: TaskGroup) -> TaskGroup:
    """Take the next step of a group's conversation; returns the group, also if it was dropped."""
    talk = group.conversation
    if talk is None:
        return group
    match talk.question:
        case Question.PAUSE:
            return _pausing(draft, group, talk)
        case Question.ENDS:
            return _noting(draft, group, talk)
        case Question.RESUME:
            return _resuming(draft, group, talk)
        case _:
            assert_never(talk.question)


def resume(draft: Draft, group: TaskGroup, names: Sequence[str]) -> TaskGroup:
    """Order paused tasks to resume, and return the group that waits for them."""
    group = replace(group, requests=group.requests + 1)
    draft.decide(ResumeTasks(tasks=tuple(names), request=group.requests))
    return await_resumed(draft, group)


def await_resumed(draft: Draft, group: TaskGroup) -> TaskGroup:
    """Return a group that waits for paused tasks which have their orders already."""
    talk = Conversation(
        question=Question.RESUME, request=group.requests, since=draft.now, finish=False
    )
    return replace(group, conversation=talk)


def to_publishing(draft: Draft, group: TaskGroup, ends: Offsets) -> TaskGroup:
    """Move a reading group to those that publish; the next group starts at its ends at once."""
    group = replace(group, ends=ends, completion_at=draft.now + draft.spec.io.completion_timeout)
    del draft.reading[group.group_id]
    draft.publishing.append(group)
    draft.offsets.update(ends)
    return group


def _pausing(draft: Draft, group: TaskGroup, talk: Conversation) -> TaskGroup:
    tasks = draft.tasks_of(group)
    # Only a task that knew its ends from the start publishes without being told.
    ahead = next((task for task in tasks if task.publishes and task.ends is not None), None)
    if ahead is not None and ahead.ends is not None:
        slower = tuple(task.name for task in tasks if not task.publishes)
        group = replace(group, conversation=None)
        if slower:
            group = resume(draft, group, slower)
        return to_publishing(draft, group, ahead.ends)
    silent = [
        task.name
        for task in tasks
        if task.status is not TaskStatus.PAUSED or task.request_seen < talk.request
    ]
    if silent:
        if draft.now < talk.since + ANSWER_LIMIT:
            return group
        draft.kill(silent, "the task did not pause in time")
        group = draft.without(group, silent)
        draft.reading[group.group_id] = group
    answered = [task for task in tasks if task.name not in silent]
    if not answered:
        draft.drop(group, "no task of the group paused")
        return group
    return _set_ends(draft, group, answered, finish=talk.finish)


def _set_ends(
    draft: Draft, group: TaskGroup, answered: Sequence[StreamTask], *, finish: bool
) -> TaskGroup:
    sequence, starts = group.newest_checkpoint
    ends = {
        partition: max(start, *(task.offsets.get(partition, start) for task in answered))
        for partition, start in starts.items()
    }
    names = tuple(task.name for task in answered)
    if ends == starts and not finish:
        # Nothing was read since the last checkpoint: an empty sequence would be of no use.
        group = draft.reading[group.group_id] = resume(draft, group, names)
        return group
    request = group.requests + 1
    draft.decide(SetEnds(tasks=names, request=request, sequence=sequence, ends=ends, finish=finish))
    group = replace(
        group,
        requests=request,
        conversation=Conversation(
            question=Question.ENDS, request=request, since=draft.now, finish=finish
        ),
    )
    if finish:
        return to_publishing(draft, group, ends)
    group = replace(group, checkpoints={**group.checkpoints, sequence + 1: ends})
    draft.reading[group.group_id] = group
    return group


def _noting(draft: Draft, group: TaskGroup, talk: Conversation) -> TaskGroup:
    silent = [task.name for task in draft.tasks_of(group) if task.request_seen < talk.request]
    if silent and draft.now < talk.since + ANSWER_LIMIT:
        return group
    draft.kill(silent, "the task did not take note of its ends in time")
    return replace(draft.without(group, silent), conversation=None)


def _resuming(draft: Draft, group: TaskGroup, talk: Conversation) -> TaskGroup:
    if talk.since == draft.now:
        # The view is older than the orders of this step.
        return group
    stuck = [
        task.name
        for task in draft.tasks_of(group)
        if task.status is TaskStatus.PAUSED and task.request_seen < task.request
    ]
    if stuck and draft.now < talk.since + ANSWER_LIMIT:
        return group
    draft.kill(stuck, "the task did not resume in time")
    return replace(draft.without(group, stuck), conversation=None)
