"""Serves the health of a daemon over HTTP at its port: `/livez`, `/readyz` and `/metrics`.

A daemon may add routes of its own, whose answers may come later than the thread of their request.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from common.clock import SystemClock
from common.errors import ConfigurationError
from common.port_holders import holder
from common.runtime.metrics import REGISTRY

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_HTTP_POLL = timedelta(hours=1)
"""The time between looks whether the server is to stop, which wakes it besides."""
_HTTP_PATIENCE_SECONDS = 5
_MOST_CONNECTIONS = 128
_FULL = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_clock = SystemClock()


class Daemon(Protocol):
    """The part of a daemon that the health server asks."""

    def problems(self) -> list[Problem]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reason why the daemon is not ready."""

    part: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer of a route."""

    status: HTTPStatus
    headers: Mapping[str, str]
    body: bytes


class Later:
    """A connection whose answer comes later, from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, response: Response) -> None:
        """Send the answer and hang up; by a thread of its own, as the other side may be slow."""
        threading.Thread(target=self._send, args=(response,), name="later", daemon=True).start()

    def drop(self) -> None:
        """Hang up without an answer."""
        self._connection.close()

    def _send(self, response: Response) -> None:
        try:
            self._connection.settimeout(_HTTP_PATIENCE_SECONDS)
            self._connection.sendall(_raw(response))
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # Hung up.
        finally:
            self._connection.close()


class Asked(Protocol):
    """A request of a route."""

    @property
    def query(self) -> str: ...

    @property
    def authorization(self) -> str: ...

    def later(self) -> Later:
        """Take the connection over: the route returns None, and answers later."""
        ...


Route: TypeAlias = Callable[[Asked], Response | None]


class HealthServer:
    """Serves `/livez`, `/readyz` and `/metrics`; shows no names of users and no ids."""

    def __init__(
        self,
        service: Daemon,
        *,
        host: str,
        port: int,
        setting: str = "port",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Takes the port at once, which makes it the daemon's; 0 takes a free one."""
        self._service = service
        self._metrics = make_wsgi_app(registry=REGISTRY)
        try:
            self._server = make_server(
                host, port, self._answer, server_class=_Server, handler_class=_QuietRequestHandler
            )
        except OSError as error:
            raise ConfigurationError(
                f"can't listen on {host}:{port} ({error.strerror}){holder(port)}: end the program "
                f"that has the port, or choose another with --port or {setting}"
            ) from error
        self._server.routes, self._server.tls = {}, tls
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _HTTP_POLL.total_seconds()},
            name="health",
            daemon=True,
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def add(self, path: str, route: Route) -> None:
        """Serve GET requests of this path by a route."""
        self._server.routes[path] = route

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            # The wait for connections ends by this, and not at its next look.
            with contextlib.suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        if request["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _json_answer(respond, "405 Method Not Allowed", {"status": "only GET"})
        match request["PATH_INFO"]:
            case "/livez":
                return _json_answer(respond, "200 OK", {"status": "ok"})
            case "/readyz":
                problems = self._service.problems()
                if not problems:
                    return _json_answer(respond, "200 OK", {"status": "ok"})
                reasons = [{"part": problem.part, "why": problem.why} for problem in problems]
                document = {"status": "not ready", "problems": reasons}
                return _json_answer(respond, "503 Service Unavailable", document)
            case "/metrics":
                metrics: WSGIApplication = self._metrics
                return metrics(request, respond)
            case _:
                return _json_answer(respond, "404 Not Found", {"status": "not found"})


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False
    routes: dict[str, Route]
    tls: ssl.SSLContext | None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.taken_over: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, bool] = {}
        """The connections with a thread, the oldest first; True while the request is incomplete."""

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Accept a connection; a full server drops the oldest incomplete request or refuses."""
        del client_address
        with self._lock:
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest = next((each for each, reads in self._open.items() if reads), None)
                if oldest is None:
                    self._refuse(request)
                    return False
                del self._open[oldest]
                # Its thread then reads the end of the stream. The base class's method bypasses TLS.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._open[request] = True
        return True

    def begin_answer(self, request: socket.socket) -> None:
        """Mark the request as complete, so that its connection is not dropped before the answer."""
        with self._lock:
            if request in self._open:
                self._open[request] = False

    def _refuse(self, request: socket.socket) -> None:
        if self.tls is None:
            with contextlib.suppress(OSError):
                request.send(_FULL, socket.MSG_DONTWAIT)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; its thread shakes hands, so that nobody else waits for that."""
        connection, address = super().get_request()
        if self.tls is not None:
            connection = self.tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Hang up, unless the answer comes later."""
        with self._lock:
            self._open.pop(request, None)
        if request in self.taken_over:
            self.taken_over.discard(request)
        else:
            super().shutdown_request(request)

    def server_bind(self) -> None:
        # As the base classes do it, without asking the name service for our name, which may hang.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no event."""


class _Timed(io.RawIOBase):
    """The input of a connection, limited by the time for one request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = _clock.monotonic() + _HTTP_PATIENCE_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read available bytes; `TimeoutError` after the deadline."""
        left = self._until - _clock.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_HTTP_PATIENCE_SECONDS)


class _QuietRequestHandler(WSGIRequestHandler):
    timeout = _HTTP_PATIENCE_SECONDS

    def setup(self) -> None:
        """Limit the time of the whole request, or a slow client could hold a thread for long."""
        super().setup()
        self.rfile = io.BufferedReader(_Timed(self.connection))

    def handle(self) -> None:
        """Serve one request: by a route, or else as the base class does."""
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
        self.raw_requestline = self.rfile.readline(65_537)
        if len(self.raw_requestline) > 65_536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return
        if not self.parse_request():
            return
        server = self.server
        assert isinstance(server, _Server)
        server.begin_answer(self.connection)
        path, _, self.query = self.path.partition("?")
        route = server.routes.get(path) if self.command == "GET" else None
        if route is None:
            # As the base class does, which would read the request again.
            make: Any = ServerHandler
            handler = make(
                self.rfile, self.wfile, self.get_stderr(), self.get_environ(), multithread=True
            )
            handler.request_handler = self
            handler.run(server.get_app())
            return
        response = route(self)
        if response is not None:
            self.wfile.write(_raw(response))

    @property
    def authorization(self) -> str:
        """The header of that name; "" without one."""
        return self.headers.get("Authorization", "")

    def later(self) -> Later:
        """Take the connection over."""
        server = self.server
        assert isinstance(server, _Server)
        server.taken_over.add(self.connection)
        return Later(self.connection)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The base's name.
        """Being asked for one's health is no event."""


def _raw(response: Response) -> bytes:
    lines = [
        f"HTTP/1.0 {response.status.value} {response.status.phrase}",
        *(f"{name}: {value}" for name, value in response.headers.items()),
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + response.body


def _json_answer(respond: StartResponse, status: str, document: object) -> list[bytes]:
    body = json.dumps(document).encode() + b"\n"
    respond(
        status,
        [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ],
    )
    return [body]
