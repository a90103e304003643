"""Serves the health of a daemon over HTTP at its port: `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from common.errors import ConfigurationError
from common.runtime.metrics import REGISTRY

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_HTTP_POLL = timedelta(milliseconds=200)
_HTTP_PATIENCE_SECONDS = 5


class Daemon(Protocol):
    """The part of a daemon that the health server asks."""

    def problems(self) -> list[Problem]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reason why the daemon is not ready."""

    part: str
    why: str


class HealthServer:
    """Serves `/livez`, `/readyz` and `/metrics`; shows no names of users and no ids."""

    def __init__(self, service: Daemon, *, host: str, port: int, setting: str = "port") -> None:
        """Takes the port at once, which makes it the daemon's; 0 takes a free one."""
        self._service = service
        self._metrics = make_wsgi_app(registry=REGISTRY)
        try:
            self._server = make_server(
                host, port, self._answer, server_class=_Server, handler_class=_QuietRequestHandler
            )
        except OSError as error:
            raise ConfigurationError(
                f"can't listen on {host}:{port} ({error.strerror}): end the program that has the "
                f"port, or choose another with --port or {setting}"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _HTTP_POLL.total_seconds()},
            name="health",
            daemon=True,
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
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
    block_on_close = False

    def server_bind(self) -> None:
        # As the base classes do it, without asking the name service for our name, which may hang.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no event."""


class _QuietRequestHandler(WSGIRequestHandler):
    timeout = _HTTP_PATIENCE_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The base's name.
        """Being asked for one's health is no event."""


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
