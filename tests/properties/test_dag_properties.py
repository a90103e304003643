"""Properties of every graph, compared with a few lines that don't use networkx."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.dag import Dag, DagError, build_dag, select
from common.model.states import TaskDependType

UNTIMED = settings(deadline=None)
NAMES = "hgfedcba"

Graph = dict[str, list[str]]
GRAPHS: st.SearchStrategy[Graph] = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=14
).map(lambda pairs: {name: [above for below, above in pairs if below == name] for name in NAMES})


@st.composite
def acyclic(draw: st.DrawFn) -> Graph:
    """A graph whose edges all follow one order, written down in another."""
    order = draw(st.permutations(NAMES))
    graph = draw(GRAPHS)
    return {
        name: [above for above in graph[name] if order.index(above) < order.index(name)]
        for name in NAMES
    }


def reached(neighbours: Mapping[str, Iterable[str]], start: Iterable[str]) -> list[str]:
    """Every name on a way from these, themselves included."""
    found = list(dict.fromkeys(start))
    for name in found:
        found += [other for other in dict.fromkeys(neighbours[name]) if other not in found]
    return sorted(found)


def has_cycle(upstream: Graph) -> bool:
    return any(name in reached(upstream, above) for name, above in upstream.items())


@UNTIMED
@given(GRAPHS)
def test_a_graph_is_refused_if_and_only_if_a_name_is_upstream_of_itself(upstream: Graph) -> None:
    refused: AbstractContextManager[object] = (
        pytest.raises(DagError) if has_cycle(upstream) else nullcontext()
    )
    with refused:
        build_dag(upstream)


@UNTIMED
@given(acyclic())
def test_a_dag_holds_just_the_edges_that_were_written(upstream: Graph) -> None:
    dag = build_dag(upstream)
    assert sorted(dag.names) == sorted(upstream)
    pairs = sorted((above, name) for name in upstream for above in dict.fromkeys(upstream[name]))
    assert sorted((above, name) for name in dag.names for above in dag.upstream[name]) == pairs
    assert sorted((name, below) for name in dag.names for below in dag.downstream[name]) == pairs


@UNTIMED
@given(acyclic())
def test_each_name_is_the_first_written_of_those_whose_upstream_is_before_it(
    upstream: Graph,
) -> None:
    names = build_dag(upstream).names
    for index, name in enumerate(names):
        free = (
            other
            for other in upstream
            if other not in names[:index]
            and all(above in names[:index] for above in upstream[other])
        )
        assert name == next(free)


@UNTIMED
@given(
    acyclic(),
    st.lists(st.sampled_from(NAMES + "?"), max_size=3),
    st.sampled_from(TaskDependType),
)
def test_a_selection_is_what_can_be_reached_and_its_edges(
    upstream: Graph, start: list[str], mode: TaskDependType
) -> None:
    dag = build_dag(upstream)
    found = select(dag, start, mode)
    assert sorted(found.names) == expected(dag, start, mode)
    assert found.names == tuple(name for name in dag.names if name in found.names)
    for name in found.names:
        assert found.upstream[name] == kept(dag.upstream[name], found)
        assert found.downstream[name] == kept(dag.downstream[name], found)


def expected(dag: Dag, start: list[str], mode: TaskDependType) -> list[str]:
    known = [name for name in start if name in dag.names]
    match mode:
        case TaskDependType.TASK_ONLY:
            return sorted(dict.fromkeys(known))
        case TaskDependType.TASK_PRE:
            return reached(dag.upstream, known)
        case TaskDependType.TASK_POST:
            return reached(dag.downstream, known if start else dag.names)


def kept(names: tuple[str, ...], found: Dag) -> tuple[str, ...]:
    return tuple(name for name in names if name in found.names)


@UNTIMED
@given(acyclic(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
def test_a_selection_of_a_selection_is_the_same_selection(
    upstream: Graph, start: list[str]
) -> None:
    dag = build_dag(upstream)
    for mode in TaskDependType:
        once = select(dag, start, mode)
        assert select(once, start, mode) == once
