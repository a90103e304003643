"""Accepts connections for the HTTP server, and limits the TLS handshakes in progress.

`api.connections` counts protocol objects, which are created after the handshake. At the limit of
handshakes, `Door` cancels the oldest one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_MOST_AT_ONCE: Final = 64
_PAUSE_SECONDS: Final = 0.2


class Door:
    """A listening socket. The event loop's thread owns it."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_seconds: float = 5.0,
        most_handshakes: int = 256,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshake_seconds = handshake_seconds
        self._most_handshakes = most_handshakes
        self._loop = asyncio.get_running_loop()
        self._greeted: dict[asyncio.Task[None], None] = {}
        self._is_open = True
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._watch()

    def close(self) -> None:
        """Stop accepting connections, without closing the open ones."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._listening.fileno())
            for each in self._greeted:
                each.cancel()

    async def wait_closed(self) -> None:
        """Return immediately: uvicorn closes the open connections."""

    def _watch(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                connection, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Usually the file descriptors are used up. Without a pause the loop would spin.
                log.warning("connection not accepted", extra={"cause": error.strerror})
                self._loop.remove_reader(self._listening.fileno())
                self._loop.call_later(_PAUSE_SECONDS, self._watch)
                return
            connection.setblocking(False)
            if len(self._greeted) >= self._most_handshakes:
                oldest = next(iter(self._greeted))
                del self._greeted[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._greet(connection))
            self._greeted[task] = None
            task.add_done_callback(lambda done: self._greeted.pop(done, None))

    async def _greet(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._handshake_seconds,
            )
        except (OSError, asyncio.CancelledError):
            # The client disconnected, does not speak TLS, or was too slow.
            connection.close()
