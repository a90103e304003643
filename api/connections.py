"""Limits of time, size and number for connections, before it is known who uses them.

A client has to send its request and read the answer at a minimum speed. When there are too many
connections, the server closes a connection that waits for its client. The order is: without a
request, with an incomplete head, with an incomplete body, with a client that does not read. A
request in progress is never interrupted, so silent clients can't lock users out.

`Connections` knows all connections of a server and `LimitedProtocol` is one of them; both belong to
the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
import logging
import math
import socket
import struct
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from api.corked import CorkedTransport

# uvicorn warns of each broken request: a flood of them would fill the log.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

_LARGEST_LINE: Final = 16_384
_LARGEST_HEAD: Final = 65_536
_MOST_HEADERS: Final = 100
_LARGEST_DISCARDED: Final = 1_000_000
_RETRY_SECONDS: Final = 2
_PART: Final = 50
_MUCH_MEMORY: Final = 20_000_000
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a server; the times are in seconds."""

    connections: int = 1000
    per_address: int = 256
    """Connections of one address other than a trusted proxy's; 0 is any number."""
    exempts_loopback: bool = True
    """True if `per_address` leaves out loopback, which is the address of all tunnels."""
    requests: int = 512
    """Requests that the server works on."""
    body_bytes: int = 100_000_000
    """Bodies of all requests together."""
    head: float = 10.0
    """From the start of a connection or of a request to the end of its head."""
    idle: float = 15.0
    """From the end of an answer to the next request."""
    body: float = 20.0
    """For a body, in addition to the time at `body_bytes_per_second`."""
    body_bytes_per_second: int = 50_000
    write: float = 30.0
    """For a client to read what the kernel and the server hold for it."""
    discard: float = 2.0
    """From an answer that ends a connection to its close, while input is discarded."""
    check: float = 1.0
    """Between two checks of the times."""


class Stage(IntEnum):
    """The state of a connection, in the order in which connections are closed for others."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    READER = 3
    WORK = 4
    """The server works on a request; such a connection is not closed for others."""


class Connections:
    """All connections of a server, with their limits."""

    def __init__(self, limits: Limits, *, is_exempt: Callable[[str], bool] = lambda _: False):
        """`is_exempt` is True for addresses that stand for many clients, for example proxies."""
        self.limits = limits
        self._is_exempt = is_exempt
        self._open: dict[LimitedProtocol, str | None] = {}
        self._by_address: Counter[str] = Counter()
        self._body_bytes = 0
        self._has_held = False
        self._is_checked = False

    def add(self, protocol: LimitedProtocol) -> HTTPStatus | None:
        """Add a new connection, in the place of another if necessary.

        Returns the status of the refusal if all places are taken.
        """
        address = self._counted_address(protocol)
        refusal = None
        if address is not None and 0 < self.limits.per_address <= self._by_address[address]:
            own = [each for each, place in self._open.items() if place == address]
            if not _close_some(own):
                refusal = HTTPStatus.TOO_MANY_REQUESTS
        elif len(self._open) >= self.limits.connections and not _close_some(self._open):
            refusal = HTTPStatus.SERVICE_UNAVAILABLE
        self._open[protocol] = address
        if address is not None:
            self._by_address[address] += 1
        if not self._is_checked:
            self._is_checked = True
            protocol.loop.call_later(self.limits.check, self._check, protocol.loop)
        return refusal

    def remove(self, protocol: LimitedProtocol) -> None:
        """Forget a connection; a second call does nothing."""
        address = self._open.pop(protocol, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def is_busy(self, tasks: int) -> bool:
        """Return True if no further request is taken; `tasks` is a cheap upper bound of them."""
        most = self.limits.requests
        return tasks >= most and sum(each.stage is Stage.WORK for each in self._open) >= most

    def hold_body(self, change: int) -> None:
        """Count bytes of bodies; when there are too many, close the oldest incomplete request."""
        self._body_bytes += change
        self._has_held |= self._body_bytes > _MUCH_MEMORY
        if change > 0 and self._body_bytes > self.limits.body_bytes:
            _close_some([each for each in self._open if each.stage is Stage.BODY])

    def _counted_address(self, protocol: LimitedProtocol) -> str | None:
        address = None if protocol.client is None else protocol.client[0]
        if address is None or self._is_exempt(address):
            return None
        return None if self.limits.exempts_loopback and _is_loopback(address) else address

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for each in list(self._open):
            each.check(now)
        if self._has_held and self._body_bytes < _MUCH_MEMORY:
            self._has_held = False
            _return_memory()
        if self._open or self._has_held:
            loop.call_later(self.limits.check, self._check, loop)
        else:
            self._is_checked = False


class LimitedProtocol(HttpToolsProtocol):
    """A connection within limits. Requests name a path of this server, and no other server."""

    all: ClassVar[Connections]
    """Set by the subclass of a server (`limited_protocol`)."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection, or refuse it with an answer."""
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]
        self.since = self.loop.time()
        self._reads: Stage | None = None
        self._head_size = self._header_count = self._body_size = self._discarded = 0
        self._refusal: HTTPStatus | None = None
        self._is_refused = False
        self._read_until = self.since + self.all.limits.head
        self._write_until = math.inf
        self.limit_concurrency = None
        refusal = self.all.add(self)
        if refusal is not None:
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and mark its request as disconnected."""
        self.all.remove(self)
        self._release_body()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.scope.setdefault("state", {})["is_over"] = True
        super().connection_lost(exc)

    @property
    def stage(self) -> Stage:
        """The party that the connection waits for."""
        if self._is_refused or self.transport.is_closing():
            return Stage.IDLE
        if self._reads is not None:
            return self._reads
        if self.cycle is None or (self.cycle.response_complete and not self.pipeline):
            return Stage.IDLE
        return Stage.READER if self.flow.write_paused else Stage.WORK

    def check(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        if now > self._write_until:
            self._abort()
        elif self.transport.is_closing():
            # The transport waits for the client to read what it holds.
            self._write_until = min(self._write_until, now + self.all.limits.write)
        elif now <= self._read_until:
            return
        elif self._is_refused:
            self._abort()
        elif self._reads is Stage.BODY and self.flow.read_paused:
            self._read_until = now + self.all.limits.body  # The server itself is slow.
        elif self._reads is None or (self._reads is Stage.BODY and self.cycle.response_complete):
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def close_for_another(self) -> None:
        """Close immediately, in favour of another connection."""
        self.all.remove(self)
        self._abort()

    def data_received(self, data: bytes) -> None:
        """Parse what has come, as far as the limits allow."""
        if self._is_refused:
            self._discarded += len(data)
            if self._discarded > _LARGEST_DISCARDED:
                self._abort()
            return
        was_head = self._reads is Stage.HEAD
        super().data_received(data)
        if self._reads is Stage.HEAD and not self._is_refused:
            # The parser keeps what has come of a header, and copies it with each further part.
            self._head_size += len(data) if was_head else 0
            if self._head_size > _LARGEST_HEAD:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Start the time of the head."""
        super().on_message_begin()
        self._reads = Stage.HEAD
        self._head_size = self._header_count = 0
        self.since = self.loop.time()
        self._read_until = self.since + self.all.limits.head

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        super().on_url(url)
        if len(self.url) > _LARGEST_LINE:
            self._stop(HTTPStatus.REQUEST_URI_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers behind a body are dropped, since the request is being served."""
        self._header_count += 1
        self._head_size += len(name) + len(value)
        if self._header_count > _MOST_HEADERS or self._head_size > _LARGEST_HEAD:
            self._stop(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self._reads is Stage.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Serve the request, or say that there are too many."""
        if not self.url.startswith(b"/") and self.url != b"*":
            self._stop(HTTPStatus.BAD_REQUEST)
        now = self.loop.time()
        self._reads = Stage.BODY
        self._read_until = now + self.all.limits.body
        self.app = _busy if self.all.is_busy(len(self.tasks)) else self.config.loaded_app
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, which buys time for the rest."""
        self._read_until += len(body) / self.all.limits.body_bytes_per_second
        if not self.cycle.response_complete:
            self._body_size += len(body)
            self.all.hold_body(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the time of the body."""
        super().on_message_complete()
        self._reads = None
        self._read_until = math.inf
        if self.cycle.response_complete:
            self._rest()

    def on_response_complete(self) -> None:
        """Start the time until the next request."""
        self._release_body()
        super().on_response_complete()
        if self._reads is None:
            self._rest()

    def pause_writing(self) -> None:
        """Start the time for the client to read."""
        super().pause_writing()
        self.since = self.loop.time()
        self._write_until = self.since + self.all.limits.write

    def resume_writing(self) -> None:
        """Stop the time for the client to read."""
        super().resume_writing()
        self._write_until = math.inf

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser or a limit has stopped."""
        del msg
        self._refuse(self._refusal or HTTPStatus.BAD_REQUEST)

    def _rest(self) -> None:
        self.since = self.loop.time()
        self._read_until = self.since + self.all.limits.idle

    def _release_body(self) -> None:
        self.all.hold_body(-self._body_size)
        self._body_size = 0

    def _abort(self) -> None:
        """Close with a reset, so that the kernel keeps nothing for a client that does not read."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _stop(self, refusal: HTTPStatus) -> None:
        """Leave the parser, which then calls `send_400_response`."""
        self._refusal = refusal
        raise ValueError(refusal)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer and close; the client may send a little more, or a reset would cost the answer."""
        if self._is_refused:
            return
        self._is_refused = True
        cycle = self.cycle
        is_answering = cycle is not None and not cycle.response_complete and cycle.response_started
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if is_answering or self.transport.is_closing():
            self._abort()
            return
        text = _TEXTS[status].encode()
        retry = b"" if status not in _LATER else b"retry-after: %d\r\n" % _RETRY_SECONDS
        self.transport.write(
            b"".join(
                (
                    STATUS_LINE[status],
                    b"content-type: text/plain; charset=utf-8\r\n",
                    b"content-length: %d\r\n" % len(text),
                    b"cache-control: no-store\r\nconnection: close\r\n",
                    retry,
                    b"\r\n",
                    text,
                )
            )
        )
        self._reads = None
        self._read_until = self.loop.time() + self.all.limits.discard
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()


def limited_protocol(connections: Connections) -> type[LimitedProtocol]:
    """Return the class of the connections of one server."""
    return type("LimitedProtocol", (LimitedProtocol,), {"all": connections})


def _close_some(candidates: Collection[LimitedProtocol]) -> bool:
    """Close connections that have waited longest in the first stages; False if all work.

    Several in one pass: a flood of connections would otherwise cost a pass each.
    """
    waiting = [each for each in candidates if each.stage is not Stage.WORK]
    waiting.sort(key=lambda each: (each.stage, each.since))
    chosen = waiting[: 1 + len(candidates) // _PART]
    for each in chosen:
        each.close_for_another()
    return bool(chosen)


def _return_memory() -> None:
    """Return free memory to the system; the C library keeps it otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # Of glibc.
    if trim is not None:
        trim(0)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def _busy(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request that comes while there are too many."""
    del scope, receive
    text = _TEXTS[HTTPStatus.SERVICE_UNAVAILABLE].encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(text)),
        (b"retry-after", b"%d" % _RETRY_SECONDS),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": text})


_LATER: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_TEXTS: Final = {
    HTTPStatus.BAD_REQUEST: "The request is not valid HTTP, or its target is not a path.\n",
    HTTPStatus.REQUEST_TIMEOUT: "The request was not sent in time.\n",
    HTTPStatus.REQUEST_URI_TOO_LONG: "The path and query are too long.\n",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The headers are too many or too long.\n",
    HTTPStatus.TOO_MANY_REQUESTS: "Your address has too many open connections.\n",
    HTTPStatus.SERVICE_UNAVAILABLE: "The server has too many requests. Try again later.\n",
}
