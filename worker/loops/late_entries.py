"""The claims of the last seconds: their queue entries and hints may still arrive. Starts no thread.

A claim by a hint is made before its entry is seen. That entry is late: the worker takes it out of
the queue and does not query the row. This holds for a few seconds only. A PostgreSQL server that
was promoted without the last transactions, or restored, numbers new attempts with ids that this
worker has claimed before. Their rows decide, as for any other entry.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from common.clock import Clock

_SECONDS: Final = 5.0
_AT_MOST: Final = 1_000


class LateEntries:
    """The last attempts that a worker has claimed, each with the time of the claim."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._claimed: OrderedDict[int, float] = OrderedDict()

    def is_late(self, task_instance_id: int) -> bool:
        """Return True for an attempt that was claimed within the last seconds."""
        claimed_at = self._claimed.get(task_instance_id, -math.inf)
        return self._clock.monotonic() - claimed_at < _SECONDS

    def expect(self, task_instance_ids: Iterable[int]) -> None:
        """Add attempts that were claimed now."""
        now = self._clock.monotonic()
        for each in task_instance_ids:
            self._claimed[each] = now
            self._claimed.move_to_end(each)
        while len(self._claimed) > _AT_MOST:
            self._claimed.popitem(last=False)

    def forget(self, task_instance_id: int) -> None:
        """Drop an attempt that was not started."""
        self._claimed.pop(task_instance_id, None)
