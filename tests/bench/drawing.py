"""Drawings of large graphs: crossings of edges, and the time that layouts take.

The graphs are drawn at random, a seed for each run: 50 layers of 20 tasks, each behind two or three
near ones; and 1,000 tasks with edges over several ranks. Both are written in any order.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from common.dag import Dag, build_dag
from common.drawing.layers import layers_of
from common.drawing.ordering import Effort, crossings, ordered
from common.drawing.picture import picture_of
from common.drawing.ranks import ranks_of
from tests.bench.figures import Figure, Target
from tests.bench.stage import Stage

_LAYERS, _WIDTH, _NEAR = 50, 20, 4
_TASKS, _SHORTEST, _LONGEST = 1_000, 5, 40


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure without the stage: there is nothing to start."""
    del stage
    figures = []
    for make, most in ((layered, 5_000), (scattered, 10_000)):
        dags = [make(seed) for seed in range(1, runs + 1)]
        name = f"drawing.{make.__name__}"
        for effort, limit in ((Effort.QUICK, 150), (Effort.GOOD, 800)):
            target = Target(limit=most) if effort is Effort.GOOD else None
            figures += [
                Figure(
                    name=f"{name}_{effort.value}_crossings",
                    unit="pairs of edges",
                    values=tuple(crossed(dag, effort) for dag in dags),
                    target=target,
                ),
                Figure(
                    name=f"{name}_{effort.value}",
                    unit="ms",
                    values=tuple(_milliseconds(dag, effort) for dag in dags),
                    target=Target(limit=limit),
                ),
            ]
    return figures


def layered(seed: int) -> Dag:
    """Return 50 layers of 20 tasks."""
    drawn = random.Random(seed)
    upstream: dict[str, list[str]] = {}
    for layer in range(_LAYERS):
        for place in range(_WIDTH):
            near = range(max(0, place - _NEAR), min(_WIDTH, place + _NEAR + 1))
            behind = drawn.sample(near, drawn.choice((2, 3))) if layer else []
            upstream[f"{layer}-{place}"] = [f"{layer - 1}-{each}" for each in behind]
    return _in_any_order(upstream, drawn.random)


def scattered(seed: int) -> Dag:
    """Return 1,000 tasks with long edges."""
    drawn = random.Random(seed)
    upstream: dict[str, list[str]] = {}
    for number in range(_TASKS):
        count = drawn.choice((1, 2, 2, 3)) if number > _WIDTH else 0
        behind = (drawn.randint(_SHORTEST, _LONGEST) for _ in range(count))
        upstream[str(number)] = [str(max(0, number - each)) for each in behind]
    return _in_any_order(upstream, drawn.random)


def crossed(dag: Dag, effort: Effort) -> int:
    """Count the crossings of a drawing."""
    layers = layers_of(dag, ranks_of(dag))
    return crossings(layers, ordered(layers, effort))


def _in_any_order(upstream: Mapping[str, list[str]], draw: Callable[[], float]) -> Dag:
    return build_dag({name: upstream[name] for name in sorted(upstream, key=lambda _: draw())})


def _milliseconds(dag: Dag, effort: Effort) -> float:
    began = time.perf_counter()
    picture_of(dag, effort)
    return (time.perf_counter() - began) * 1000
