"""The partitions and offsets of streams, asked for in threads that may hang.

Each supervisor's stream is asked again and again by a thread of its own, which waits for the
brokers as long as it likes: whoever looks is told the last answer, or that there is none. A thread
that never returns is left behind with its supervisor, and ends with the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from common.clock import Clock
from common.errors import SchedulerError
from common.model.streams.properties import SERVERS
from common.model.streams.spec import SupervisorSpec
from master.supervisors.view import StreamFailure, StreamSnapshot

log = logging.getLogger(__name__)

_PATIENCE: Final = timedelta(seconds=30)
"""The time after which brokers that say nothing count as away."""


class StreamUnreachableError(SchedulerError):
    """A stream could not be asked. The text says why, without secrets; ask again later."""


Ask: TypeAlias = Callable[[SupervisorSpec], StreamSnapshot]
"""A query of the brokers for offsets; may wait, and may raise `StreamUnreachableError`."""


class AskedStreams:
    """The last answers about the streams of supervisors."""

    def __init__(self, ask: Ask, *, clock: Clock, woken: Callable[[], object]) -> None:
        """`woken` is called when an answer has come that differs from the last one."""
        self._ask = ask
        self._clock = clock
        self._woken = woken
        self._pollers: dict[str, _Poller] = {}

    def look(self, spec: SupervisorSpec) -> StreamSnapshot | StreamFailure | None:
        """Return the last answer; None if the first one may still come."""
        poller = self._pollers.get(spec.id)
        if poller is None or not poller.asks_for(spec):
            if poller is not None:
                poller.stop()
            poller = _Poller(self._ask, spec, clock=self._clock, woken=self._woken)
            self._pollers[spec.id] = poller
            poller.start()
        return poller.answer()

    def forget(self, supervisor: str) -> None:
        """Ask no more for this supervisor."""
        poller = self._pollers.pop(supervisor, None)
        if poller is not None:
            poller.stop()


class _Poller:
    """One thread, which asks for one stream."""

    def __init__(
        self, ask: Ask, spec: SupervisorSpec, *, clock: Clock, woken: Callable[[], object]
    ) -> None:
        self._ask = ask
        self._spec = spec
        self._io = spec.io
        self._interval = spec.tuning.offset_fetch_period
        self._clock = clock
        self._woken = woken
        self._stopped = threading.Event()
        # Replaced whole, and so read without a lock.
        self._last: tuple[float, StreamSnapshot | StreamFailure | None]
        self._last = (clock.monotonic(), None)
        self._thread = threading.Thread(target=self._run, name=f"stream-{spec.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a question that waits for an answer is not waited for."""
        self._stopped.set()

    def asks_for(self, spec: SupervisorSpec) -> bool:
        """Return True if a specification has the same stream."""
        return (
            self._io.topic,
            self._io.has_pattern,
            self._io.consumer,
            self._io.connection,
            self._interval,
        ) == (
            spec.io.topic,
            spec.io.has_pattern,
            spec.io.consumer,
            spec.io.connection,
            spec.tuning.offset_fetch_period,
        )

    def answer(self) -> StreamSnapshot | StreamFailure | None:
        since, last = self._last
        silent = timedelta(seconds=self._clock.monotonic() - since)
        allowed = _PATIENCE if last is None else _PATIENCE + self._interval
        if silent <= allowed:
            return last
        servers = self._io.consumer.get(SERVERS)
        return StreamFailure(
            reason=f"the brokers {servers if isinstance(servers, str) else ''} have not answered"
            f" for {silent.total_seconds():.0f} s"
        )

    def _run(self) -> None:
        while not self._stopped.is_set():
            found: StreamSnapshot | StreamFailure
            try:
                found = self._ask(self._spec)
            except StreamUnreachableError as error:
                found = StreamFailure(reason=str(error))
            except Exception as error:
                # A thread that ends would look like brokers that say nothing.
                log.exception("stream could not be asked", extra={"topic": self._io.topic})
                found = StreamFailure(
                    reason=f"the stream could not be asked: {type(error).__name__}"
                )
            former = self._last[1]
            self._last = (self._clock.monotonic(), found)
            if found != former:
                self._woken()
            self._stopped.wait(self._interval.total_seconds())
