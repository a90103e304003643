"""Ends what daemons of this host have left running and can't end themselves.

Each worker of a host looks for the lost attempts of all of them, so that a daemon that never comes
back leaves nothing beside the attempts that replace its own. A loop with a step, and no thread or
time of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from common.store.worker.ports import TaskStore
from worker.attempts import Attempts

_INTERVAL = timedelta(seconds=5)
_AGAIN = timedelta(seconds=1)

EndLost: TypeAlias = Callable[..., int]


class LostLoop:
    """Looks every few seconds, and soon again after it has killed something."""

    name = "lost"

    def __init__(
        self, *, store: TaskStore, host: str, attempts: Attempts, end_lost: EndLost
    ) -> None:
        """`end_lost` is `worker.processes.lost_attempts.end_lost`."""
        self._store = store
        self._host = host
        self._attempts = attempts
        self._end_lost = end_lost

    def run_once(self) -> timedelta:
        """Look once; how long to rest. `ServiceUnreachableError` passes through."""
        # What runs here and is not ours any more is ended by those who know its leader.
        found = self._end_lost(self._store, self._host, spared=self._attempts.running())
        return _AGAIN if found else _INTERVAL
