"""The orders to this worker's attempts as its tasks are told them, in memory.

Tasks ask often. One statement for all that have asked lately looks for orders every few seconds,
and at once when a notification says that there may be some.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import Final, Generic, TypeVar

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node

_LOOK: Final = timedelta(seconds=5)
_LONGEST_REST: Final = timedelta(minutes=1)
_FORGOTTEN_SECONDS: Final = 60.0

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    """The orders to an attempt. None: it does not run here any more."""

    orders: T | None
    asked_at: float


class OrderCache(Generic[T]):
    """Answers from any thread; one thread, a loop's, calls `look`."""

    def __init__(
        self,
        find: Callable[[Node, Collection[int]], Mapping[int, T]],
        *,
        node: Callable[[], Node | None],
        clock: Clock,
    ) -> None:
        """`find` returns the orders to those of the attempts that run here."""
        self._find = find
        self._node = node
        self._clock = clock
        self._lock = Lock()
        self._entries: dict[int, _Entry[T]] = {}
        self.wake: Callable[[], object] = lambda: None
        """Called when there is another attempt to look for."""
        self.changed: Callable[[], object] = lambda: None
        """Called when the orders to some attempt are others than before."""

    def __contains__(self, task_id: int) -> bool:
        """Return True if an attempt has asked lately."""
        return task_id in self._entries

    def orders(self, task_id: int) -> T | None:
        """Return the orders to an attempt, None if it has to end.

        `ServiceUnreachableError` if that can't be known just now.
        """
        node = self.trusted()
        now = self._clock.monotonic()
        entry = self._entries.get(task_id)
        if entry is None:
            found = self._find(node, [task_id]).get(task_id)
            if found is None:
                self.check_standing(node)
                return None
            with self._lock:
                entry = self._entries.setdefault(task_id, _Entry(found, now))
            # Orders may have come since, and their notification.
            self.wake()
        entry.asked_at = now
        return entry.orders

    def end(self, task_id: int) -> None:
        """Take note that an attempt does not run here any more."""
        entry = self._entries.get(task_id)
        if entry is not None:
            entry.orders = None
            self.changed()

    def look(self) -> timedelta:
        """Look for orders to all attempts that have asked lately; return how long to rest."""
        now = self._clock.monotonic()
        with self._lock:
            for task_id, entry in list(self._entries.items()):
                if entry.asked_at + _FORGOTTEN_SECONDS < now:
                    del self._entries[task_id]
            asked = {
                task_id: entry
                for task_id, entry in self._entries.items()
                if entry.orders is not None
            }
        node = self._node()
        if not asked or node is None:
            return _LOOK if asked else _LONGEST_REST
        found = self._find(node, asked)
        if self._node() != node:
            # The rows may have changed hands meanwhile.
            return timedelta()
        are_others = False
        for task_id, entry in asked.items():
            orders = found.get(task_id)
            are_others |= orders != entry.orders
            entry.orders = orders
        if are_others:
            self.changed()
        return _LOOK

    def check_standing(self, node: Node) -> None:
        """Raise if rows have changed hands: whoever is not there may still run here."""
        if self._node() != node:
            raise ServiceUnreachableError("this worker has just become another incarnation")

    def trusted(self) -> Node:
        """Return this worker as rows name it; `ServiceUnreachableError` if that is in doubt."""
        node = self._node()
        if node is None:
            raise ServiceUnreachableError("this worker has no session with ZooKeeper just now")
        return node
