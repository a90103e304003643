"""The cost of a run: its duration, and its slots on workers and in pools. Pure.

Adds the words *run cost* and *peak*: the most slots that the tasks of one run have at the same
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median_high

from common.model.control_types import MASTER_TASK_TYPES
from common.model.definitions import ProcessGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most slots that the tasks of one run had at the same time, in pools by their names."""

    slots: int = 1
    pools: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """The cost of every run of a definition in a simulation, from `runs` runs of the past."""

    duration: timedelta
    peak: Peak = field(default_factory=Peak)
    runs: int = 0

    @property
    def is_assumed(self) -> bool:
        """True if there was no past run to learn from."""
        return self.runs == 0


def run_cost_of(
    durations: Sequence[timedelta],
    peaks: Sequence[Peak],
    *,
    pessimistic: bool,
    assumed: RunCost,
) -> RunCost:
    """The median of the past, or, `pessimistic`, its longest and widest; else `assumed`."""
    choose = max if pessimistic else median_high
    names = sorted({name for peak in peaks for name in peak.pools})
    peak = (
        Peak(
            slots=choose([peak.slots for peak in peaks]),
            pools={name: choose([each.pools.get(name, 0) for each in peaks]) for name in names},
        )
        if peaks
        else assumed.peak
    )
    if not durations:
        return RunCost(duration=assumed.duration, peak=peak)
    return RunCost(duration=max(timedelta(), choose(durations)), peak=peak, runs=len(durations))


def peak_of(graph: ProcessGraph) -> Peak:
    """The peak of a definition that has never run: its widest level, tasks being alike.

    The tasks of its sub processes are not known here: a SUB_PROCESS counts as one.
    """
    level: dict[str, int] = {}
    slots: Counter[int] = Counter()
    pools: dict[str, Counter[int]] = {}
    for name in graph.dag.names:
        node = graph.nodes[name]
        at = 1 + max((level[above] for above in graph.dag.upstream[name]), default=-1)
        level[name] = at
        if node.forbidden or node.task_type in MASTER_TASK_TYPES - {"SUB_PROCESS"}:
            continue
        slots[at] += 1
        for share in node.pools:
            pools.setdefault(share.pool_name or str(share.pool_id), Counter())[at] += share.slots
    return Peak(
        slots=max(slots.values(), default=0),
        pools={name: max(taken.values()) for name, taken in sorted(pools.items())},
    )
