"""Directed acyclic graphs of task names: built and checked with networkx, then plain tuples.

Pure, and the one place that imports networkx. Adds the words *upstream* and *downstream*. A `Dag`
never changes; asking it for neighbours is a dictionary look-up, so that a step of the engine costs
what its neighbours cost and not what the graph costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from common.errors import SchedulerError
from common.model.states import TaskDependType


class DagError(SchedulerError):
    """The edges make no DAG; the text names a cycle or a name that is missing."""


@dataclass(frozen=True, slots=True)
class Dag:
    """Names in a topological order that keeps the order written, with their neighbours."""

    names: tuple[str, ...]
    upstream: Mapping[str, tuple[str, ...]]
    downstream: Mapping[str, tuple[str, ...]]

    @property
    def heads(self) -> tuple[str, ...]:
        """The names without upstream: where a run begins."""
        return tuple(name for name in self.names if not self.upstream[name])


def build_dag(upstream: Mapping[str, Iterable[str]]) -> Dag:
    """Build from name → names upstream of it. Raises `DagError`; nothing is silently left out.

    Detection of cycles is exact and linear (traps T28, T29).
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(upstream)
    for name, above in upstream.items():
        for other in above:
            if other not in upstream:
                raise DagError(f"{name!r} waits for {other!r}, which does not exist")
            graph.add_edge(other, name)
    if not nx.is_directed_acyclic_graph(graph):
        around = nx.find_cycle(graph)
        path = " → ".join(repr(edge[0]) for edge in around[:20])
        raise DagError(f"a cycle: {path} → {around[0][0]!r}")
    place = {name: index for index, name in enumerate(upstream)}
    order = tuple(nx.lexicographical_topological_sort(graph, key=place.__getitem__))
    return Dag(
        names=order,
        upstream={
            name: tuple(sorted(graph.predecessors(name), key=place.__getitem__)) for name in order
        },
        downstream={
            name: tuple(sorted(graph.successors(name), key=place.__getitem__)) for name in order
        },
    )


def select(dag: Dag, start: Iterable[str], mode: TaskDependType) -> Dag:
    """The part of a DAG that a command asks for (specification §5.5).

    Unknown start names are skipped; an empty `start` with TASK_POST means everything. The result
    may be empty, which is the caller's error to report. Edges to names that are not selected fall
    away, so that a node in the middle can start (trap T25).
    """
    asked = tuple(start)
    known = [name for name in asked if name in dag.upstream]
    match mode:
        case TaskDependType.TASK_POST:
            chosen = _reach(dag.downstream, known) if asked else set(dag.names)
        case TaskDependType.TASK_PRE:
            chosen = _reach(dag.upstream, known)
        case TaskDependType.TASK_ONLY:
            chosen = set(known)
    return restrict(dag, chosen)


def restrict(dag: Dag, chosen: Iterable[str]) -> Dag:
    """The DAG of these names alone."""
    wanted = frozenset(chosen)
    names = tuple(name for name in dag.names if name in wanted)

    def keep(neighbours: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in neighbours if name in wanted)

    return Dag(
        names=names,
        upstream={name: keep(dag.upstream[name]) for name in names},
        downstream={name: keep(dag.downstream[name]) for name in names},
    )


def _reach(neighbours: Mapping[str, tuple[str, ...]], start: Iterable[str]) -> set[str]:
    waiting = deque(start)
    seen = set(waiting)
    while waiting:
        for name in neighbours[waiting.popleft()]:
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return seen
