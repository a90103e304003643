"""The simulated daemons: their loops' steps, their notifications, their death."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from common.runtime.service import Loop
from common.store.listen import Channel, Notification, hint_channel
from master.loops.run_worker import RunWorker
from tests.memory.registry import MemoryRegistry


class DaemonDiedError(BaseException):
    """The daemon whose loop is being stepped has died. Not an `Exception`: nothing may catch it."""


@dataclass(slots=True)
class Step:
    """One loop of one daemon, with the time at which its next step is due.

    `idle`: the least rest after a pass that has changed nothing.
    """

    loop: Loop
    due: timedelta
    idle: timedelta


@dataclass(slots=True)
class Daemon:
    """A running daemon. `frozen_until` is in the clock's time; `source` is its notifications.

    `is_isolated`: cut off from PostgreSQL too. `joined`: it has been registered at least once.
    """

    name: str
    registry: MemoryRegistry
    steps: list[Step] = field(default_factory=list)
    frozen_until: timedelta = timedelta()
    cut_off_until: timedelta | None = None
    is_isolated: bool = False
    source: deque[Notification] = field(default_factory=deque)
    after_step: Callable[[], None] | None = None
    runs: RunWorker | None = None
    compared: int = 0
    joined: Callable[[], bool] = lambda: True
    ordered: Callable[[], object] = lambda: None

    def wake(self, name: str, now: timedelta) -> None:
        for step in self.steps:
            if step.loop.name == name:
                step.due = now

    def listens_to(self, channel: str) -> bool:
        """True for what masters listen to; a worker listens to hints for itself alone."""
        if self.runs is None:
            return channel == hint_channel(self.name)
        return channel in tuple(Channel)

    def tick_host(self) -> None:
        """Do what happens on a host as time passes, besides the loops."""
        self.registry.pulse()
        if self.after_step is not None:
            self.after_step()


class Mailbox:
    """The notification source of a simulated daemon."""

    def __init__(self, queue: deque[Notification]) -> None:
        self._queue = queue

    def wait(self, timeout: timedelta) -> list[Notification]:
        heard = list(self._queue)
        self._queue.clear()
        return heard

    def wake(self) -> None:
        """Nothing waits here."""
