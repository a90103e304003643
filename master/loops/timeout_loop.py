"""Carries out time-outs: alerts or ends what takes too long, once, whatever its owner.

A time-out counts from a time in the row: the worker's start of the attempt (trap T46a), the start
of the process instance (T46b). The row also notes that the alert was sent, so a failover sends none
twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from common.clock import Clock
from common.store.master.ports import TimeoutStore
from master.identity import Identity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutConfig:
    """The check interval, and so the largest delay of a time-out alert."""

    interval: timedelta = timedelta(seconds=1)


class TimeoutLoop:
    """Runs on every master; the rows keep two of them from alerting twice."""

    name = "timeout"

    def __init__(
        self,
        store: TimeoutStore,
        *,
        identity: Identity,
        clock: Clock,
        config: TimeoutConfig | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._config = config or TimeoutConfig()

    def run_once(self) -> timedelta:
        """Carry out due time-outs; return the time to rest."""
        if self._identity.trusted() is not None:
            count = self._store.time_out(now=self._clock.now())
            if count:
                log.warning("time-outs were carried out", extra={"count": count})
        return self._config.interval
