"""The connection that a request goes over, which is cut when the request takes too long.

The time limits of a socket apply to each read: a server that sends a byte now and then, in the head
of an answer or before it, keeps all of them. So another thread shuts the connection down in time,
which ends the read. It does not close it: the reader could then read another file of that number.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_MADE: Final = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})


class Line:
    """To one address, over which one request goes at a time."""

    def __init__(self, check: Callable[[socket.socket], None] | None = None) -> None:
        """`check` raises `OSError` if nothing may be sent over a new connection."""
        self.was_cut = False
        """True if the last request took too long."""
        self._check = check
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def hear(self, event: str, about: Mapping[str, Any]) -> None:
        """Note an event of the HTTP client's connection; this is its `trace` extension."""
        if event in _MADE:
            with self._lock:
                made = about["return_value"]
                self._socket = made.get_extra_info("socket")
                if self._check is not None:
                    try:
                        self._check(self._socket)
                    except OSError:
                        self._socket = None
                        made.close()
                        raise
                if self.was_cut:
                    self._shut_down()

    @contextlib.contextmanager
    def held_for(self, seconds: float) -> Iterator[None]:
        """Cut it if what is done within this takes longer."""
        self.was_cut = False
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            # One that is just at it must not hit the next request.
            timer.join()

    def _cut(self) -> None:
        with self._lock:
            self.was_cut = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
