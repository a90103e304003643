"""Releases held attempts and runs: held by a delay, for want of slots in a pool, or serially.

The tables say what is held and by what; slots in use are derived from live attempts. No counter is
kept that could be wrong, and a master that dies between two statements leaves no slot taken. Any
master may release anything: the tables' locks decide between two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from common.clock import Clock
from common.store.master.ports import HoldStore
from master.identity import Identity
from master.loops.queue_loop import QueueLoop

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldConfig:
    """`interval`: between checks without a notification.

    `breath`: the least rest, since a due row may be locked by another master. However many
    notifications come, the rest after a check is as long as the check was, up to a tenth of the
    interval.
    """

    interval: timedelta = timedelta(seconds=2)
    breath: timedelta = timedelta(milliseconds=50)


class HoldLoop:
    """Woken after a save that frees slots of a pool, or adds a held attempt."""

    name = "hold"

    def __init__(
        self,
        store: HoldStore,
        *,
        identity: Identity,
        clock: Clock,
        queue: QueueLoop,
        asks: Callable[[], None] = lambda: None,
        config: HoldConfig | None = None,
    ) -> None:
        """`asks` is called when some that are released ask for a worker first."""
        self._store = store
        self._identity = identity
        self._clock = clock
        self._queue = queue
        self._asks = asks
        self._config = config or HoldConfig()
        self._next_look = clock.monotonic()

    def run_once(self) -> timedelta:
        """Release what may begin; return the time until something is due."""
        if self._identity.trusted() is None:
            return self._config.interval
        started = self._clock.monotonic()
        if started < self._next_look:
            return timedelta(seconds=self._next_look - started)
        try:
            released = self._store.release(now=self._clock.now())
        finally:
            ended = self._clock.monotonic()
            pause = min(timedelta(seconds=ended - started), self._config.interval / 10)
            self._next_look = ended + pause.total_seconds()
        self._queue.offer(released.offers)
        if released.asks:
            self._asks()
        if released.instances:
            log.info("the turn of waiting instances came", extra={"count": released.instances})
        if released.next_due is None:
            return self._config.interval
        until_due = released.next_due - self._clock.now()
        return min(max(until_due, self._config.breath), self._config.interval)
