"""Runs short work side by side in the thread of the event loop.

Threads would contend for the interpreter's lock, and each hand-over between two of them costs as
much as a short statement. A greenlet goes on until it waits for the database
(`common.store.yielding`), and then the loop does.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from greenlet import getcurrent, greenlet

from common.clock import SystemClock
from common.store.yielding import Readiness

Result = TypeVar("Result")

_SLOW_SECONDS: Final = 0.1
_clock: Final = SystemClock()


class Greenlets(Generic[Result]):
    """Some greenlets, and the work that waits for one. It belongs to the thread of its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        """Have so many greenlets, each of which does one work at a time."""
        self._loop = loop
        self._main = getcurrent()
        self._free = [greenlet(self._serve) for _ in range(number)]
        self._waiting: deque[tuple[asyncio.Future[Result | None], Callable[[], Result]]] = deque()
        self._awaited: dict[int, greenlet] = {}
        self._ended_at = 0.0
        # One for all sockets: the loop would make a watch for each statement.
        self._sockets = select.epoll()
        loop.add_reader(self._sockets.fileno(), self._look)

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop is loop

    def is_stuck(self) -> bool:
        """Return True while all are at slow work, and some waits."""
        return bool(self._waiting) and _clock.monotonic() - self._ended_at > _SLOW_SECONDS

    def begin(self, work: Callable[[], Result]) -> asyncio.Future[Result | None]:
        """Begin work, which must raise nothing; the future may be given a result before it."""
        future: asyncio.Future[Result | None] = self._loop.create_future()
        self._waiting.append((future, work))
        if self._free:
            self._go_on(self._free.pop())
        return future

    def _serve(self) -> None:
        while True:
            while self._waiting:
                future, work = self._waiting.popleft()
                if future.done():
                    continue  # Given up while it waited for a greenlet.
                result = work()
                self._ended_at = _clock.monotonic()
                if not future.done():
                    future.set_result(result)
            self._main.switch(None)

    def _go_on(self, worker: greenlet, error: BaseException | None = None) -> None:
        """Let one run until it waits for something, by raising an error in it if there is one."""
        wanted: Any = worker.switch() if error is None else worker.throw(error)
        if wanted is None:
            self._free.append(worker)
        elif isinstance(wanted, Readiness):
            self._awaited[wanted.descriptor] = worker
            events = wanted.events | select.EPOLLONESHOT
            try:
                self._sockets.modify(wanted.descriptor, events)
            except FileNotFoundError:
                self._sockets.register(wanted.descriptor, events)
        else:
            done = self._loop.run_in_executor(None, wanted)
            done.add_done_callback(lambda end: self._go_on(worker, end.exception()))

    def _look(self) -> None:
        for descriptor, _ in self._sockets.poll(0):
            self._go_on(self._awaited.pop(descriptor))
