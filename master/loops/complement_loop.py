"""Moves complements on: notes which dates have ended, and begins the next ones.

What a complement comes to is decided by `master.logic.complement`, from rows alone; any master may
carry it out. Woken when a process instance has ended, and when somebody asks something of one.
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
    """How often it is looked when nobody tells of a change: `interval` while a complement goes on.

    `thorough_interval`: how often those that have ended are looked at too.
    """

    interval: timedelta = timedelta(seconds=1)
    thorough_interval: timedelta = timedelta(seconds=15)


class ComplementLoop:
    """Nothing is remembered but when it was looked thoroughly."""

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
        """A run was made live again: it may be a failed date of a complement that has ended."""
        self._thorough_at = self._clock.monotonic()
        self._wake()

    def run_once(self) -> timedelta:
        """Move on what can be; answers how long nothing is due."""
        if self._identity.trusted() is None:
            return self._config.interval
        monotonic = self._clock.monotonic()
        thorough = monotonic >= self._thorough_at
        if thorough:
            # Before the look, so that what is recovered amid it is looked at again.
            self._thorough_at = monotonic + self._config.thorough_interval.total_seconds()
        advanced = self._store.advance(decide=step, now=self._clock.now(), thorough=thorough)
        if advanced.begun:
            log.info("dates of complements begin", extra={"count": advanced.begun})
        return self._config.interval if advanced.moving else self._config.thorough_interval
