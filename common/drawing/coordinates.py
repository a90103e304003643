"""The places of vertices across the layers: straight edges as far as the order leaves room.

Each vertex wants to be at the mean of its neighbours; the vertices of a layer keep their order and
distances. That is an isotonic regression, solved exactly by pooling adjacent violators (Ayer and
others 1955). Sweeps in both directions, and one that looks at both sides, come to rest soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from common.drawing.layers import Layers

HEIGHT: Final = 44
GAP: Final = 20
_LANE: Final = 14
"""The distance of a passing edge to what is beside it."""
_SWEEPS: Final = 6
_STRAIGHT: Final = 8
"""The weight of a bend within a long edge, in those of one at its ends."""
_Pulls: TypeAlias = tuple[list[tuple[int, int]], int]
"""The neighbours of a vertex, each with its weight, and the sum of these."""


def heights(layers: Layers, order: Sequence[Sequence[int]]) -> list[int]:
    """Return of each vertex the middle of its height, in pixels from 0 on."""
    middles = [0.0] * len(layers.left)
    distances = [_distances(layers, layer) for layer in order]
    for layer, apart in zip(order, distances, strict=True):
        for vertex, offset in zip(layer, apart, strict=True):
            middles[vertex] = offset - apart[-1] / 2

    def settle(at: int, pulls: Sequence[_Pulls]) -> None:
        wanted, weights = [], []
        for vertex in order[at]:
            near, total = pulls[vertex]
            if total:
                wanted.append(sum([pull * middles[each] for each, pull in near]) / total)
            else:
                wanted.append(middles[vertex])
            weights.append(total or 0.1)
        for vertex, middle in zip(order[at], _apart(wanted, weights, distances[at]), strict=True):
            middles[vertex] = middle

    left, right = _pulls(layers, layers.left), _pulls(layers, layers.right)
    both = [
        (one + other, total + more) for (one, total), (other, more) in zip(left, right, strict=True)
    ]
    rightwards, leftwards = range(1, len(order)), range(len(order) - 2, -1, -1)
    for _ in range(_SWEEPS):
        for at in rightwards:
            settle(at, left)
        for at in leftwards:
            settle(at, right)
    for at in range(len(order)):
        settle(at, both)
    return _whole(layers, order, distances, middles)


def _pulls(layers: Layers, neighbours: Sequence[Sequence[int]]) -> list[_Pulls]:
    return [
        (near, sum([pull for _, pull in near]))
        for near in (
            [
                (each, _STRAIGHT if min(vertex, each) >= layers.count else 1)
                for each in neighbours[vertex]
            ]
            for vertex in range(len(neighbours))
        )
    ]


def _distances(layers: Layers, layer: Sequence[int]) -> list[int]:
    """Return how far each vertex of a layer is from the first at least."""
    apart = [0]
    for one, other in pairwise(layer):
        tall = (one < layers.count) + (other < layers.count)
        apart.append(apart[-1] + tall * HEIGHT // 2 + (GAP if tall == 2 else _LANE))
    return apart


def _apart(
    wanted: Sequence[float], weights: Sequence[float], distances: Sequence[int]
) -> list[float]:
    """Return the places nearest to those wanted, by weighted squares, that keep their distances."""
    pools: list[list[float]] = []  # Mean, weight, length.
    for want, weight, distance in zip(wanted, weights, distances, strict=True):
        pools.append([want - distance, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, heavy, length = pools.pop()
            last = pools[-1]
            last[0] = (last[0] * last[1] + mean * heavy) / (last[1] + heavy)
            last[1] += heavy
            last[2] += length
    means = [mean for mean, _, length in pools for _ in range(int(length))]
    return [mean + distance for mean, distance in zip(means, distances, strict=True)]


def _whole(
    layers: Layers,
    order: Sequence[Sequence[int]],
    distances: Sequence[Sequence[int]],
    middles: Sequence[float],
) -> list[int]:
    """Round to pixels, keep the distances, and begin so that everything is below 0."""
    whole = [0] * len(middles)
    for layer, apart in zip(order, distances, strict=True):
        least = None
        for vertex, distance in zip(layer, apart, strict=True):
            place = round(middles[vertex])
            if least is not None:
                place = max(place, least + distance)
            whole[vertex] = place
            least = place - distance
    tops = [
        whole[vertex] - (HEIGHT // 2 if vertex < layers.count else 0)
        for vertex in range(len(whole))
    ]
    first = min(tops, default=0)
    return [each - first for each in whole]
