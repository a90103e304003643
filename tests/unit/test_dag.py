"""The DAG: building it, refusals, and the selection of a command."""

from __future__ import annotations

import pytest

from common.dag import DagError, build_dag, restrict, select
from common.model.states import TaskDependType
from tests.builders import a_dag, edges

ONLY, PRE, POST = TaskDependType.TASK_ONLY, TaskDependType.TASK_PRE, TaskDependType.TASK_POST

# a → b → d, a → c → d, d → e; x stands alone.
DIAMOND = "a >> b c >> d >> e; x"

LAYERS = 30
WIDTH = 5


def layered() -> dict[str, list[str]]:
    """30 layers of 5, each fully connected to the next (trap T29)."""
    return {
        f"{layer}.{place}": [f"{layer - 1}.{other}" for other in range(WIDTH)] if layer else []
        for layer in range(LAYERS)
        for place in range(WIDTH)
    }


def test_neighbours_are_known_on_both_sides() -> None:
    dag = a_dag(DIAMOND)
    assert dag.upstream["d"] == ("b", "c")
    assert dag.downstream["a"] == ("b", "c")
    assert dag.heads == ("a", "x")


def test_names_come_in_a_topological_order_that_keeps_the_order_written() -> None:
    assert build_dag({"z": [], "y": ["m"], "m": [], "a": ["z"]}).names == ("z", "m", "y", "a")


def test_neighbours_keep_the_order_written_whatever_the_order_of_edges() -> None:
    dag = build_dag({"b": [], "a": [], "c": ["a", "b"]})
    assert dag.upstream["c"] == ("b", "a")


def test_an_edge_that_is_named_twice_is_one_edge() -> None:
    assert build_dag({"a": [], "b": ["a", "a"]}).upstream["b"] == ("a",)


def test_a_dag_of_nothing_has_nothing() -> None:
    assert build_dag({}).names == ()


def test_a_self_loop_is_a_cycle() -> None:
    with pytest.raises(DagError, match="a cycle: 'a' → 'a'"):
        build_dag({"a": ["a"]})


def test_t28_a_cycle_through_wide_layers_is_found() -> None:
    upstream = edges("0 >> 1 2 >> 3 4 >> 5 6 >> 7") | {"0": ["7"]}
    with pytest.raises(DagError, match=r"a cycle: .*'7'"):
        build_dag(upstream)


def test_a_cycle_is_told_by_the_names_on_it_alone() -> None:
    with pytest.raises(DagError) as refused:
        build_dag(edges("start >> a >> b >> c; c >> a"))
    assert "start" not in str(refused.value)


def test_a_cycle_of_thousands_is_found_and_told_in_a_few_words() -> None:
    upstream = {str(index): [str((index - 1) % 5_000)] for index in range(5_000)}
    with pytest.raises(DagError) as refused:
        build_dag(upstream)
    assert len(str(refused.value)) < 500


def test_t27_an_upstream_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(DagError, match="'b' waits for 'x', which does not exist"):
        build_dag({"b": ["x"]})


def test_a_chain_of_ten_thousand_is_built() -> None:
    names = [str(index) for index in range(10_000)]
    dag = build_dag({name: names[index - 1 : index] for index, name in enumerate(names)})
    assert dag.names == tuple(names)


def test_t29_a_dense_layered_graph_is_built_and_selected_from() -> None:
    dag = build_dag(layered())
    assert len(dag.names) == LAYERS * WIDTH
    assert select(dag, ["0.0"], POST).names == ("0.0", *dag.names[WIDTH:])
    assert select(dag, ["29.4"], PRE).names == (*dag.names[:-WIDTH], "29.4")


@pytest.mark.parametrize(
    ("mode", "start", "chosen"),
    [
        (POST, "", "a b c d e x"),
        (POST, "c", "c d e"),
        (POST, "b x", "b d e x"),
        (POST, "e a", "a b c d e"),
        (POST, "nowhere c", "c d e"),
        (POST, "nowhere", ""),
        (PRE, "d", "a b c d"),
        (PRE, "b", "a b"),
        (PRE, "x a", "a x"),
        (PRE, "nowhere", ""),
        (PRE, "", ""),
        (ONLY, "d", "d"),
        (ONLY, "e b", "b e"),
        (ONLY, "nowhere e", "e"),
        (ONLY, "", ""),
    ],
)
def test_a_command_selects_as_its_mode_says(mode: TaskDependType, start: str, chosen: str) -> None:
    found = select(a_dag(DIAMOND), start.split(), mode)
    assert sorted(found.names) == chosen.split()


def test_what_is_selected_keeps_the_order_of_the_dag() -> None:
    dag = a_dag(DIAMOND)
    found = select(dag, ["d", "a", "x"], ONLY)
    assert found.names == tuple(name for name in dag.names if name in ("a", "d", "x"))


def test_t25_an_upstream_that_is_not_selected_holds_nothing_up() -> None:
    found = select(a_dag(DIAMOND), ["c"], POST)
    assert found.heads == ("c",)
    assert found.upstream["d"] == ("c",)


def test_edges_between_selected_nodes_stay_and_others_fall_away() -> None:
    found = select(a_dag(DIAMOND), ["a", "b", "e"], ONLY)
    assert found.downstream == {"a": ("b",), "b": (), "e": ()}


def test_everything_selected_is_the_dag_itself() -> None:
    dag = a_dag(DIAMOND)
    assert select(dag, [], POST) == dag
    assert restrict(dag, dag.names) == dag
