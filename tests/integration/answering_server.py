"""An HTTP server for tasks: it records their requests and gives answers of every kind."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """An HTTP server that records its requests, and notices when a waiting client goes away."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.gone = threading.Event()
        self.requests: list[Request] = []
        noted = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else b""
                noted.requests.append(
                    Request(self.command, self.path, dict(self.headers.items()), body)
                )
                path = self.path.partition("?")[0]
                if path == "/endless":
                    noted.asked.set()
                    # Ends when the client closes its side.
                    self.connection.recv(1)
                    noted.gone.set()
                    return
                status, headers, content = ANSWERS.get(path, (404, {}, b"nothing here"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value.format(port=noted.port))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                try:
                    self.wfile.write(content)
                except OSError:
                    return

            def log_request(self, code: object = "-", size: object = "-") -> None:
                return

        for method in ("GET", "POST", "PUT", "DELETE", "HEAD"):
            setattr(Answers, f"do_{method}", Answers.answer)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on; the client reports a failed handshake."""
        plain = self._server.socket
        self._server.socket = context.wrap_socket(plain, server_side=True)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(default=b"")


ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/hello": (200, {}, b"hello"),
    "/made": (201, {"Set-Cookie": "session=hunter2"}, b"made"),
    "/empty": (200, {}, b""),
    "/flood": (200, {}, b"0123456789" * 2_000_000),
    "/back": (302, {"Location": "http://127.0.0.1:{port}/hello"}, b""),
    "/away": (302, {"Location": "http://localhost:{port}/hello"}, b""),
    "/round": (302, {"Location": "/round"}, b""),
    "/file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/cloud": (302, {"Location": "http://169.254.169.254/keys"}, b""),
}
