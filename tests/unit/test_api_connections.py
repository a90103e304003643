"""Attacks on the HTTP server by clients that are not logged in, over real sockets."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.connections import Limits
from api.server import _HttpServer, limits_of
from common.config import ApiConfig
from common.ports import free_port

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HUGE = b"x" * 4_000_000
SHORT = Limits(head=0.2, idle=0.2, body=0.2, write=0.2, discard=0.2, check=0.05)


@dataclass
class App:
    """An application that reads the body, then waits for `may_answer` and answers."""

    answer: bytes = b"ok"
    may_answer: threading.Event = field(default_factory=threading.Event)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    headers: list[Any] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message["more_body"]
        self.headers = scope["headers"]
        self.begun.release()
        await asyncio.to_thread(self.may_answer.wait)
        head = [(b"content-length", b"%d" % len(self.answer))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": self.answer})


@contextmanager
def served(app: App, limits: Limits) -> Iterator[int]:
    """Serve an application; yield the port."""
    settings = ApiConfig(port=free_port())
    server = _HttpServer(app, settings, limits=limits)
    server.start()
    pause = threading.Event()
    while not server._server.started:
        assert server._thread.is_alive()
        pause.wait(0.01)
    try:
        yield settings.port
    finally:
        app.may_answer.set()
        server.stop()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def to_the_end(connection: socket.socket) -> bytes:
    """Read until the server closes or resets the connection."""
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionError:
        pass
    return found


def answer_of(port: int, request: bytes = REQUEST) -> bytes:
    """Send a request on a new connection; return the first line of the answer."""
    with connected(port) as connection:
        connection.sendall(request)
        return connection.recv(65_536).partition(b"\r\n")[0]


@pytest.fixture
def app() -> App:
    made = App()
    made.may_answer.set()
    return made


@pytest.fixture(scope="module")
def quick() -> Iterator[int]:
    """Yield the port of a server with short time limits."""
    made = App()
    made.may_answer.set()
    with served(made, SHORT) as port:
        yield port


@pytest.fixture(scope="module")
def usual() -> Iterator[int]:
    """Yield the port of a server with the default limits."""
    made = App()
    made.may_answer.set()
    with served(made, Limits()) as port:
        yield port


@pytest.mark.parametrize("sent", [b"", b"G", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n1"])
def test_x60_600_connections_that_wait_for_their_client_shut_nobody_out(
    app: App, sent: bytes
) -> None:
    with served(app, Limits(connections=100)) as port, ExitStack() as stack:
        for _ in range(600):
            stack.enter_context(connected(port)).sendall(sent)
        assert answer_of(port) == b"HTTP/1.1 200 OK"


def test_x60_an_idle_connection_is_closed_before_one_that_sends_its_request(app: App) -> None:
    with served(app, Limits(connections=2)) as port:
        sender, idle = connected(port), connected(port)
        sender.sendall(REQUEST[:-2])
        idle.sendall(REQUEST)
        assert idle.recv(1000).startswith(b"HTTP/1.1 200")
        assert answer_of(port) == b"HTTP/1.1 200 OK"
        assert to_the_end(idle) == b""
        sender.sendall(REQUEST[-2:])
        assert sender.recv(1000).startswith(b"HTTP/1.1 200")


def test_x60_a_request_in_progress_is_never_closed_and_the_next_is_told_when_to_retry() -> None:
    app = App()
    with served(app, Limits(connections=2)) as port:
        working = [connected(port) for _ in range(2)]
        for each in working:
            each.sendall(REQUEST)
            app.begun.acquire()
        with connected(port) as refused:
            answer = to_the_end(refused)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: " in answer
        app.may_answer.set()
        assert all(each.recv(1000).startswith(b"HTTP/1.1 200") for each in working)


def test_x60_more_requests_than_the_server_works_on_are_told_when_to_retry() -> None:
    app = App()
    with served(app, Limits(requests=1)) as port, connected(port) as first:
        first.sendall(REQUEST)
        app.begun.acquire()
        with connected(port) as refused:
            refused.sendall(REQUEST)
            answer = to_the_end(refused)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: " in answer


def test_x60_incomplete_bodies_take_no_place_of_a_request_and_bounded_memory(app: App) -> None:
    body = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 500_000
    limits = Limits(requests=2, body_bytes=2_000_000)
    with served(app, limits) as port, ExitStack() as stack:
        slow = [stack.enter_context(connected(port)) for _ in range(8)]
        for each in slow:
            each.sendall(body)
        assert to_the_end(slow[0]) == b""  # The oldest is closed to free memory.
        assert answer_of(port) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"\r\n" * 50, b""),
        (b"GET / HT", b"HTTP/1.1 408"),
        (b"GET / HTTP/1.1\r\nA: b\r\n", b"HTTP/1.1 408"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1", b"HTTP/1.1 408"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a", b"HTTP/1.1 408"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n", b"HTTP/1.1 408"),
    ],
)
def test_x61_a_request_that_never_ends_is_closed(quick: int, sent: bytes, status: bytes) -> None:
    with connected(quick) as connection:
        connection.sendall(sent)
        assert to_the_end(connection)[:12] == status


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nA: ", REQUEST.replace(b"GET", b"PUT")])
def test_x61_a_byte_at_a_time_does_not_keep_a_connection_open(quick: int, start: bytes) -> None:
    sent = start.replace(b"\r\n\r\n", b"\r\nContent-Length: 999999\r\n\r\n")
    with connected(quick) as connection:
        connection.sendall(sent)
        connection.settimeout(0.01)
        for _ in range(1000):  # The time limit allows about 20.
            try:
                connection.sendall(b"a")
                found = connection.recv(100)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            assert found[:12] in (b"HTTP/1.1 408", b"")
            break
        else:
            pytest.fail("the connection is still open")


def test_x61_a_client_that_does_not_read_is_closed_and_takes_no_place_of_a_request(
    app: App,
) -> None:
    app.answer = HUGE
    limits = Limits(requests=1, check=0.05, write=0.5)
    with served(app, limits) as port, connected(port) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(REQUEST)
        app.begun.acquire()
        assert answer_of(port) == b"HTTP/1.1 200 OK"
        poll = select.poll()
        poll.register(deaf, 0)  # Reports only a reset, without reading.
        assert poll.poll(10_000)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", b"HTTP/1.1 431"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 3_000_000, b"HTTP/1.1 431"),
        (b"GET / HTTP/1.1\r\n" + b"a" * 3_000_000, b"HTTP/1.1 431"),
        (b"GET /" + b"a" * 3_000_000, b"HTTP/1.1 414"),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.1 414"),
        (b"GET http://evil/ HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET evil/ HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 400"),
        (b"CONNECT evil:80 HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"HTTP/1.1 400"),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 400",
        ),
    ],
)
def test_x62_what_is_too_long_or_no_request_of_this_server_is_refused(
    usual: int, request_text: bytes, status: bytes
) -> None:
    with connected(usual) as connection:
        with suppress(ConnectionError):  # The server may already have closed.
            connection.sendall(request_text)
        assert to_the_end(connection)[:12] in (status, b"")
    assert answer_of(usual) == b"HTTP/1.1 200 OK"


def test_x62_trailers_of_a_body_are_no_headers_of_the_request(app: App) -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    with served(app, Limits()) as port:
        assert answer_of(port, chunked + b"Authorization: b\r\n\r\n") == b"HTTP/1.1 200 OK"
    assert [name for name, _ in app.headers] == [b"host", b"transfer-encoding"]


def test_x63_an_address_has_a_number_of_connections_and_its_own_idle_ones_are_closed_first() -> (
    None
):
    app = App()
    limits = Limits(per_address=2, exempts_loopback=False)
    with served(app, limits) as port, ExitStack() as stack:
        idle = stack.enter_context(connected(port))
        working = [stack.enter_context(connected(port)) for _ in range(2)]
        for each in working:
            each.sendall(REQUEST)
            app.begun.acquire()
        assert to_the_end(idle) == b""
        answer = to_the_end(stack.enter_context(connected(port)))
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"\r\nretry-after: " in answer
        app.may_answer.set()
        assert all(each.recv(1000).startswith(b"HTTP/1.1 200") for each in working)


def test_the_limit_of_connections_leaves_files_for_everything_else() -> None:
    limits = limits_of(ApiConfig(connections=10_000_000))
    assert limits.connections < 10_000_000
