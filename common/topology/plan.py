"""The plan of a topology on Spark: queries, whose bolts are run level by level. Pure.

A *query* begins at one component, its *head*: a spout, or the last stateful bolt of a chain with
all that leads to it. What stands behind the head, bolts without state, is run in levels within each
batch: a level is one exchange and one stage, in which each task of each of its bolts has a
partition of its own. So a bolt is run once for each batch, however many take what it emits.

A record on its way has an *edge*, which is one input of one bolt, and a partition of that bolt's
level. Its values stand in *slots*, columns by type that all streams of a query share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from common.dag import Dag, select
from common.model.states import TaskDependType
from common.topology.checking import graph_of
from common.topology.components import DEFAULT, Spout, StatefulBolt, Stream, streams_of
from common.topology.declaration import Input, Part, Topology
from common.topology.groupings import Everyone
from common.topology.types import TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One input of one bolt of a query: `base` is the partition of its first task at its level."""

    number: int
    bolt: str
    taken: Input
    level: int
    base: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of Spark. `levels`: the bolts behind the head, each with its first partition.

    `ahead`: the bolts that lead from the spouts to a stateful head, in order, without the head.
    """

    head: str
    spouts: tuple[str, ...]
    ahead: tuple[str, ...]
    levels: tuple[Mapping[str, int], ...]
    edges: tuple[Edge, ...]
    slots: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the query, of its checkpoint, and of its batches."""
        return self.head

    def edges_from(self, component: str, stream: str) -> tuple[Edge, ...]:
        """Return the edges that take a stream."""
        return tuple(
            edge
            for edge in self.edges
            if edge.taken.component == component and edge.taken.stream == stream
        )

    def copies_of(self, component: str) -> int:
        """Return how often a record of the default stream is sent; by a chooser, once is taken."""
        return sum(
            edge.tasks if isinstance(edge.taken.grouping, Everyone) else 1
            for edge in self.edges_from(component, DEFAULT)
        )

    def edges_to(self, component: str) -> tuple[Edge, ...]:
        """Return the edges that lead into a bolt."""
        return tuple(edge for edge in self.edges if edge.bolt == component)


def slots_of(stream: Stream) -> tuple[str, ...]:
    """Return the slots of the fields of a stream, in order."""
    counts: Counter[str] = Counter()
    found = []
    for type_name in stream.types:
        spark = TYPES[type_name].spark
        found.append(f"{spark}_{counts[spark]}")
        counts[spark] += 1
    return tuple(found)


def type_of_slot(slot: str) -> str:
    """Return the type of Spark of a slot."""
    return slot.rpartition("_")[0]


def queries_of(topology: Topology) -> tuple[Query, ...]:
    """Return the queries that a topology is run as; it has to be one that is right."""
    return tuple(_Planning(topology).queries())


class _Planning:
    def __init__(self, topology: Topology) -> None:
        self._parts = {part.id: part for part in topology.parts}
        self._dag: Dag = graph_of(topology)
        self._order = {name: place for place, name in enumerate(self._dag.names)}

    def queries(self) -> Iterator[Query]:
        stateful = [name for name in self._order if self._is(name, StatefulBolt)]
        before_stateful = {each for name in stateful for each in self._before(name)}
        for name in self._order:
            if self._is(name, Spout):
                behind = self._behind(name, without=before_stateful | set(stateful))
                if behind:
                    yield self._query(name, (), behind)
            elif name in stateful and name not in before_stateful:
                ahead = tuple(each for each in self._order if each in self._before(name))
                yield self._query(name, ahead, self._behind(name, without=set()))

    def _query(self, head: str, before: tuple[str, ...], behind: set[str]) -> Query:
        levels = self._levels(head, behind)
        spouts = tuple(each for each in (*before, head) if self._is(each, Spout))
        ahead = tuple(each for each in before if not self._is(each, Spout))
        edges: list[Edge] = []
        # Bolts ahead of the head have a level, a plan, of their own each.
        places: dict[str, tuple[int, int]] = dict.fromkeys((*ahead, head), (0, 0))
        for number, level in enumerate(levels, 1):
            places |= {name: (number, base) for name, base in level.items()}
        if not ahead and self._is(head, Spout):
            del places[head]
        sources = {*before, head, *behind}
        for name, (number, base) in places.items():
            for taken in self._parts[name].inputs:
                if taken.component in sources:
                    edges.append(
                        Edge(
                            number=len(edges),
                            bolt=name,
                            taken=taken,
                            level=number,
                            base=base,
                            tasks=self._parts[name].tasks,
                        )
                    )
        return Query(
            head=head,
            spouts=spouts,
            ahead=ahead,
            levels=levels,
            edges=tuple(edges),
            slots=self._slots(edges),
        )

    def _levels(self, head: str, behind: set[str]) -> tuple[dict[str, int], ...]:
        """Return the bolts behind the head by their longest way from it."""
        depth = {head: 0}
        levels: list[dict[str, int]] = []
        for name in self._order:
            if name in behind:
                depth[name] = 1 + max(
                    depth[taken.component]
                    for taken in self._parts[name].inputs
                    if taken.component in depth
                )
                while len(levels) < depth[name]:
                    levels.append({})
                level = levels[depth[name] - 1]
                level[name] = sum(self._parts[each].tasks for each in level)
        return tuple(levels)

    def _slots(self, edges: list[Edge]) -> tuple[str, ...]:
        most: Counter[str] = Counter()
        for edge in edges:
            stream = streams_of(self._parts[edge.taken.component].component)[edge.taken.stream]
            most |= Counter(type_of_slot(slot) for slot in slots_of(stream))
        return tuple(f"{spark}_{place}" for spark in sorted(most) for place in range(most[spark]))

    def _before(self, name: str) -> set[str]:
        return set(select(self._dag, [name], TaskDependType.TASK_PRE).names) - {name}

    def _behind(self, name: str, *, without: set[str]) -> set[str]:
        """Return what can be reached from a component by bolts that are none of these."""
        found: set[str] = set()
        open_ = [name]
        while open_:
            for each in self._dag.downstream[open_.pop()]:
                if each not in found and each not in without:
                    found.add(each)
                    open_.append(each)
        return found

    def _is(self, name: str, kind: type) -> bool:
        return isinstance(self._parts[name].component, kind)


def part_of(topology: Topology, name: str) -> Part:
    """Return a part by its id."""
    return next(part for part in topology.parts if part.id == name)
