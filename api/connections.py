"""Limits the time, size and number of connections before their users are authenticated.

A client has to send its request and read the answer at a minimum speed. At a limit of connections,
the server closes connections that wait for their clients: idle ones first, then incomplete heads,
incomplete bodies, and clients that do not read. It closes no request in progress for another
connection, so silent clients can't lock users out.

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
from api.peers import PEER, PeerAccount

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
    """The connections of one address, trusted proxies excluded; 0 means no limit."""
    exempts_loopback: bool = True
    """True to exclude loopback from `per_address`, since all tunnels share that address."""
    requests: int = 512
    """The number of requests in progress."""
    body_bytes: int = 100_000_000
    """The total size of the bodies of all requests in progress."""
    head: float = 10.0
    """The time from the start of a connection or of a request to the end of its head."""
    idle: float = 15.0
    """The time from the end of an answer to the next request."""
    body: float = 20.0
    """The time for a body, in addition to its time at `body_bytes_per_second`."""
    body_bytes_per_second: int = 50_000
    write: float = 30.0
    """The time for a client to read what the server has buffered for it."""
    discard: float = 2.0
    """The time from a refusal to the close of the connection; input is discarded meanwhile."""
    check: float = 1.0
    """The interval between two checks of the times."""


class Stage(IntEnum):
    """The state of a connection. At a limit, connections in lower stages are closed first."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    READER = 3
    WORK = 4
    """A request is in progress. Such a connection is not closed for another one."""


class Connections:
    """All connections of a server, with their limits."""

    def __init__(self, limits: Limits, *, is_exempt: Callable[[str], bool] = lambda _: False):
        """`is_exempt` returns True for an address that many clients share, such as a proxy."""
        self.limits = limits
        self._is_exempt = is_exempt
        self._open: dict[LimitedProtocol, str | None] = {}
        self._by_address: Counter[str] = Counter()
        self._body_bytes = 0
        self._has_held = False
        self._is_checked = False

    def add(self, protocol: LimitedProtocol) -> HTTPStatus | None:
        """Add a new connection. At a limit, close others for it.

        Returns the status of the refusal if none of them can be closed.
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
        """Remove a connection; a second call does nothing."""
        address = self._open.pop(protocol, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def is_busy(self, tasks: int) -> bool:
        """Return True at the limit of requests; `tasks` is a cheap upper bound of their number."""
        most = self.limits.requests
        return tasks >= most and sum(each.stage is Stage.WORK for each in self._open) >= most

    def hold_body(self, change: int) -> None:
        """Count bytes of bodies; above the limit, close the oldest incomplete requests."""
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
    """A connection within limits. The target of a request is a path of this server, or `*`."""

    all: ClassVar[Connections]
    """The registry of one server, which `limited_protocol` sets."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a new connection, or refuse it with an answer."""
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]
        if self.client is not None and self.server is not None:
            host, port = self.server
            self.app_state[PEER] = PeerAccount(self.client, (host, port or 0))
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
        """Remove the connection, and mark its request as disconnected."""
        self.all.remove(self)
        self._release_body()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.scope.setdefault("state", {})["is_over"] = True
        super().connection_lost(exc)

    @property
    def stage(self) -> Stage:
        """The current stage; a connection that is closing counts as idle."""
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
            # The transport closes after the client has read the buffered output.
            self._write_until = min(self._write_until, now + self.all.limits.write)
        elif now <= self._read_until:
            return
        elif self._is_refused:
            self._abort()
        elif self._reads is Stage.BODY and self.flow.read_paused:
            self._read_until = now + self.all.limits.body  # The server is slow, not the client.
        elif self._reads is None or (self._reads is Stage.BODY and self.cycle.response_complete):
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def close_for_another(self) -> None:
        """Reset the connection to make room for another one."""
        self.all.remove(self)
        self._abort()

    def data_received(self, data: bytes) -> None:
        """Parse the input as far as the limits allow."""
        if self._is_refused:
            self._discarded += len(data)
            if self._discarded > _LARGEST_DISCARDED:
                self._abort()
            return
        was_head = self._reads is Stage.HEAD
        super().data_received(data)
        if self._reads is Stage.HEAD and not self._is_refused:
            # The parser buffers an incomplete header and copies it for each further part.
            self._head_size += len(data) if was_head else 0
            if self._head_size > _LARGEST_HEAD:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Start the time limit of the head."""
        super().on_message_begin()
        self._reads = Stage.HEAD
        self._head_size = self._header_count = 0
        self.since = self.loop.time()
        self._read_until = self.since + self.all.limits.head

    def on_url(self, url: bytes) -> None:
        """Add a part of the target, and check its length."""
        super().on_url(url)
        if len(self.url) > _LARGEST_LINE:
            self._stop(HTTPStatus.REQUEST_URI_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers are counted and dropped: the request is already in progress."""
        self._header_count += 1
        self._head_size += len(name) + len(value)
        if self._header_count > _MOST_HEADERS or self._head_size > _LARGEST_HEAD:
            self._stop(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self._reads is Stage.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, or refuse it at the limit of requests."""
        if not self.url.startswith(b"/") and self.url != b"*":
            self._stop(HTTPStatus.BAD_REQUEST)
        now = self.loop.time()
        self._reads = Stage.BODY
        self._read_until = now + self.all.limits.body
        self.app = _busy if self.all.is_busy(len(self.tasks)) else self.config.loaded_app
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body, and extend the time limit in proportion to it."""
        self._read_until += len(body) / self.all.limits.body_bytes_per_second
        if not self.cycle.response_complete:
            self._body_size += len(body)
            self.all.hold_body(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the time limit of the body."""
        super().on_message_complete()
        self._reads = None
        self._read_until = math.inf
        if self.cycle.response_complete:
            self._rest()

    def on_response_complete(self) -> None:
        """Release the body, and start the idle time if the request has been read."""
        self._release_body()
        super().on_response_complete()
        if self._reads is None:
            self._rest()

    def pause_writing(self) -> None:
        """Start the time limit for the client to read."""
        super().pause_writing()
        self.since = self.loop.time()
        self._write_until = self.since + self.all.limits.write

    def resume_writing(self) -> None:
        """Stop the time limit for the client to read."""
        super().resume_writing()
        self._write_until = math.inf

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser or a limit has stopped."""
        del msg
        self._refuse(self._refusal or HTTPStatus.BAD_REQUEST)

    def _rest(self) -> None:
        self.since = self.loop.time()
        self._read_until = self.since + self.all.limits.idle

    def _release_body(self) -> None:
        self.all.hold_body(-self._body_size)
        self._body_size = 0

    def _abort(self) -> None:
        """Reset the connection, so the kernel buffers nothing for a client that does not read."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _stop(self, refusal: HTTPStatus) -> None:
        """Raise an error through the parser, which then calls `send_400_response`."""
        self._refusal = refusal
        raise ValueError(refusal)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer and close.

        Further input is discarded for a while: closing with unread input would reset the connection
        and lose the answer.
        """
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
    """Create the protocol class for the connections of one server."""
    return type("LimitedProtocol", (LimitedProtocol,), {"all": connections})


def _close_some(candidates: Collection[LimitedProtocol]) -> bool:
    """Close the connections that have waited longest in the lowest stages; False if none waits.

    One pass closes several, since a flood of connections would otherwise cost a pass for each.
    """
    waiting = [each for each in candidates if each.stage is not Stage.WORK]
    waiting.sort(key=lambda each: (each.stage, each.since))
    chosen = waiting[: 1 + len(candidates) // _PART]
    for each in chosen:
        each.close_for_another()
    return bool(chosen)


def _return_memory() -> None:
    """Return free memory to the operating system; the C library would keep it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # Only glibc has it.
    if trim is not None:
        trim(0)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def _busy(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a request at the limit of requests."""
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
