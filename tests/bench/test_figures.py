"""The bench's arithmetic, without a cluster."""

from __future__ import annotations

import json

import pytest

from tests.bench.definitions import chain, fan, layered
from tests.bench.figures import Figure, Target, gaps, percentile, rate


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0], 50) == 1.5
    assert percentile([float(n) for n in range(101)], 95) == 95.0
    assert percentile([7.0], 95) == 7.0


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


def test_a_gap_reaches_from_an_end_to_the_successors_start() -> None:
    assert gaps(ends=[1.0, 3.0, 9.0], starts=[0.0, 1.5, 4.0]) == [0.5, 1.0]


def test_gaps_need_an_end_for_every_start() -> None:
    with pytest.raises(ValueError, match="1 ends and 2 starts"):
        gaps([1.0], [0.0, 2.0])


def test_a_rate_needs_time() -> None:
    assert rate(200, 0.5) == 400.0
    with pytest.raises(ValueError, match="no time"):
        rate(1, 0.0)


def test_a_limit_that_is_just_reached_is_met() -> None:
    assert Target(limit=12).is_met(12.0)
    assert not Target(limit=12).is_met(12.1)
    assert Target(limit=200, at_least=True).is_met(200.0)
    assert not Target(limit=200, at_least=True).is_met(199.9)


def test_a_figure_is_judged_by_its_median() -> None:
    figure = Figure(name="gap", unit="ms", values=(9.0, 11.0, 50.0), target=Target(limit=12))
    assert json.loads(figure.line()) == {
        "name": "gap",
        "median": 11.0,
        "min": 9.0,
        "max": 50.0,
        "unit": "ms",
        "runs": 3,
        "target": "<= 12",
        "met": True,
    }


def test_a_floor_has_nothing_to_meet() -> None:
    floor = Figure(name="floor", unit="ms", values=(4.0,))
    assert floor.is_met
    assert json.loads(floor.line())["met"] is None


def test_every_shape_has_the_tasks_that_its_name_promises() -> None:
    assert _upstream(chain(3, "true")) == {"t0": [], "t1": ["t0"], "t2": ["t1"]}
    assert _upstream(fan(2, "true", "true")) == {
        "root": [],
        "leaf0": ["root"],
        "leaf1": ["root"],
        "join": ["leaf0", "leaf1"],
    }
    assert _upstream(layered((1, 2, 1), "true", "true")) == {
        "l0n0": [],
        "l1n0": ["l0n0"],
        "l1n1": ["l0n0"],
        "l2n0": ["l1n0", "l1n1"],
    }


def _upstream(process_json: str) -> dict[str, list[str]]:
    return {task["name"]: task["preTasks"] for task in json.loads(process_json)["tasks"]}
