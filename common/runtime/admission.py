"""Admits more work while this host has room: load average, available memory (contract §5.0).

Equality is room enough. `common.host` is asked once a second at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from common.clock import Clock
from common.host import HostLoad

log = logging.getLogger(__name__)

_VALID_SECONDS = 1.0


class Admission:
    """Says no while the host is overloaded, and logs when the answer changes."""

    def __init__(
        self,
        *,
        load: Callable[[], HostLoad],
        max_load_average: float,
        reserved_memory_gb: float,
        clock: Clock,
    ) -> None:
        self._load = load
        self._max_load_average = max_load_average
        self._reserved_memory_gb = reserved_memory_gb
        self._clock = clock
        self._valid_until = 0.0
        self._room = True

    def __call__(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._valid_until:
            self._valid_until = now + _VALID_SECONDS
            load = self._load()
            room = (
                load.load_average <= self._max_load_average
                and load.available_memory_gb >= self._reserved_memory_gb
            )
            if room != self._room:
                log.warning(
                    "host has room again" if room else "host has no room for more work",
                    extra={
                        "load_average": load.load_average,
                        "available_memory_gb": load.available_memory_gb,
                    },
                )
            self._room = room
        return self._room
