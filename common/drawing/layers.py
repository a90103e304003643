"""A ranked DAG as layers of which only neighbours are joined: long edges pass through *dummies*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from common.dag import Dag
from common.drawing.ranks import members_of


@dataclass(frozen=True, slots=True)
class Layers:
    """Vertices by number: the DAG's names in their order come first, the dummies behind them."""

    count: int
    """The number of names among the vertices."""
    first: tuple[tuple[int, ...], ...]
    """The vertices of each layer, as they come."""
    left: tuple[tuple[int, ...], ...]
    """Of each vertex its neighbours in the layer before."""
    right: tuple[tuple[int, ...], ...]
    paths: Mapping[tuple[str, str], tuple[int, ...]]
    """Of each edge the vertices on its way, with both ends."""


def layers_of(dag: Dag, ranks: Mapping[str, int]) -> Layers:
    """Cut every edge of more than one rank into pieces of one."""
    number = {name: index for index, name in enumerate(dag.names)}
    layers = [[number[name] for name in members] for members in members_of(ranks)]
    left: list[list[int]] = [[] for _ in dag.names]
    right: list[list[int]] = [[] for _ in dag.names]
    paths: dict[tuple[str, str], tuple[int, ...]] = {}
    for name in dag.names:
        for other in dag.downstream[name]:
            path = [number[name]]
            for rank in range(ranks[name] + 1, ranks[other]):
                path.append(len(left))
                layers[rank].append(len(left))
                left.append([])
                right.append([])
            path.append(number[other])
            for one, next_one in pairwise(path):
                right[one].append(next_one)
                left[next_one].append(one)
            paths[name, other] = tuple(path)
    return Layers(
        count=len(dag.names),
        first=tuple(map(tuple, layers)),
        left=tuple(map(tuple, left)),
        right=tuple(map(tuple, right)),
        paths=paths,
    )


def dummies_of(dag: Dag, ranks: Mapping[str, int]) -> int:
    """Count the dummies that `layers_of` would make, without making them."""
    return sum(
        ranks[other] - ranks[name] - 1 for name in dag.names for other in dag.downstream[name]
    )
