"""The partitions and offsets of streams, queried in threads that may hang.

The streams of supervisors are queried periodically. `look` returns the last answer, or None. Each
project gets at most `MOST_AT_ONCE` threads. So brokers that do not answer delay only queries of the
same project, and take few processes of this computer.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Final, TypeAlias

from common.clock import Clock
from common.errors import SchedulerError
from common.model.streams.properties import SERVERS
from common.model.streams.spec import SupervisorSpec
from master.supervisors.view import StreamFailure, StreamSnapshot

log = logging.getLogger(__name__)

_PATIENCE: Final = timedelta(seconds=30)
"""The time after which brokers that say nothing count as away."""
MOST_AT_ONCE: Final = 16
"""The queries of one project at a time."""


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
        self._pollers: dict[str, tuple[_Poller, _Queries]] = {}
        self._queries: dict[int, _Queries] = {}

    def look(
        self, spec: SupervisorSpec, *, project_id: int
    ) -> StreamSnapshot | StreamFailure | None:
        """Return the last answer; None if the first one may still come."""
        known = self._pollers.get(spec.id)
        if known is not None and known[0].asks_for(spec):
            poller, queries = known
            return poller.answer(is_busy=queries.is_busy)
        self.forget(spec.id)
        poller = _Poller(self._ask, spec, clock=self._clock, woken=self._woken)
        queries = self._queries.setdefault(project_id, _Queries(self._clock))
        self._pollers[spec.id] = (poller, queries)
        queries.add(poller)
        return None

    def forget(self, supervisor: str) -> None:
        """Stop the queries for this supervisor; do not wait for a running one."""
        known = self._pollers.pop(supervisor, None)
        if known is not None:
            poller, queries = known
            queries.remove(poller)


class _Queries:
    """The queries of one project.

    One thread waits for the next query that is due. Before it runs the query, it starts another
    thread to wait, unless there are `MOST_AT_ONCE` threads.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, _Poller]] = []
        self._numbers = count()
        self._threads = 0
        self._is_awaited = False

    @property
    def is_busy(self) -> bool:
        """All threads wait for answers."""
        return self._threads >= MOST_AT_ONCE and not self._is_awaited

    def add(self, poller: _Poller) -> None:
        """Query for this poller now, and periodically after that."""
        with self._changed:
            self._put(poller, self._clock.monotonic())
            self._have_awaited()

    def remove(self, poller: _Poller) -> None:
        """Stop the queries of this poller."""
        with self._changed:
            poller.is_stopped = True
            self._due = [each for each in self._due if each[2] is not poller]
            heapq.heapify(self._due)
            self._changed.notify()

    def _put(self, poller: _Poller, due: float) -> None:
        heapq.heappush(self._due, (due, next(self._numbers), poller))
        self._changed.notify()

    def _have_awaited(self) -> None:
        """Start a thread that waits for the next query, unless one waits or all are busy."""
        if self._due and not self._is_awaited and self._threads < MOST_AT_ONCE:
            self._is_awaited = True
            self._threads += 1
            threading.Thread(target=self._run, name="streams", daemon=True).start()

    def _run(self) -> None:
        while (poller := self._next()) is not None:
            poller.query()
            with self._changed:
                if not poller.is_stopped:
                    self._put(poller, self._clock.monotonic() + poller.interval.total_seconds())
                if self._is_awaited or not self._due:
                    self._threads -= 1
                    return
                self._is_awaited = True

    def _next(self) -> _Poller | None:
        """Wait for the next query; return None if no poller is left."""
        with self._changed:
            while self._due:
                left = self._due[0][0] - self._clock.monotonic()
                if left <= 0:
                    poller = heapq.heappop(self._due)[2]
                    self._is_awaited = False
                    self._have_awaited()
                    return poller
                self._changed.wait(left)
            self._is_awaited = False
            self._threads -= 1
            return None


class _Poller:
    """The queries for one stream, and the last answer."""

    def __init__(
        self, ask: Ask, spec: SupervisorSpec, *, clock: Clock, woken: Callable[[], object]
    ) -> None:
        self._ask = ask
        self._spec = spec
        self._io = spec.io
        self.interval = spec.tuning.offset_fetch_period
        self.is_stopped = False
        self._is_asking = False
        self._clock = clock
        self._woken = woken
        # Replaced whole, and so read without a lock.
        self._last: tuple[float, StreamSnapshot | StreamFailure | None]
        self._last = (clock.monotonic(), None)

    def asks_for(self, spec: SupervisorSpec) -> bool:
        """Return True if a specification has the same stream."""
        return (
            self._io.topic,
            self._io.has_pattern,
            self._io.consumer,
            self._io.connection,
            self.interval,
        ) == (
            spec.io.topic,
            spec.io.has_pattern,
            spec.io.consumer,
            spec.io.connection,
            spec.tuning.offset_fetch_period,
        )

    def answer(self, *, is_busy: bool) -> StreamSnapshot | StreamFailure | None:
        since, last = self._last
        silent = timedelta(seconds=self._clock.monotonic() - since)
        allowed = _PATIENCE if last is None else _PATIENCE + self.interval
        if silent <= allowed:
            return last
        if is_busy and not self._is_asking:
            return StreamFailure(
                reason=f"a query of the brokers has waited for {silent.total_seconds():.0f} s,"
                f" because {MOST_AT_ONCE} other queries of the project wait for answers"
            )
        servers = self._io.consumer.get(SERVERS)
        return StreamFailure(
            reason=f"the brokers {servers if isinstance(servers, str) else ''} have not answered"
            f" for {silent.total_seconds():.0f} s"
        )

    def query(self) -> None:
        """Query once, and keep the answer."""
        self._is_asking = True
        found: StreamSnapshot | StreamFailure
        try:
            found = self._ask(self._spec)
        except StreamUnreachableError as error:
            found = StreamFailure(reason=str(error))
        except Exception as error:
            # A thread that ends would look like brokers that say nothing.
            log.exception("stream could not be asked", extra={"topic": self._io.topic})
            found = StreamFailure(reason=f"the stream could not be asked: {type(error).__name__}")
        former = self._last[1]
        self._last = (self._clock.monotonic(), found)
        self._is_asking = False
        if found != former:
            self._woken()
