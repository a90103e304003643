"""Mistakes that people make about streams, each planted into the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from common.model.locks import Lock
from common.model.streams.spec import Offsets
from common.model.streams.tasks import Orders, Sequence
from common.store.master.supervisor_ports import GiveAssignment, Lease, StreamTaskRow
from master.loops import supervisor_loop, supervisor_steps
from master.supervisors import conversations, standbys
from master.supervisors.draft import Draft
from master.supervisors.view import Conversation, StreamTask, TaskGroup
from tests.memory.datasets import MemoryDatasets
from tests.memory.stream_rows import RuntimeRecord
from tests.memory.streams import MemorySupervisorStore
from tests.simulation.stream_process import Warehouse
from tests.simulation.stream_world import StreamOptions
from worker.spark.streaming import course
from worker.spark.streaming.course import Course


class BlindDatasets(MemoryDatasets):
    """Publishes without comparing the stored offsets with the start of the range."""

    def _stale(self, dataset: str, starts: Mapping[int, int]) -> str:
        return ""


class TrustingDatasets(MemoryDatasets):
    """Believes that a lock which was had once is still valid."""

    def _covering(self, task_id: int, dataset: str, chunk: int) -> Lock | None:
        lock = super()._covering(task_id, dataset, chunk)
        return None if lock is None else replace(lock, revoked=False)


class CuriousDatasets(MemoryDatasets):
    """Shows who replaces a chunk what was added beside its lock."""

    def paths(self, task_id: int, dataset: str, chunk: int) -> list[str]:
        return super().paths(0, dataset, chunk)


class OneFolderWarehouse(Warehouse):
    """Gives every write of a sequence the same files."""

    def path(self, task_id: int, write: int, sequence: str, chunk: int) -> str:
        return f"{sequence}/{chunk}"


class EpochlessStore(MemorySupervisorStore):
    """Writes the steps of any master that once had the lease."""

    def _owned(self, node: Any, lease: Lease) -> RuntimeRecord | None:
        return self._tables.runtime(lease.supervisor)


def merge_without_asking(planted: pytest.MonkeyPatch) -> None:
    """Take the offsets that tasks have reported as the ends, before they have paused there.

    And have tasks believe it.
    """

    def pausing(draft: Draft, group: TaskGroup, talk: Conversation) -> TaskGroup:
        tasks = [task for task in draft.tasks_of(group) if task.offsets]
        if not tasks:
            return group
        return conversations._set_ends(draft, group, tasks, finish=talk.finish)

    def ended(heard: Course, orders: Orders) -> Course:
        assert orders.end is not None
        end: Offsets = dict(orders.end)
        last = heard.sequences[-1]
        closed = (*heard.sequences[:-1], replace(last, end=end))
        if not orders.finish:
            closed = (*closed, Sequence(id=last.id + 1, start=end))
        # A place behind the end counts as the end.
        return replace(heard, sequences=closed, full=False, at={**heard.at, **end})

    planted.setattr(conversations, "_pausing", pausing)
    planted.setattr(course, "_ended", ended)


def reset_whatever_is_stored(planted: pytest.MonkeyPatch) -> None:
    """Reset partitions though a task has published since somebody asked for it."""

    asked = supervisor_loop.notice_of
    planted.setattr(supervisor_loop, "notice_of", lambda request: asked(replace(request, seen={})))


def forget_standbys(planted: pytest.MonkeyPatch) -> None:
    """Leave standbys alone that nobody needs."""

    planted.setattr(standbys, "stop_unneeded", lambda _: None)


class GenerousStore(MemorySupervisorStore):
    """Gives a task work, whether it has some or not."""

    def _write(self, tx: Any, node: Any, owned: Any, step: Any, change: Any, **more: Any) -> None:
        if isinstance(change, GiveAssignment):
            task = self._open(owned.name, change.assignment.name)
            tx.update(self._tables.tasks, task.id, assignment=change.assignment)
            return
        super()._write(tx, node, owned, step, change, **more)


def take_any_task_for_a_standby(planted: pytest.MonkeyPatch) -> None:
    """Believe of every task of a group that it has no work."""

    seen = supervisor_steps._task

    def task(row: StreamTaskRow) -> StreamTask:
        return replace(seen(row), standby_of=row.assignment.group_id)

    planted.setattr(supervisor_steps, "_task", task)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMistake:
    """A mistake, the parts that make it, and a seed that exposes it."""

    name: str
    seed: int
    parts: Mapping[str, Any] = field(default_factory=dict)
    plants: Callable[[pytest.MonkeyPatch], None] | None = None
    stream: StreamOptions | None = None
    """The faults that expose it soonest, if it is too rare among those that are drawn."""

    def plant(self, planted: pytest.MonkeyPatch) -> None:
        """Make the mistake for as long as the context lasts."""
        if self.plants is not None:
            self.plants(planted)


STREAM_MISTAKES = (
    StreamMistake(name="compare left out", seed=48, parts={"datasets": BlindDatasets}),
    StreamMistake(
        name="lock not read again",
        seed=2,
        parts={"datasets": TrustingDatasets},
        stream=StreamOptions(batches=0.9),
    ),
    StreamMistake(name="additions read", seed=10, parts={"datasets": CuriousDatasets}),
    StreamMistake(name="files overwritten", seed=0, parts={"warehouse": OneFolderWarehouse}),
    StreamMistake(name="epoch ignored", seed=12, parts={"supervisors": EpochlessStore}),
    StreamMistake(name="checkpoint merged without check", seed=10, plants=merge_without_asking),
    StreamMistake(name="standbys forgotten", seed=0, plants=forget_standbys),
    StreamMistake(
        name="work given to a task that has some",
        seed=0,
        parts={"supervisors": GenerousStore},
        plants=take_any_task_for_a_standby,
    ),
    StreamMistake(
        name="reset of what was published meanwhile",
        seed=37,
        plants=reset_whatever_is_stored,
        stream=StreamOptions(task_count=2, expired=0.3, resets=False, people=0.5),
    ),
)
