"""The api-server: its start and its cost at rest, a run that is begun over HTTP, reads one by one and many.

Each run of the bench starts a server beside the cluster of the stage. The people who read take as
much of the processors as the server does, so the rate is that of both together.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from tests.bench import cluster, daemons, definitions
from tests.bench.figures import Figure, Target, percentile, rate
from tests.bench.stage import PATIENCE_SECONDS, Stage

_TARGETS = {
    "api.ready": Target(limit=2),
    "api.memory": Target(limit=110),
    "api.idle_cpu": Target(limit=0.5),
    "api.begun_p50": Target(limit=25),
    "api.list_p95": Target(limit=30),
    "api.read_rate": Target(limit=1000, at_least=True),
    "api.read_p99": Target(limit=100),
}
_UNITS = {
    "api.ready": "s",
    "api.memory": "MiB",
    "api.idle_cpu": "% of a core",
    "api.read_rate": "requests/s",
}
_SETTLE_SECONDS = 3.0
_WINDOW_SECONDS = 10.0
_RUNS_BEGUN = 30
_LISTS = 200
_READERS = 8


@dataclass(frozen=True, slots=True)
class Server:
    """A running api-server, and the token of somebody who may read and order everything."""

    process: subprocess.Popen[bytes]
    port: int
    token: str
    ready_seconds: float

    @contextmanager
    def asked(self) -> Iterator[Client]:
        """Open one connection for many requests."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)) as link:
            yield Client(link, self.token)


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody with a connection of their own."""

    _link: HTTPConnection
    _token: str

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Return the document of an answer, which must be a success."""
        sent = None if body is None else json.dumps(body)
        given = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._link.request(method, f"/api/v1{path}", body=sent, headers=given | headers)
        answer = self._link.getresponse()
        document = json.loads(answer.read())
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}: {document}")
        return document


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = stage.database.define("asked-for", definitions.chain(1, "true"))
    samples: dict[str, list[float]] = {name: [] for name in _TARGETS}
    for _ in range(runs):
        with serving(stage) as server:
            # Each with connections of its own: the server closes those that rest.
            with server.asked() as client:
                begun = [_begin_ms(client, definition) for _ in range(_RUNS_BEGUN)]
                stage.database.await_ends(_RUNS_BEGUN, within=PATIENCE_SECONDS)
                lists = list_times_ms(client)
            rest = _at_rest(server.process.pid)
            reads, seconds = _many_reads(server)
            for name, value in {
                "api.ready": server.ready_seconds,
                "api.memory": daemons.shared_mb(server.process.pid),
                "api.idle_cpu": rest,
                "api.begun_p50": percentile(begun, 50),
                "api.list_p95": percentile(lists, 95),
                "api.read_rate": rate(len(reads), seconds),
                "api.read_p99": percentile(reads, 99),
            }.items():
                samples[name].append(value)
    return [
        Figure(name=name, unit=_UNITS.get(name, "ms"), values=tuple(values), target=_TARGETS[name])
        for name, values in samples.items()
    ]


@contextmanager
def serving(stage: Stage) -> Iterator[Server]:
    """Start an api-server beside the cluster; end it on exit."""
    token = json.loads(
        stage.cluster.execute(
            [
                str(cluster.ROOT / ".venv" / "bin" / "orcaflow"),
                *("token", "create", "--user", "admin"),
                *("--name", f"bench-{time.monotonic_ns()}", "-o", "json"),
            ]
        )
    )["token"]
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
            time.sleep(0.005)  # Between looks at another process.
        yield Server(process, port, token, time.monotonic() - began)
    finally:
        process.kill()
        process.wait()


def list_times_ms(client: Client) -> list[float]:
    """Ask for the newest fifty runs, one request after the other."""
    return [_timed_ms(client, "/instances?limit=50") for _ in range(_LISTS)]


def _begin_ms(client: Client, definition: int) -> float:
    began = time.monotonic()
    order = {"definition_id": definition}
    if client.ask("POST", "/instances", order, Prefer="wait=5")["instance"] is None:
        raise RuntimeError("no run was begun within five seconds")
    return (time.monotonic() - began) * 1000


def _at_rest(pid: int) -> float:
    """Measure the processor time of a server that nobody asks, in per cent."""
    time.sleep(_SETTLE_SECONDS)  # The measurement is an idle wait.
    used, began = daemons.cpu_seconds(pid), time.monotonic()
    time.sleep(_WINDOW_SECONDS)  # The window over which processor time is counted.
    return 100 * (daemons.cpu_seconds(pid) - used) / (time.monotonic() - began)


def _many_reads(server: Server) -> tuple[list[float], float]:
    """Have several people read as fast as they can; the milliseconds of each, and the whole time."""
    began = time.monotonic()
    end = began + _WINDOW_SECONDS
    with ThreadPoolExecutor(_READERS) as people:
        read = [
            each
            for mine in people.map(lambda _: _read(server, end), range(_READERS))
            for each in mine
        ]
    return read, time.monotonic() - began


def _read(server: Server, end: float) -> list[float]:
    taken: list[float] = []
    with server.asked() as client:
        newest = client.ask("GET", "/instances?limit=1")["items"][0]["id"]
        paths = (
            f"/instances/{newest}",
            f"/instances/{newest}/tasks",
            "/instances?limit=20",
            "/definitions?limit=20",
        )
        while time.monotonic() < end:
            taken += [_timed_ms(client, path) for path in paths]
    return taken


def _timed_ms(client: Client, path: str) -> float:
    began = time.monotonic()
    client.ask("GET", path)
    return (time.monotonic() - began) * 1000


def _is_ready(port: int) -> bool:
    with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=5)) as link:
        link.request("GET", "/readyz")
        return link.getresponse().status == 200
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
