"""A decision in the making: a copy of the memory that steps change, and the decisions so far.

Pure. One draft serves one notice; `finished` returns the decisions, the new memory last. Steps go
over groups in the order of their ids, and over partitions in order, so equal views have equal
decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from common.model.streams.partitions import Partition, group_of
from common.model.streams.spec import Bounds, Offsets
from master.supervisors.decisions import (
    Decision,
    EventKind,
    KillTask,
    RecordEvent,
    Remember,
    ScheduleRun,
    StopTask,
)
from master.supervisors.health import ErrorEvent, State
from master.supervisors.view import (
    Memory,
    Rescaling,
    StreamTask,
    SupervisorView,
    TaskEnd,
    TaskGroup,
)

ANSWER_LIMIT: Final = timedelta(seconds=80)
"""The time in which a task must answer a request; Druid's eight tries of ten seconds."""
START_LIMIT: Final = timedelta(minutes=5)
"""The time from its worker's claim after which a task counts as one that reads.

So one that hangs is asked to pause at the end of its duration, and killed for its silence.
"""
STANDBY_LEAD: Final = timedelta(minutes=1)
"""The time before a hand-over at which standbys are started; half of a short task duration."""
CLAIM_LIMIT: Final = timedelta(seconds=10)
"""The time for which a hand-over waits for a standby that no worker has claimed."""
READY_LIMIT: Final = timedelta(minutes=1)
"""The time for which a hand-over waits for one that is being prepared."""


class Draft:
    """The memory, being changed, with the decisions that the changes need."""

    def __init__(self, view: SupervisorView, now: datetime) -> None:
        memory = view.memory
        self.view = view
        self.spec = view.spec
        self.now = now
        self.partitions = list(memory.partitions)
        self.later = set(memory.later)
        self.offsets = dict(memory.offsets)
        self.reading = dict(memory.reading)
        self.publishing = list(memory.publishing)
        self.has_discovered = memory.has_discovered
        self.early_stop_at = memory.early_stop_at
        self.requested = set(memory.requested)
        self.stopping_since = memory.stopping_since
        self.rescaling: Rescaling | None = memory.rescaling
        self.last_scaled_at = memory.last_scaled_at
        self.last_run_at = memory.last_run_at
        self.last_latest: Offsets = memory.last_latest
        self.quiet_since = memory.quiet_since
        self.tasks_started = memory.tasks_started
        self.given: set[str] = set()
        """Standbys that this draft has given work to."""
        self.prepared: set[int] = set()
        """Groups for whose successors this draft has started standbys."""
        self.health = memory.health
        self.has_failed = False
        self.has_reset = False
        self.decisions: list[Decision] = []

    @cached_property
    def layout(self) -> dict[int, tuple[Partition, ...]]:
        """The partitions of each group, by the present number of groups; asked after discovery."""
        groups: dict[int, list[Partition]] = {}
        for partition in self.partitions:
            if self.bounds is not None and partition not in self.bounds.ends:
                continue
            groups.setdefault(self.group_of(partition), []).append(partition)
        return {group_id: tuple(groups[group_id]) for group_id in sorted(groups)}

    @cached_property
    def standbys(self) -> dict[int, list[StreamTask]]:
        """The tasks without work, by the group that they wait for."""
        found: dict[int, list[StreamTask]] = {}
        for task in self.view.tasks.values():
            if task.standby_of is not None:
                found.setdefault(task.standby_of, []).append(task)
        return found

    @property
    def bounds(self) -> Bounds | None:
        return self.spec.io.bounds

    def group_of(self, partition: Partition) -> int:
        return group_of(partition, self.spec.io.task_count)

    def finished(self) -> tuple[Decision, ...]:
        """Return the decisions, with the next time at which something is due, and the memory."""
        due = self._next_due()
        if due is not None:
            self.decide(ScheduleRun(at=due))
        memory = Memory(
            partitions=tuple(self.partitions),
            later=frozenset(self.later),
            offsets=self.offsets,
            reading={group_id: self.reading[group_id] for group_id in sorted(self.reading)},
            publishing=tuple(self.publishing),
            has_discovered=self.has_discovered,
            early_stop_at=self.early_stop_at,
            requested=frozenset(self.requested),
            stopping_since=self.stopping_since,
            rescaling=self.rescaling,
            last_scaled_at=self.last_scaled_at,
            last_run_at=self.last_run_at,
            last_latest=self.last_latest,
            quiet_since=self.quiet_since,
            tasks_started=self.tasks_started,
            health=self.health,
        )
        if memory != self.view.memory:
            self.decide(Remember(memory=memory))
        return tuple(self.decisions)

    @property
    def standby_lead(self) -> timedelta:
        return min(STANDBY_LEAD, self.spec.io.task_duration / 2)

    def task_name(self, base: str) -> str:
        """Return a new name of a task."""
        self.tasks_started += 1
        # The epoch keeps the name apart from those of former owners, who counted too.
        return f"{base}_{self.view.epoch}_{self.tasks_started}"

    def decide(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def fail(self, text: str, *, of_stream: bool = False) -> None:
        """Note an error of this run, which then counts as failed."""
        self.has_failed = True
        self.health = self.health.with_error(
            ErrorEvent(at=self.now, text=text, of_stream=of_stream)
        )

    def alert(self, kind: EventKind, text: str) -> None:
        self.decide(RecordEvent(kind=kind, text=text))

    def towards(self, state: State) -> None:
        self.health = self.health.towards(state)

    def tasks_of(self, group: TaskGroup) -> list[StreamTask]:
        """The tasks of a group that have not ended."""
        tasks = (self.view.tasks.get(name) for name in group.tasks)
        return [task for task in tasks if task is not None and task.end is None]

    def has_succeeded(self, group: TaskGroup) -> bool:
        tasks = (self.view.tasks.get(name) for name in group.tasks)
        return any(task is not None and task.end is TaskEnd.SUCCESS for task in tasks)

    def waits_for_publication(self, group: TaskGroup) -> bool:
        """Return True if an earlier group has yet to publish what comes before this one."""
        return any(group.overlaps(earlier) for earlier in self.publishing)

    def kill(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            if self._can_end(name):
                self.decide(KillTask(task=name, reason=reason))

    def stop(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            if self._can_end(name):
                self.decide(StopTask(task=name, reason=reason))

    def without_ended(self, group: TaskGroup) -> TaskGroup:
        """Forget tasks that failed, are gone, or were told to end; each failure counts once."""
        kept = []
        for name in group.tasks:
            task = self.view.tasks.get(name)
            if task is not None and task.end is None and task.ending_since is None:
                kept.append(name)
            elif task is None or task.ending_since is None:
                self.health = self.health.after_task(good=False)
        return group if len(kept) == len(group.tasks) else replace(group, tasks=tuple(kept))

    def without(self, group: TaskGroup, names: Sequence[str]) -> TaskGroup:
        return replace(group, tasks=tuple(name for name in group.tasks if name not in names))

    def forget_offsets(self, partitions: Iterable[Partition]) -> None:
        """Have the next group start after the last one that publishes, or ask the store."""
        for partition in partitions:
            ends = (each.ends for each in reversed(self.publishing) if each.ends is not None)
            self.offsets[partition] = next(
                (end[partition] for end in ends if partition in end), None
            )

    def drop(self, group: TaskGroup, reason: str) -> None:
        """Give a reading group up; its range is read again from what is stored."""
        self.kill((task.name for task in self.tasks_of(group)), reason)
        self.forget_offsets(group.starts)
        del self.reading[group.group_id]

    def complete(self, group: TaskGroup) -> None:
        """End the tasks that lost the race of their group, which has published."""
        self.health = self.health.after_task(good=True)
        self.stop(
            (task.name for task in self.tasks_of(group)), "another task published the same records"
        )

    def _can_end(self, name: str) -> bool:
        task = self.view.tasks.get(name)
        return task is not None and task.end is None and not task.killed

    def _next_due(self) -> datetime | None:
        moments: list[datetime | None] = [self.early_stop_at]
        if self.early_stop_at is not None:
            moments.append(self.early_stop_at - self.standby_lead)
        duration = self.spec.io.task_duration
        for group in (*self.reading.values(), *self.publishing):
            moments.append(group.completion_at)
            if group.conversation is not None:
                moments.append(group.conversation.since + ANSWER_LIMIT)
            if not group.agrees and group.completion_at is None:
                begun = begin_of(self.tasks_of(group))
                if begun is not None:
                    moments += [begun + duration - self.standby_lead, begun + duration]
                if group.prepared_at is not None:
                    moments += [group.prepared_at + CLAIM_LIMIT, group.prepared_at + READY_LIMIT]
        return min((at for at in moments if at is not None and at > self.now), default=None)


def begin_of(tasks: Iterable[StreamTask]) -> datetime | None:
    """Return the begin of the task that has read longest, None if none is assigned."""
    begun = (
        task.started or (task.assigned_at and task.assigned_at + START_LIMIT) for task in tasks
    )
    return min((at for at in begun if at is not None), default=None)
