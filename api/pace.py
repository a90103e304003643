"""The pace of requests: so many a second of each user, and some more at once.

By the generic cell rate algorithm: a request is early by the part of its second that the requests
before it have taken up. Each server counts for itself, in memory.
"""

from __future__ import annotations

import math
import threading
from typing import Final

from api.problems import TooManyError
from common.clock import Clock

_BURST_SECONDS: Final = 2.0
_MANY_USERS: Final = 10_000


class Pace:
    """The requests of all users. Any thread may use it."""

    def __init__(self, *, per_second: int, clock: Clock) -> None:
        """`per_second` 0 lets everything through."""
        self._gap = 1 / per_second if per_second else 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._taken_until: dict[int, float] = {}

    def take(self, user_id: int) -> None:
        """Count a request; `TooManyError` if it comes too early, which is not counted."""
        now = self._clock.monotonic()
        with self._lock:
            until = max(now, self._taken_until.get(user_id, now))
            early = until - now - _BURST_SECONDS
            if early <= 0:
                self._forget(now)
                self._taken_until[user_id] = until + self._gap
                return
        raise TooManyError(
            f"you ask more than {1 / self._gap:.0f} times a second; ask less often, or wait for"
            " what changes by /api/v1/events",
            retry_after=math.ceil(early),
        )

    def _forget(self, now: float) -> None:
        if len(self._taken_until) >= _MANY_USERS:
            self._taken_until = {
                user: until for user, until in self._taken_until.items() if until > now
            }
