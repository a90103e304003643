"""The turns of supervisors: in the order of projects, and each of them a bounded part of a step."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.model.streams.requests import RequestKind
from common.model.streams.spec import SupervisorSpec
from common.store.master.supervisor_ports import (
    AddOffsets,
    DropOffsets,
    EndTask,
    Lease,
    PutOffsets,
    SupervisorStep,
)
from master.identity import Identity
from master.loops.supervisor_loop import SupervisorConfig, SupervisorLoop
from master.loops.supervisor_parts import MOST_CHANGES, MOST_OFFSETS, parts_of
from master.loops.supervisor_turns import Turns
from master.supervisors.view import StreamSnapshot
from tests.memory.database import MemoryDatabase
from tests.memory.registry import MemoryZooKeeper
from tests.memory.stream_rows import RuntimeRecord, SpecRecord
from tests.memory.streams import (
    MemorySupervisorStore,
    StreamTables,
    put_request,
    put_suspended,
)
from tests.simulation.virtual_clock import VirtualClock
from tests.unit.stream_specs import SMALL


@dataclass
class Streams:
    """A topic with as many partitions as each supervisor has task groups."""

    def look(self, spec: SupervisorSpec, *, project_id: int) -> StreamSnapshot:
        partitions = range(spec.io.task_count)
        return StreamSnapshot(
            earliest=dict.fromkeys(partitions, 0), latest=dict.fromkeys(partitions, 9)
        )

    def forget(self, supervisor: str) -> None:
        pass


@dataclass
class Noting(MemorySupervisorStore):
    """A store that notes the steps, and breaks the connection before the step of a number."""

    tables: StreamTables
    steps: list[tuple[str, SupervisorStep]] = field(default_factory=list)
    breaks_at: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.tables)

    def apply(self, node: Node, lease: Lease, step: SupervisorStep, *, now: datetime) -> None:
        if len(self.steps) == self.breaks_at:
            self.breaks_at = None
            raise ServiceUnreachableError("the connection broke")
        super().apply(node, lease, step, now=now)
        self.steps.append((lease.supervisor, step))


class Place:
    """A master with the supervisors of several projects."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        database = MemoryDatabase()
        database.now = self.clock.now
        self.tables = StreamTables(database)
        zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))
        registry = zookeeper.registry()
        identity = Identity(registry.membership)
        identity.become(registry.membership.join(NodeKind.MASTER, "m1:5678", ""))
        self.store = Noting(self.tables)
        self.loop = SupervisorLoop(
            self.store,
            streams=Streams(),
            identity=identity,
            clock=self.clock,
            config=SupervisorConfig(lease=timedelta(days=1)),
        )

    def submit(self, name: str, *, project: int, task_count: int) -> None:
        document = copy.deepcopy(SMALL)
        document["spec"]["ioConfig"] |= {
            "useEarliestOffset": True,
            "startDelay": "PT0S",
            "taskCount": task_count,
        }
        document["spec"]["dataSchema"]["dataSource"] = name
        with self.tables.db.transaction("submit") as tx:
            tx.insert(self.tables.specs, SpecRecord(name=name, version=1, document=document))
            row = RuntimeRecord(name=name, version=1, definition_id=1, project_id=project)
            tx.insert(self.tables.runtimes, row)

    def passes(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.move_to(self.clock.elapsed + timedelta(seconds=5))
            with contextlib.suppress(ServiceUnreachableError):
                self.loop.run_once()

    def live(self, name: str) -> list[int]:
        """Return the groups of the tasks that have no order to end."""
        return sorted(
            row.assignment.group_id
            for row in self.tables.tasks
            if row.assignment.supervisor == name and row.ending_since is None and not row.closed
        )

    def sizes(self, name: str) -> list[int]:
        """Return the numbers of changes in the steps of a supervisor."""
        return [len(step.changes) for each, step in self.store.steps if each == name]


def test_x99_a_project_has_every_second_turn_beside_one_with_ten_thousand_changes() -> None:
    turns = Turns()
    turns.begin({"large": 1, "other": 1, "small": 2})
    taken = []
    for _ in range(10_000):
        name = turns.take()
        assert name is not None
        taken.append(name)
        turns.again(name, 2 if name == "small" else 1)
    assert taken[1::2] == ["small"] * 5000
    assert taken[0:6:2] == ["large", "other", "large"]


def test_turns_that_were_broken_off_go_on_with_the_project_that_has_waited_longest() -> None:
    turns = Turns()
    turns.begin({"a": 1, "b": 2, "c": 3})
    assert (turns.take(), turns.take()) == ("a", "b")
    turns.begin({"a": 1, "b": 2, "c": 3, "d": 1})
    assert [turns.take() for _ in range(5)] == ["c", "d", "b", "a", None]
    assert not turns.are_awaited


def test_x99_a_step_with_many_tasks_is_written_in_parts_between_those_of_other_projects() -> None:
    place = Place()
    place.submit("aggressor", project=1, task_count=950)
    place.submit("healthy", project=2, task_count=1)
    place.passes()
    assert max(place.sizes("aggressor")) <= MOST_CHANGES
    assert [name for name, _ in place.store.steps[:3]] == ["aggressor", "healthy", "aggressor"]
    assert place.live("aggressor") == list(range(950))
    put_suspended(place.tables, "aggressor", suspended=True)
    place.store.steps.clear()
    place.passes()
    assert place.sizes("aggressor") == [MOST_CHANGES] * 9 + [50, 0]
    assert place.live("aggressor") == []


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_x99_a_supervisor_that_is_given_up_between_two_parts_gets_each_task_once(
    parts: int,
) -> None:
    place = Place()
    place.submit("large", project=1, task_count=230)
    place.store.breaks_at = parts
    place.passes()
    assert len(place.live("large")) == min(230, parts * MOST_CHANGES - 1)
    place.passes(3)
    assert place.live("large") == list(range(230))
    assert len(list(place.tables.tasks)) == 230


@pytest.mark.parametrize("parts", [1, 2])
def test_a_reset_between_whose_parts_the_supervisor_is_given_up_has_its_effect(
    parts: int,
) -> None:
    place = Place()
    place.submit("large", project=1, task_count=150)
    place.passes(2)
    offsets: dict[str, Any] = {str(each): 7 for each in range(150)}
    put_request(place.tables, "large", RequestKind.RESET_OFFSETS, {"offsets": offsets})
    place.store.steps.clear()
    place.store.breaks_at = parts
    place.passes()
    # The offsets and the request are in the same part.
    assert len(list(place.tables.requests)) == 1
    assert {each.position for each in place.tables.stored("large").values()} == {0}
    place.passes(4)
    assert list(place.tables.requests) == []
    assert {each.position for each in place.tables.stored("large").values()} == {7}
    assert place.live("large") == list(range(150))


def test_what_replaces_offsets_is_in_the_last_part_with_the_requests() -> None:
    step = SupervisorStep(version=1, stream="s", requests=(4,), closed=tuple("abcde"), ends=True)
    drop, put = DropOffsets(partitions=None), PutOffsets(offsets={0: 1})
    ends = [(EndTask(task=name, reason="", kill=True),) for name in "vwxyz"]
    parts = parts_of(step, [(drop,), *ends, (put,)], most=2)
    assert [len(part.changes) for part in parts] == [2, 2, 1, 0, 0, 0, 2]
    assert parts[-1].changes == (drop, put)
    assert [part.closed for part in parts[3:]] == [("a", "b"), ("c", "d"), ("e",), ()]
    assert [part.goes_on for part in parts] == [True] * 6 + [False]
    assert [part.ends for part in parts] == [False] * 6 + [True]
    assert [part.requests for part in parts] == [()] * 6 + [(4,)]


def test_the_changes_of_one_decision_stay_together() -> None:
    step = SupervisorStep(version=1, stream="s")
    pairs = [
        (EndTask(task=name, reason="", kill=False), EndTask(task=name, reason="", kill=True))
        for name in "abc"
    ]
    parts = parts_of(step, pairs, most=3)
    assert [part.changes for part in parts] == [*pairs, ()]


def test_the_starts_of_many_partitions_are_stored_before_the_tasks_that_read_them() -> None:
    offsets = dict.fromkeys(range(2 * MOST_OFFSETS + 1), 5)
    step = SupervisorStep(version=1, stream="s")
    end = EndTask(task="t", reason="", kill=True)
    first, last = parts_of(step, [(AddOffsets(offsets=offsets),), (end,)])
    assert (first.changes[-1], last.changes) == (end, ())
    added = [each.offsets for each in first.changes if isinstance(each, AddOffsets)]
    assert [len(each) for each in added] == [MOST_OFFSETS, MOST_OFFSETS, 1]
    assert {each: start for some in added for each, start in some.items()} == offsets
