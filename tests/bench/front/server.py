"""An api-server beside the cluster of a stage, and somebody who asks it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from tests.bench import cluster
from tests.bench.stage import PATIENCE_SECONDS, Stage

_LOOK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Server:
    """A running api-server, and the token of somebody who may read and order everything."""

    process: subprocess.Popen[bytes]
    port: int
    token: str
    ready_seconds: float

    @contextmanager
    def asked(self, token: str | None = None) -> Iterator[Client]:
        """Open one connection for many requests, which the server closes while it rests."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)) as link:
            yield Client(link, token or self.token)


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody with a connection of their own."""

    _link: HTTPConnection
    _token: str

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Return the document of an answer, which must be a success."""
        return json.loads(self._answer(method, f"/api/v1{path}", body, headers).read())

    def fetch(self, path: str) -> bytes:
        """Return the bytes of an answer; `path` is the whole one."""
        return self._answer("GET", path, None, {"token": self._token}).read()

    def until(self, path: str, line: bytes) -> None:
        """Read an answer up to a line, and hang up."""
        answer = self._answer("GET", path, None, {})
        while answer.readline() != line:
            if answer.isclosed():
                raise RuntimeError(f"{path} ended without {line!r}")
        self._link.close()

    def _answer(
        self, method: str, path: str, body: object, headers: dict[str, str]
    ) -> HTTPResponse:
        sent = None if body is None else json.dumps(body)
        given = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._link.request(method, path, body=sent, headers=given | headers)
        answer = self._link.getresponse()
        if answer.status >= 300:
            raise RuntimeError(
                f"{method} {path} was answered with {answer.status}: {answer.read()!r}"
            )
        return answer


@contextmanager
def serving(stage: Stage) -> Iterator[Server]:
    """Start an api-server beside the cluster; end it on exit."""
    token = token_of(stage, "admin")
    port = _free_port()
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "api.server", "--port", str(port)],
        cwd=cluster.ROOT,
        env={**stage.cluster.environment, "ORCAFLOW_API__REQUESTS_PER_SECOND": "0"},
    )
    try:
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() - began > PATIENCE_SECONDS:
                raise RuntimeError("the api-server did not start")
            time.sleep(_LOOK_SECONDS)  # Between looks at another process.
        yield Server(process, port, token, time.monotonic() - began)
    finally:
        process.kill()
        process.wait()


def token_of(stage: Stage, user: str) -> str:
    """Make a token of a user, which is good for all that the user may do."""
    made = orcaflow(
        stage,
        *("token", "create", "--user", user),
        *("--name", f"bench-{time.monotonic_ns()}", "-o", "json"),
    )
    token: str = json.loads(made)["token"]
    return token


def tokens_of_people(stage: Stage, number: int) -> list[str]:
    """Make so many administrators, each with a token."""
    names = [f"reader-{time.monotonic_ns()}-{n}" for n in range(number)]
    for name in names:
        orcaflow(stage, "user", "create", name, "--admin")
    return [token_of(stage, name) for name in names]


def orcaflow(stage: Stage, *arguments: str) -> str:
    """Execute a command; return what it prints."""
    return stage.cluster.execute([str(cluster.ROOT / ".venv" / "bin" / "orcaflow"), *arguments])


def times_ms(client: Client, paths: Sequence[str]) -> list[float]:
    """Fetch each, one after the other."""
    taken = []
    for path in paths:
        began = time.monotonic()
        client.fetch(path)
        taken.append((time.monotonic() - began) * 1000)
    return taken


def _is_ready(port: int) -> bool:
    with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=5)) as link:
        link.request("GET", "/readyz")
        return link.getresponse().status == 200
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
