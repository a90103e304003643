"""Sends at once what is written at once.

The server writes the head of an answer and then its body. Each would be a system call and a packet
of its own, and wake the client twice.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

_MOST_HELD: Final = 65_536


class CorkedTransport:
    """A transport that writes when all that can run has run; the rest is the other's."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def write(self, text: bytes) -> None:
        """Write it in the next turn; a lot of it now, so that the other may say stop."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(text)
        self._size += len(text)
        if self._size > _MOST_HELD:
            self._flush()

    def close(self) -> None:
        """Write what is held, and close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Discard the buffered output, and close."""
        self._held.clear()
        self._transport.abort()

    def write_eof(self) -> None:
        """Write the buffered output, and close for writing."""
        self._flush()
        self._transport.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._held:
            held = b"".join(self._held)
            self._held.clear()
            self._size = 0
            if not self._transport.is_closing():
                self._transport.write(held)
