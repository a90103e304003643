"""Ranks of the tasks of a DAG: every edge leads from a lower rank to a higher one.

A rank is the longest path from a source. Sources then move right, to just before the first of the
tasks that wait for them, since a long edge costs more ink than a late beginning.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.dag import Dag


def ranks_of(dag: Dag) -> Mapping[str, int]:
    """Return name → rank, from 0 and without gaps, in the order of the DAG's names."""
    ranks: dict[str, int] = {}
    for name in dag.names:
        ranks[name] = max((ranks[each] + 1 for each in dag.upstream[name]), default=0)
    for name in dag.heads:
        if dag.downstream[name]:
            ranks[name] = min(ranks[each] for each in dag.downstream[name]) - 1
    return ranks


def members_of(ranks: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Return the names of each rank, in the mapping's order."""
    members: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for name, rank in ranks.items():
        members[rank].append(name)
    return tuple(map(tuple, members))
