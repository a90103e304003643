"""The bench's arithmetic, without a cluster."""

from __future__ import annotations

import json

import pytest

from tests.bench.comparing import changes, former_values
from tests.bench.definitions import chain, fan, layered
from tests.bench.figures import Figure, Target, against_floor, gaps, percentile, rate


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
        "values": [9.0, 11.0, 50.0],
        "target": "<= 12",
        "met": True,
    }


def test_a_floor_has_nothing_to_meet() -> None:
    floor = Figure(name="floor", unit="ms", values=(4.0,))
    assert floor.is_met
    assert json.loads(floor.line())["met"] is None


def test_a_figure_is_compared_with_the_floor_of_the_same_run() -> None:
    gap, floor, ratio = against_floor(
        "gap", "ms", [6.0, 9.0], [4.0, 3.0], limit=Target(limit=2), target=Target(limit=8)
    )
    assert (gap.values, gap.is_met) == ((6.0, 9.0), True)
    assert (floor.name, floor.values, floor.target) == ("floor.gap", (4.0, 3.0), None)
    assert (ratio.name, ratio.values, ratio.is_met) == ("gap_of_floor", (1.5, 3.0), False)


def test_a_change_counts_if_the_samples_do_not_overlap() -> None:
    before = [Figure(name=name, unit="ms", values=(4.0, 5.0, 6.0)) for name in ("a", "b", "gone")]
    former = former_values([figure.line() for figure in before])
    now = [
        Figure(name="a", unit="ms", values=(2.0, 2.5, 3.0)),
        Figure(name="b", unit="ms", values=(5.5, 7.5, 8.0)),
        Figure(name="new", unit="ms", values=(1.0,)),
    ]
    assert [(one.name, one.ratio, one.moved) for one in changes(now, former)] == [
        ("a", 0.5, True),
        ("b", 1.5, False),
    ]


def test_figures_of_before_the_samples_were_written_have_their_range() -> None:
    line = '{"name": "a", "median": 2.0, "min": 1.0, "max": 9.0}'
    assert former_values([line, ""]) == {"a": (1.0, 2.0, 9.0)}


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"name": "a", "values": ["x"]}'])
def test_a_line_that_is_no_figure_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 1 is no figure"):
        former_values([line])


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
