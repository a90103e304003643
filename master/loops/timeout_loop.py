"""Looks for what takes too long, and says or ends it, once, whoever owns it.

The clock of a time-out is a time in the row: the worker's start of the attempt (trap T46a), the
start of the process instance (T46b). Whether it was said stands in the row too, so a failover says
nothing twice.
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
    """How often it is looked; a time-out is told at most so late."""

    interval: timedelta = timedelta(seconds=1)


class TimeoutLoop:
    """Runs on every master; what one of them has said, the others find said."""

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
        """Carry out what is due; answers how long to rest."""
        if self._identity.trusted() is not None:
            count = self._store.time_out(now=self._clock.now())
            if count:
                log.warning("time-outs were carried out", extra={"count": count})
        return self._config.interval
