"""The open streams of a server: who watches, the limits, and a mailbox for each.

The looker puts events in, the event loop of the server takes them out and sends them. A mailbox
that is not emptied in time loses its events and asks for a snapshot instead, so that no reader,
however slow, costs more than a bounded amount of memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from api.live.topics import Topics
from api.problems import TooManyError
from common.model.rights import Principal

MOST_STREAMS: Final = 200
MOST_OF_USER: Final = 10
MOST_BYTES: Final = 256 * 1024


class Mailbox:
    """Events that wait to be sent. It wants a snapshot first, and whenever events were lost."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._parts: list[bytes] = []
        self._bytes = 0
        self._overflowed = False
        self._wants_snapshot = True
        self._ended = False
        self._notify: Callable[[], None] | None = None

    @property
    def wants_snapshot(self) -> bool:
        """True if nothing but a snapshot is of use."""
        return self._wants_snapshot

    @property
    def ended(self) -> bool:
        """True if nothing comes after what waits."""
        return self._ended

    def notify_by(self, notify: Callable[[], None]) -> None:
        """Call this, from any thread, whenever there is something to take."""
        self._notify = notify

    def post(self, events: Sequence[bytes]) -> None:
        """Add events; they are dropped where a snapshot will say the same."""
        if not events:
            return
        with self._lock:
            if self._wants_snapshot or self._overflowed or self._ended:
                return
            self._parts += events
            self._bytes += sum(map(len, events))
            if self._bytes > self._most_bytes:
                self._parts, self._bytes, self._overflowed = [], 0, True
        self._call()

    def post_snapshot(self, snapshot: bytes) -> None:
        """Put a snapshot in the place of everything that waits."""
        with self._lock:
            if self._ended:
                return
            self._parts, self._bytes = [snapshot], 0
            self._overflowed = self._wants_snapshot = False
        self._call()

    def end(self, last: bytes) -> None:
        """Let this be the last event."""
        with self._lock:
            if self._ended:
                return
            self._parts, self._ended = [last], True
        self._call()

    def take(self) -> bytes:
        """Take what waits. A reader that was too slow has caught up now, and wants a snapshot."""
        with self._lock:
            taken = b"".join(self._parts)
            self._parts, self._bytes = [], 0
            if self._overflowed:
                self._overflowed, self._wants_snapshot = False, True
        return taken

    def _call(self) -> None:
        notify = self._notify
        if notify is not None:
            notify()


class Stream:
    """One reader. `projects` are those of which an overview tells; the looker renews them."""

    def __init__(
        self, *, principal: Principal, topics: Topics, projects: frozenset[int | None]
    ) -> None:
        self.principal: Final = principal
        self.topics: Final = topics
        self.projects = projects
        self.mailbox: Final = Mailbox()


class Seats:
    """The open streams of a server, counted. Any thread may use it."""

    def __init__(self, *, most: int = MOST_STREAMS, most_of_user: int = MOST_OF_USER) -> None:
        self._most = most
        self._most_of_user = most_of_user
        self._lock = threading.Lock()
        self._taken: Counter[int] = Counter()

    def take(self, user_id: int) -> None:
        """Count one; `TooManyError` if the server or the user has as many as there may be."""
        with self._lock:
            if self._taken[user_id] >= self._most_of_user:
                raise TooManyError(
                    f"you have {self._most_of_user} streams open; close one of them first"
                )
            if self._taken.total() >= self._most:
                raise TooManyError(
                    f"this server has {self._most} streams open; ask another one, or try again"
                    " later"
                )
            self._taken[user_id] += 1

    def leave(self, user_id: int) -> None:
        with self._lock:
            self._taken[user_id] -= 1
            self._taken += Counter()  # Forgets those who have none.


class Streams:
    """The open streams of events of a server. Any thread may use it."""

    def __init__(self, *, most: int = MOST_STREAMS, most_of_user: int = MOST_OF_USER) -> None:
        self.seats: Final = Seats(most=most, most_of_user=most_of_user)
        """Of all streams, those of logs too."""
        self._lock = threading.Lock()
        self._open: list[Stream] = []
        self._last: bytes | None = None
        self.wake: Callable[[], None] = lambda: None
        """Has the looker look at once; set by whoever makes the looker."""

    @property
    def last(self) -> bytes | None:
        """The event that ends all streams, once the server stops."""
        return self._last

    def open(self, stream: Stream) -> None:
        """Add a stream; `TooManyError` if the server or the user has as many as there may be."""
        self.seats.take(stream.principal.user_id)
        with self._lock:
            self._open.append(stream)
            last = self._last
        if last is not None:
            self.close(stream)
            stream.mailbox.end(last)
            return
        self.wake()

    def close(self, stream: Stream) -> None:
        with self._lock:
            if stream not in self._open:
                return
            self._open.remove(stream)
        self.seats.leave(stream.principal.user_id)

    def all(self) -> list[Stream]:
        with self._lock:
            return list(self._open)

    def end_all(self, last: bytes) -> None:
        """End all streams, and those that are opened from now on, with this event."""
        with self._lock:
            self._last = last
        for stream in self.all():
            stream.mailbox.end(last)
            self.close(stream)
