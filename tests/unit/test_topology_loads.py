"""Shares of a load-aware shuffle, its ring, and what is kept of them for a batch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.topology.declaration import Input, TopologyBuilder
from common.topology.groupings import Shuffle
from common.topology.loads import even, ring_of, weights_after
from common.topology.plan import queries_of
from common.topology.routing import Router, in_turn, in_turns
from orcaflow.spouts import RateSpout
from tests.topologies import Switch
from worker.spark.topology.figures import LOAD
from worker.spark.topology.loads import Loads, LoadsDamagedError
from worker.spark.topology.program import Program

WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(tuple)


def router(weights: tuple[int, ...], tasks: int) -> Router:
    return Router(
        topology="t",
        bolt="b",
        taken=Input("s", "default", Shuffle()),
        fields=("x",),
        tasks=tasks,
        emitter=1,
        emitters=2,
        weights=weights,
    )


@given(WEIGHTS)
def test_each_task_has_as_many_places_as_its_weight_spread_out(weights: tuple[int, ...]) -> None:
    ring = ring_of(weights)
    assert Counter(ring) == Counter(dict(enumerate(weights)))
    # Of each stretch a task has its share, up to one place.
    for task, weight in enumerate(weights):
        for length in range(len(ring)):
            share = weight * length / len(ring)
            assert abs(ring[:length].count(task) - share) < len(weights)


@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(0, 99), st.integers(0, 30),
       st.integers(1, 7))  # fmt: skip
def test_turns_told_together_are_those_told_one_by_one(
    seed: int, emitter: int, first: int, count: int, tasks: int
) -> None:
    numbers = range(first, first + count)
    one_by_one = [in_turn(seed, emitter, number, tasks) for number in numbers]
    assert list(in_turns(seed, emitter, numbers, tasks)) == one_by_one


@given(WEIGHTS, st.integers(0, 50))
def test_a_cycle_of_a_shuffle_gives_each_task_its_share(
    weights: tuple[int, ...], cycle: int
) -> None:
    total = sum(weights)
    made = router(weights, len(weights))
    numbers = range(cycle * total, (cycle + 1) * total)
    found = list(made.shuffled(numbers))
    assert Counter(found) == Counter(dict(enumerate(weights)))
    assert found == [made.targets((), each, None, pytest.fail)[0] for each in numbers]


@pytest.mark.parametrize("weights", [(), (1, 1, 1), (2, 1)])
def test_without_weights_of_its_tasks_a_shuffle_is_even(weights: tuple[int, ...]) -> None:
    plain = [in_turn_of_plain(number) for number in range(30)]
    assert list(router(weights, 3).shuffled(range(30))) == plain


def in_turn_of_plain(number: int) -> int:
    return router((), 3).targets((), number, None, pytest.fail)[0]


def after(costs: list[int], batches: int) -> list[float]:
    """Return the shares of tasks that take so long for each record, some batches on."""
    weights = even(len(costs))
    for _ in range(batches):
        micros = [1_000 * w * cost for w, cost in zip(weights, costs, strict=True)]
        weights = weights_after(weights, micros)
    return [each / sum(weights) for each in weights]


def test_the_shares_of_tasks_come_to_go_by_their_speed() -> None:
    assert after([1, 1, 1], 9) == [1 / 3] * 3
    assert after([3, 1, 1], 12) == pytest.approx([1 / 7, 3 / 7, 3 / 7], abs=0.05)
    # However slow a task is, it is asked again.
    slow, quick = after([1_000, 1], 12)
    assert 0 < slow < 0.05
    assert slow + quick == 1


def test_a_task_without_work_or_with_a_little_more_moves_nothing() -> None:
    assert weights_after((3, 1), (0, 900)) == (3, 1)
    assert weights_after((3, 1), (1_000, 950)) == (3, 1)


def loads(folder: Path, *, tasks: int = 2, load_aware: bool = True) -> Loads:
    builder = TopologyBuilder("t", config={"topology.disable.loadaware.messaging": not load_aware})
    builder.set_spout("s", RateSpout())
    builder.set_bolt("b", Switch(), tasks=tasks).shuffle_grouping("s")
    topology = builder.create_topology()
    (query,) = queries_of(topology)
    return Loads(Program(topology=topology, query=query), folder)


def taken(*micros: int) -> Counter[tuple[str, str, str]]:
    return Counter({(LOAD, "b", str(task)): each for task, each in enumerate(micros)})


def test_a_batch_has_the_weights_with_which_it_was_begun_whoever_does_it(tmp_path: Path) -> None:
    made = loads(tmp_path)
    assert json.loads(made.begin()) == {"0": [1, 1]}
    made.end(taken(9_000, 1_000))
    later = made.begin()
    slow, quick = json.loads(later)["0"]
    assert slow < quick
    # It has failed, and is done again by the next start or task, which goes on from there.
    again = loads(tmp_path)
    assert again.begin() == later
    again.end(taken(1_000, 9_000))
    assert again.begin() != later
    # With another number of tasks all are even again.
    assert json.loads(loads(tmp_path, tasks=3).begin()) == {"0": [1, 1, 1]}


def test_weights_that_can_not_be_read_are_told_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "loads-s.json").write_text('{"0": [1')
    with pytest.raises(LoadsDamagedError, match=r"loads-s.json is damaged: bring it back, or"):
        loads(tmp_path).begin()


def test_a_shuffle_that_is_not_load_aware_keeps_nothing(tmp_path: Path) -> None:
    assert loads(tmp_path, load_aware=False).begin() == ""
    assert list(tmp_path.iterdir()) == []
