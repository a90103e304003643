"""Decides the number of task groups by the lag.

Pure. Used by the keeper of a supervisor, which collects samples and gives notice of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.model.streams.spec import ScalingRule


def wanted_task_count(
    rule: ScalingRule, lags: Sequence[int], *, task_count: int, partitions: int
) -> int:
    """Return the number of groups for these samples of the total lag, `task_count` for no change.

    More groups than partitions would have nothing to read.
    """
    if not rule.enabled or not lags:
        return task_count
    above = sum(lag >= rule.out_threshold for lag in lags) / len(lags)
    below = sum(lag <= rule.in_threshold for lag in lags) / len(lags)
    if above >= rule.out_share:
        return max(task_count, min(task_count + rule.out_step, rule.most, max(partitions, 1)))
    if below >= rule.in_share:
        return min(task_count, max(task_count - rule.in_step, rule.least))
    return task_count
