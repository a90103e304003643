"""An HTTP server for a fake manager: it answers as its subclass does, or with its trouble."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

TROUBLES = ("401", "500", "hang", "half", "garbage", "drip")
MORE_TROUBLES = ("hints", "slow head", "slow chunk", "zipped", "bomb")
"""Troubles that only the reader of responses can tell apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One response."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(document: object, status: int = 200) -> Said:
    return Said(status=status, body=json.dumps(document).encode())


class FakeServer:
    """Serves until it is closed. `trouble` may be set at any time; a hanging request notices."""

    def __init__(self) -> None:
        self.trouble = ""
        self.asked: list[Asked] = []
        self.lock = threading.RLock()
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.05), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def answer(self, asked: Asked) -> Said:
        """Respond as a healthy server does."""
        raise NotImplementedError

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

            def _handle(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                asked = Asked(
                    method=self.command,
                    path=parts.path,
                    query=dict(parse_qsl(parts.query)),
                    body=self.rfile.read(length),
                    headers=dict(self.headers),
                )
                with fake.lock:
                    fake.asked.append(asked)
                # A test's own requests succeed in spite of any trouble.
                trouble = "" if asked.path.startswith("/fake/") else fake.trouble
                match trouble:
                    case "hang":
                        while fake.trouble == "hang" and not fake._closed.wait(0.02):
                            pass
                        self.close_connection = True
                    case "drip":
                        self.send_response(200)
                        self.send_header("Content-Length", "100000")
                        self.end_headers()
                        self._repeat(b" ")
                    case "hints":
                        self._repeat(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
                    case "slow head":
                        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                        self._repeat(b"x")
                    case "slow chunk":
                        self.send_response(200)
                        self.send_header("Transfer-Encoding", "chunked")
                        self.end_headers()
                        self.wfile.write(b"5;x=")
                        self._repeat(b"x")
                    case "zipped" | "bomb":
                        whole = b" " * 50_000_000 if fake.trouble == "bomb" else b"{}"
                        zipped = {"Content-Encoding": "gzip"}
                        self._send(Said(body=gzip.compress(whole, 1), headers=zipped))
                    case "half":
                        said = fake.answer(asked)
                        self._send(said, cut=True)
                    case "garbage":
                        self._send(Said(body=b"<html>It works!</html>", kind="text/html"))
                    case "401" | "500":
                        self._send(Said(status=int(trouble), body=b"no", kind="text/plain"))
                    case _:
                        self._send(fake.answer(asked))

            def _send(self, said: Said, *, cut: bool = False) -> None:
                self.send_response(said.status)
                self.send_header("Content-Type", said.kind)
                self.send_header("Content-Length", str(len(said.body)))
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said.body[: len(said.body) // 2] if cut else said.body)
                self.close_connection = cut

            def _repeat(self, part: bytes) -> None:
                trouble = fake.trouble
                while fake.trouble == trouble and not fake._closed.wait(0.1):
                    try:
                        self.wfile.write(part)
                    except OSError:
                        break
                self.close_connection = True

            do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815  # The library's names.

        return Handler
