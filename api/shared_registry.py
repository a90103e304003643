"""One ZooKeeper session for all requests of a server, opened when it is first needed.

A session of its own for each request costs ZooKeeper a write to open it and another to end it. The
shared one mends itself (`common.registry.session`). While ZooKeeper is away one request tries to
reach it, and the others are told so at once or when that one gives up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from common.clock import Clock, SystemClock
from common.config import Config
from common.registry.config import RegistryConfig, registry_config
from common.registry.protocol import Registry, RegistryUnavailableError

_REST_SECONDS: Final = 1.0
_PATIENCE: Final = timedelta(seconds=3)


class SharedRegistry:
    """Lends one registry to all who ask, as long as they ask for the same settings."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        open_: Callable[[RegistryConfig, Clock], Registry] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._open = open_ or _opened
        self._trying = threading.Lock()
        self._config: Config | None = None
        self._opened: Registry | None = None
        self._is_sound = False
        self._failed_at: float | None = None

    @contextmanager
    def lent(self, config: Config, *, patience: timedelta | None = None) -> Iterator[Registry]:
        """Lend the registry; `RegistryUnavailableError` if it can't be reached within patience."""
        opened = self._opened
        if self._is_sound and opened is not None and self._config is config:
            try:
                yield opened
            except RegistryUnavailableError:
                self._is_sound = False
                raise
            return
        within = patience or _PATIENCE
        if not self._trying.acquire(timeout=within.total_seconds()):
            raise RegistryUnavailableError("ZooKeeper has not answered another request yet")
        try:
            yield self._reached(config, within)
            self._is_sound, self._failed_at = True, None
        except RegistryUnavailableError:
            self._is_sound, self._failed_at = False, self._clock.monotonic()
            raise
        finally:
            self._trying.release()

    def close(self) -> None:
        """End the session."""
        opened, self._opened, self._is_sound = self._opened, None, False
        if opened is not None:
            opened.close()

    def _reached(self, config: Config, patience: timedelta) -> Registry:
        if self._config is not config:
            self.close()
            self._config, self._failed_at = config, None
        if (
            self._failed_at is not None
            and self._clock.monotonic() - self._failed_at < _REST_SECONDS
        ):
            raise RegistryUnavailableError("ZooKeeper was out of reach a moment ago")
        if self._opened is None:
            self._opened = self._open(registry_config(config, patience=patience), self._clock)
        return self._opened


def _opened(config: RegistryConfig, clock: Clock) -> Registry:
    # ZooKeeper's client takes long to import, and many servers are never asked who lives.
    from common.registry.connect import connect

    return connect(config, clock=clock)
