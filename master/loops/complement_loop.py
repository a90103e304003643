"""Advances complements: notes the dates that have ended, and begins the next ones.

`master.logic.complement` decides, from rows alone; any master may carry it out. The loop is woken
when a process instance has ended, and when a complement is changed by a person.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from common.clock import Clock
from common.store.master.ports import ComplementStore
from master.identity import Identity
from master.logic.complement import step

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementConfig:
    """Intervals without a notification: `interval` while a complement is live.

    `thorough_interval` is the one at which ended complements are checked too.
    """

    interval: timedelta = timedelta(seconds=1)
    thorough_interval: timedelta = timedelta(seconds=15)


class ComplementLoop:
    """Keeps nothing in memory but the time of the next thorough check."""

    name = "complement"

    def __init__(
        self,
        store: ComplementStore,
        *,
        identity: Identity,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        config: ComplementConfig | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._wake = wake
        self._config = config or ComplementConfig()
        self._thorough_at = clock.monotonic()

    def recovered(self) -> None:
        """Check ended complements too: a run became live again that may be one of their dates."""
        self._thorough_at = self._clock.monotonic()
        self._wake()

    def run_once(self) -> timedelta:
        """Advance all complements that can be; return the time until the next check."""
        if self._identity.trusted() is None:
            return self._config.interval
        monotonic = self._clock.monotonic()
        thorough = monotonic >= self._thorough_at
        if thorough:
            # Set before the check, so that a recovery amid it causes another.
            self._thorough_at = monotonic + self._config.thorough_interval.total_seconds()
        advanced = self._store.advance(decide=step, now=self._clock.now(), thorough=thorough)
        if advanced.begun:
            log.info("dates of complements begin", extra={"count": advanced.begun})
        return self._config.interval if advanced.moving else self._config.thorough_interval
