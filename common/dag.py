"""Directed acyclic graphs of task names as plain tuples, built and checked once.

Pure. Adds the words *upstream* and *downstream*. A `Dag` never changes; asking it for neighbours is
a dictionary look-up, so that a step of the engine costs what its neighbours cost and not what the
graph costs. The one place that imports networkx, and only to name a cycle: importing it takes
longer than the command line may take to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

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
    above: dict[str, dict[str, None]] = {}
    below: dict[str, dict[str, None]] = {name: {} for name in upstream}
    for name, others in upstream.items():
        # A name that is repeated is one edge.
        above[name] = dict.fromkeys(others)
        for other in above[name]:
            if other not in upstream:
                raise DagError(f"{name!r} waits for {other!r}, which does not exist")
            below[other][name] = None
    place = {name: index for index, name in enumerate(upstream)}
    order = _in_order(list(upstream), place, above, below)
    if len(order) < len(place):
        raise DagError(_a_cycle(above))
    return Dag(
        names=order,
        upstream={name: tuple(sorted(above[name], key=place.__getitem__)) for name in order},
        downstream={name: tuple(sorted(below[name], key=place.__getitem__)) for name in order},
    )


def _in_order(
    names: Sequence[str],
    place: Mapping[str, int],
    above: Mapping[str, Collection[str]],
    below: Mapping[str, Collection[str]],
) -> tuple[str, ...]:
    """The topological order that takes what is written first whenever it can.

    Names on a cycle, and those behind one, are missing from it.
    """
    missing = {name: len(above[name]) for name in names}
    ready = [place[name] for name in names if not missing[name]]
    heapify(ready)
    order: list[str] = []
    while ready:
        name = names[heappop(ready)]
        order.append(name)
        for other in below[name]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, place[other])
    return tuple(order)


def _a_cycle(above: Mapping[str, Iterable[str]]) -> str:
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(above)
    for name, others in above.items():
        graph.add_edges_from((other, name) for other in others)
    around = nx.find_cycle(graph)
    path = " → ".join(repr(edge[0]) for edge in around[:20])
    return f"a cycle: {path} → {around[0][0]!r}"


def select(dag: Dag, start: Iterable[str], mode: TaskDependType) -> Dag:
    """The part of a DAG that a command asks for (contract §5.5).

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


def leads(dag: Dag, start: Iterable[str], goal: str) -> bool:
    """True if the goal is one of these names or below one; unknown names lead nowhere."""
    waiting = deque(name for name in start if name in dag.downstream)
    seen = set(waiting)
    while waiting:
        name = waiting.popleft()
        if name == goal:
            return True
        for below in dag.downstream[name]:
            if below not in seen:
                seen.add(below)
                waiting.append(below)
    return False


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
