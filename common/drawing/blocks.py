"""A graph that is too large to be drawn task by task: each rank is a block, edges are ribbons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from common.dag import Dag
from common.drawing.layers import dummies_of
from common.drawing.ranks import members_of, ranks_of

_MOST_NAMES: Final = 2_000
_MOST_EDGES: Final = 5_000
_MOST_PIECES: Final = 15_000
"""Edges and the dummies on them: many long edges are as hard to draw, and to read, as many."""


@dataclass(frozen=True, slots=True)
class Ribbon:
    """The edges between two ranks, as one."""

    tail: int
    head: int
    edges: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The names of each rank, and what joins ranks.

    A ribbon is left out where a way by others leads from its tail to its head; `left_out` counts
    the edges in those.
    """

    members: tuple[tuple[str, ...], ...]
    ribbons: tuple[Ribbon, ...]
    left_out: int


def needs_blocks(dag: Dag) -> bool:
    """True for more than 2,000 tasks, 5,000 edges, or 15,000 pieces of edges between ranks."""
    edges = sum(map(len, dag.downstream.values()))
    return (
        len(dag.names) > _MOST_NAMES
        or edges > _MOST_EDGES
        or edges + dummies_of(dag, ranks_of(dag)) > _MOST_PIECES
    )


def blocks_of(dag: Dag) -> Blocks:
    """Collapse the ranks of a DAG; 5,000 tasks with 490,000 edges take about 0.2 s."""
    ranks = ranks_of(dag)
    members = members_of(ranks)
    edges: Counter[tuple[int, int]] = Counter()
    for name in dag.names:
        tail = ranks[name]
        edges.update([(tail, ranks[other]) for other in dag.downstream[name]])
    reached: list[int] = [0] * len(members)  # The ranks behind each, as bits.
    drawn: list[Ribbon] = []
    for tail in range(len(members) - 1, -1, -1):
        for head in sorted(head for rank, head in edges if rank == tail):
            if reached[tail] >> head & 1:
                continue
            drawn.append(Ribbon(tail, head, edges[tail, head]))
            reached[tail] |= reached[head] | 1 << head
    return Blocks(
        members=members,
        ribbons=tuple(sorted(drawn, key=lambda each: (each.tail, each.head))),
        left_out=sum(edges.values()) - sum(each.edges for each in drawn),
    )
