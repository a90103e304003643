"""Starts an embedded server again that has died, at the same port and with its data.

Each master of the home has a loop for each embedded server, and the first one to notice starts it.
A server that was stopped is left alone. Starts are at least a pause apart. The pause doubles up to
a minute with each start, and is short again once the server has lived for a minute.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final, Protocol

from common.clock import Clock
from common.errors import SchedulerError

log = logging.getLogger(__name__)

_INTERVAL: Final = timedelta(seconds=2)
_SHORTEST_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 60.0


class Revivable(Protocol):
    """An embedded server."""

    def revive(self) -> bool:
        """Start the server again if it has died; return True if it was started."""


class EmbeddedLoop:
    """The loop for one embedded server."""

    def __init__(self, server: Revivable, *, title: str, clock: Clock) -> None:
        self.name = f"embedded {title}"
        self._server = server
        self._title = title
        self._clock = clock
        self._pause = _SHORTEST_SECONDS
        self._not_before = clock.monotonic()

    def run_once(self) -> timedelta:
        """Start the server if it has died and the pause is over."""
        now = self._clock.monotonic()
        if now < self._not_before:
            return min(_INTERVAL, timedelta(seconds=self._not_before - now))
        try:
            started = self._server.revive()
        except (SchedulerError, OSError) as error:
            self._rest()
            log.error(  # noqa: TRY400  # The cause names what to do; a trace would not.
                "embedded server could not be restarted",
                extra={
                    "server": self._title,
                    "cause": str(error),
                    "next_try_in_seconds": self._not_before - self._clock.monotonic(),
                },
            )
        else:
            if started:
                self._rest()
                log.warning(
                    "embedded server had died and was restarted", extra={"server": self._title}
                )
            elif now >= self._not_before + _LONGEST_SECONDS:
                self._pause = _SHORTEST_SECONDS
        return _INTERVAL

    def _rest(self) -> None:
        self._not_before = self._clock.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_SECONDS)
