"""A load-aware shuffle: which share of the records each task of a bolt gets. Pure.

Storm's tasks tell how full their queues are. Here a batch ends with its slowest task, so the load
of a task is the time that it took over its share of a batch. Shares are *weights*, small whole
numbers; in a *ring* each task has as many places as its weight, and records take them in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import Final

_CELLS: Final = 32
"""The places of a ring for each task, before they are cancelled down: shares of 3 %."""
_SAME: Final = 1.1
"""Loads of which none is so many times the mean are alike: to move records is worth nothing."""


def even(tasks: int) -> tuple[int, ...]:
    """Return the weights of tasks of which nothing is known."""
    return (1,) * tasks


def weights_after(weights: Sequence[int], micros: Sequence[int]) -> tuple[int, ...]:
    """Return the weights for the next batch, of those of a batch and the time each task took.

    A task's weight goes half the way (as a power) to the one with which all would have taken the
    same time; each keeps one place, so that it can be seen to have become quick again.
    """
    mean = sum(micros) / len(micros)
    if min(micros) <= 0 or max(micros) <= _SAME * mean:
        return tuple(weights)
    wanted = [weight * (mean / took) ** 0.5 for weight, took in zip(weights, micros, strict=True)]
    free = (_CELLS - 1) * len(weights)
    shares = [free * each / sum(wanted) for each in wanted]
    found = [int(each) for each in shares]
    by_rest = sorted(range(len(shares)), key=lambda at: (found[at] - shares[at], at))
    for at in by_rest[: free - sum(found)]:
        found[at] += 1
    found = [1 + each for each in found]
    divisor = gcd(*found)
    return tuple(each // divisor for each in found)


@lru_cache(maxsize=256)
def ring_of(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tasks of a ring, each as often as its weight says and spread out over it."""
    total = sum(weights)
    owed = [0] * len(weights)
    ring = []
    for _ in range(total):
        owed = [each + weight for each, weight in zip(owed, weights, strict=True)]
        task = max(range(len(weights)), key=lambda at: (owed[at], -at))
        owed[task] -= total
        ring.append(task)
    return tuple(ring)
