"""Hears of attempts that a master has submitted this moment, and of new modes of workers.

And of new orders to a stream's task. A hint that is lost, or that comes late, costs nothing but
time: each attempt is in the queue too, and orders are looked for now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from common.model.cluster import QueueEntry
from common.store.listen import ORDERS, Channel, Notification, read_hint


class HintSource(Protocol):
    """`common.store.listen.Notifications`, or a queue in the simulator."""

    def wait(self, timeout: timedelta) -> list[Notification]: ...

    def wake(self) -> None: ...


class HintLoop:
    """Blocks in the source's `wait` where other loops rest, so it needs a `stop` of its own."""

    name = "hint"

    def __init__(
        self,
        source: HintSource,
        *,
        hinted: Callable[[Sequence[QueueEntry]], None],
        modes_changed: Callable[[], None] = lambda: None,
        ordered: Callable[[], object] = lambda: None,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        """`ordered`: there may be orders to some task of a stream."""
        self._source = source
        self._hinted = hinted
        self._modes_changed = modes_changed
        self._ordered = ordered
        self._patience = patience
        self._stopping = False

    def stop(self) -> None:
        """End the present wait and allow no other; called by the thread that stops the daemon."""
        self._stopping = True
        self._source.wake()

    def run_once(self) -> timedelta:
        """Wait for hints and pass them on."""
        if self._stopping:
            return self._patience
        for notification in self._source.wait(self._patience):
            if notification.is_reminder:
                self._modes_changed()
                self._ordered()
                continue
            if notification.channel == Channel.WORKER:
                self._modes_changed()
                continue
            if notification.payload == ORDERS:
                self._ordered()
                continue
            entries = read_hint(notification.payload)
            if entries:
                self._hinted(entries)
        return timedelta()
