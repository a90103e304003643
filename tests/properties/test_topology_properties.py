"""Topologies of any shape, against a router of the plainest kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.topology.components import Bolt, Emit, Record, Spout
from common.topology.declaration import Hash, Input, Topology, TopologyBuilder
from common.topology.groupings import (
    ByFields,
    Custom,
    Everyone,
    Global,
    Grouping,
    LocalOrShuffle,
    PartialKey,
    Shuffle,
    Unordered,
)
from common.topology.hashing import spark_hash, spark_pair
from common.topology.routing import Router

KEYS = st.one_of(st.sampled_from(["a", "b", "c", "ä", ""]), st.none())
VALUES = st.one_of(st.integers(-5, 5), st.none())


class Source(Spout):
    outputs = ("key", "value long")


class Relay(Bolt):
    outputs = ("key", "value long")

    def process(self, record: Record, emit: Emit) -> None:
        emit(*record)


class ToTwo:
    def choose(self, record: Record, tasks: int) -> tuple[int, ...]:
        return (0, tasks - 1)


GROUPINGS: tuple[Grouping, ...] = (
    Shuffle(),
    LocalOrShuffle(),
    Unordered(),
    ByFields(("key",)),
    ByFields(("value", "key")),
    PartialKey(("key",)),
    Global(),
    Everyone(),
    Custom(ToTwo()),
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to six bolts, each after one to three of the parts before it."""
    builder = TopologyBuilder("any")
    builder.set_spout("p0", Source(), tasks=draw(st.integers(1, 4)))
    for number in range(1, draw(st.integers(1, 6)) + 1):
        bolt = builder.set_bolt(f"p{number}", Relay(), tasks=draw(st.integers(1, 5)))
        above = st.sets(st.integers(0, number - 1), min_size=1, max_size=3)
        for other in sorted(draw(above)):
            bolt.grouping(f"p{other}", draw(st.sampled_from(GROUPINGS)))
    return builder.create_topology()


class Reference:
    """Checks a topology edge by edge, from what its components have emitted.

    Where a grouping leaves several answers it says how many records each task must have had; where
    it leaves any, how many there were in all.
    """

    def __init__(self, topology: Topology, rows: list[tuple[Any, ...]]) -> None:
        self.parts = {part.id: part for part in topology.parts}
        self.emitted: dict[str, list[list[tuple[Any, ...]]]] = {}
        first = topology.parts[0]
        self.emitted[first.id] = [rows[task :: first.tasks] for task in range(first.tasks)]

    def check(self, edges: dict[tuple[str, str], list[list[Record]]]) -> None:
        """Compare with what came along each edge at each task; raise where it differs."""
        for part in self.parts.values():
            received: list[list[tuple[Any, ...]]] = [[] for _ in range(part.tasks)]
            for taken in part.inputs:
                came = edges[part.id, taken.component]
                for emitter, sent in enumerate(self.emitted[taken.component]):
                    got = [[r.values for r in task if r.task == emitter] for task in came]
                    emitters = self.parts[taken.component].tasks
                    place = emitter * part.tasks // emitters if part.tasks <= emitters else None
                    check_edge(taken.grouping, place, sent, got)
                for task, records in enumerate(came):
                    received[task] += [record.values for record in records]
            if part.inputs:
                self.emitted[part.id] = received


def check_edge(
    grouping: Grouping,
    place: int | None,
    sent: list[tuple[Any, ...]],
    got: list[list[tuple[Any, ...]]],
) -> None:
    """Check what one task sent along an edge; `place` is the task that is near, if there is one."""
    tasks, counts = len(got), [len(task) for task in got]
    everything = Counter(row for task in got for row in task)
    match grouping:
        case Global():
            assert got == [sent, *([[]] * (tasks - 1))]
        case Everyone():
            assert got == [sent] * tasks
        case ByFields(fields):
            picked = [0 if field == "key" else 1 for field in fields]
            wanted = defaultdict(list)
            for row in sent:
                wanted[spark_hash([row[at] for at in picked]) % tasks].append(row)
            assert got == [wanted[task] for task in range(tasks)]
        case Custom():
            assert sum(counts) == 2 * len(sent)
            assert not any(counts[1:-1])
        case LocalOrShuffle() if place is not None:
            assert got == [sent if task == place else [] for task in range(tasks)]
        case Shuffle() | LocalOrShuffle():
            assert max(counts) - min(counts) <= (len(sent) % tasks > 0)
            assert everything == Counter(sent)
        case PartialKey():
            assert everything == Counter(sent)
            homes = defaultdict(set)
            for task, rows in enumerate(got):
                for row in rows:
                    homes[repr(row[0])].add(task)
            assert all(len(each) <= 2 for each in homes.values())
            sent_by_key = Counter(repr(row[0]) for row in sent)
            if len(sent_by_key) == 1 and tasks > 1 and len(sent) > 1:
                assert all(len(each) == 2 for each in homes.values())
        case _:
            assert everything == Counter(sent)


@given(topologies(), st.lists(st.tuples(KEYS, VALUES), max_size=25))
@settings(max_examples=150)
def test_a_trial_routes_as_the_plainest_router_does(
    topology: Topology, rows: list[tuple[Any, ...]]
) -> None:
    trial = topology.test({"p0": rows})
    edges = {
        (part.id, taken.component): [
            [record for record in task.received if record.component == taken.component]
            for task in trial.tasks(part.id)
        ]
        for part in topology.parts
        for taken in part.inputs
    }
    Reference(topology, rows).check(edges)


@given(topologies(), st.lists(st.tuples(KEYS, VALUES), max_size=10))
@settings(max_examples=30)
def test_the_same_records_go_the_same_ways(topology: Topology, rows: list[tuple[Any, ...]]) -> None:
    first, second = topology.test({"p0": rows}), topology.test({"p0": rows})
    for part in topology.parts:
        assert list(first.tasks(part.id)) == list(second.tasks(part.id))


def partial_key_router(tasks: int, hash_name: Hash) -> Router:
    return Router(
        topology="any",
        bolt="b",
        taken=Input("s", "default", PartialKey(("key",))),
        fields=("key",),
        tasks=tasks,
        emitter=0,
        emitters=1,
        hash=hash_name,
    )


def task_for(router: Router, key: object) -> int:
    (task,) = router.targets((key,), 0, None, lambda: Record((key,), ("key",), "s"))
    return task


@given(
    st.one_of(KEYS, st.text(), st.integers(-(1 << 63), (1 << 63) - 1), st.binary(), st.floats()),
    st.integers(2, 1_000),
    st.sampled_from(["spark", "storm"]),
)
@settings(max_examples=50)
def test_each_partial_key_has_two_tasks_that_share_its_records(
    key: object, tasks: int, hash_name: Hash
) -> None:
    router = partial_key_router(tasks, hash_name)
    counts = Counter(task_for(router, key) for _ in range(10))
    assert sorted(counts.values()) == [5, 5]


@pytest.mark.parametrize("tasks", [2, 6, 8, 30, 31])
@pytest.mark.parametrize("hash_name", ["spark", "storm"])
def test_the_records_of_partial_keys_are_spread_evenly(tasks: int, hash_name: Hash) -> None:
    router = partial_key_router(tasks, hash_name)
    counts = Counter(task_for(router, f"key {number % 300}") for number in range(3_000))
    assert max(counts.values()) <= 3_000 / tasks * 1.1


@pytest.mark.parametrize("tasks", [2, 6, 8, 31])
def test_partial_keys_pair_each_task_with_most_others(tasks: int) -> None:
    pairs = {frozenset(spark_pair([f"key {key}"], tasks)) for key in range(1_000)}
    for task in range(tasks):
        assert len({other for pair in pairs if task in pair for other in pair}) > tasks / 2
