"""Queries the database once a second, so this master knows for how long it is out of reach.

The other loops can't tell, because each of them may rest or wait for an answer. A query without an
answer counts from the moment at which it was sent, because a cut connection may stay silent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from common.clock import Clock
from common.errors import ServiceUnreachableError

log = logging.getLogger(__name__)

_INTERVAL = timedelta(seconds=1)
NOTICED: Final = timedelta(seconds=3)
"""After this time an absence is shown to the other masters, and keeps this one from joining."""


class DatabaseLoop:
    """One small query at a time, on a separate connection."""

    name = "database"

    def __init__(self, query: Callable[[], None], *, clock: Clock) -> None:
        """`query` raises `ServiceUnreachableError` if the database does not answer."""
        self._query = query
        self._clock = clock
        self.answered: Callable[[], None] = lambda: None
        """Called when an absence ends."""
        # Read by other threads.
        self._sent_at: float | None = None
        self._failing_since: float | None = None

    def run_once(self) -> timedelta:
        """Query once; return the time to rest."""
        sent_at = self._clock.monotonic()
        self._sent_at = sent_at
        try:
            self._query()
        except ServiceUnreachableError as error:
            if self._failing_since is None:
                log.warning("database is out of reach", extra={"cause": str(error)})
                self._failing_since = sent_at
        else:
            was_failing, self._failing_since = self._failing_since is not None, None
            if was_failing:
                log.info("database answers again")
                self.answered()
        finally:
            self._sent_at = None
        return _INTERVAL

    def away(self) -> timedelta:
        """Return the time for which the database has not answered; from any thread."""
        # In this order: a query that fails in between is found in either place.
        sent_at, since = self._sent_at, self._failing_since
        since = sent_at if since is None else since
        if since is None:
            return timedelta()
        return timedelta(seconds=max(0.0, self._clock.monotonic() - since))

    def shown(self) -> int | None:
        """Return the seconds that the heartbeat shows; None if it shows none."""
        away = self.away()
        return None if away < NOTICED else int(away.total_seconds())
