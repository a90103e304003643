"""The time of a retry: the author's interval, which may grow and have jitter. Pure.

The jitter is derived from the attempt's own name, so that the same events give the same decisions
on every machine, and yet tasks that failed together do not return together.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

from common.model.definitions import TaskNode

_LONGEST = timedelta(days=366)


def retry_due(node: TaskNode, *, ended: datetime, retries: int, seed: str) -> datetime:
    """Return the due time of the next attempt; `retries` were made before the one that ended.

    It is due when now ≥ end + interval, not a second later (trap T48).
    """
    interval = node.retry_interval
    backoff = node.backoff
    if backoff is None or not interval:
        return ended + interval
    longest = backoff.longest or max(_LONGEST, interval)
    # Compared as a ratio, since the power of a large number may be too large for a duration.
    growth = min(backoff.factor ** min(retries, 64), longest / interval)
    waited = interval * growth
    if backoff.jitter:
        waited += waited * backoff.jitter * _chance(seed)
    return ended + waited


def _chance(seed: str) -> float:
    """Return a number from -1 to 1 that depends on the seed alone."""
    digest = blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (2**63) - 1
