"""A load of reads at a steady rate, from a process of its own: `python -m tests.bench.front.load`.

It reads a `Load` as JSON from standard input, and writes a `Seen` as JSON to standard output. A
request is due at its moment whether or not those before it are answered, and its time counts from
then on, so that a server that falls behind is not spared. One thread serves all connections.
"""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.bench import cluster

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_AT_ONCE = 65_536
_GIVE_UP_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests a second for so many seconds; the paths and the tokens take turns."""

    port: int
    tokens: Sequence[str]
    paths: Sequence[str]
    rate: int
    seconds: float
    connections: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The times of all requests in milliseconds, in the order of their ends."""

    times_ms: Sequence[float]
    errors: Sequence[str]
    """Answers that were no success, and requests that were never answered."""
    processor_seconds: float


def loaded(load: Load) -> Seen:
    """Put a load on a server."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=cluster.ROOT,
        check=True,
        input=json.dumps(asdict(load)),
        stdout=subprocess.PIPE,
        text=True,
    )
    return Seen(**json.loads(done.stdout))


class _Link:
    """A connection, with the request that it is about."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self.path = ""
        self._parts: list[bytes] = []
        self._missing = -1

    def send(self, request: bytes, path: str, due: float) -> None:
        self.due, self.path = due, path
        self._parts, self._missing = [], -1
        self.socket.sendall(request)

    def receive(self) -> bytes | None:
        """Take what has come; return the whole answer at its end."""
        part = self.socket.recv(_AT_ONCE)
        if not part:
            raise ConnectionError("the server has hung up")
        self._parts.append(part)
        if self._missing >= 0:
            self._missing -= len(part)
        else:
            text = b"".join(self._parts)
            end = text.find(b"\r\n\r\n")
            if end >= 0:
                length = _LENGTH.search(text, 0, end)
                self._missing = end + 4 + (int(length[1]) if length else 0) - len(text)
        return b"".join(self._parts) if self._missing == 0 else None


def put(load: Load) -> Seen:
    """Put the load from here."""
    links = {link.socket.fileno(): link for link in map(_Link, [load.port] * load.connections)}
    free = deque(links.values())
    poll = select.epoll()
    for number in links:
        poll.register(number, select.EPOLLIN)
    requests = [
        [
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{load.port}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
            for token in load.tokens
        ]
        for path in load.paths
    ]
    times: list[float] = []
    errors: list[str] = []
    number, total = 0, round(load.rate * load.seconds)
    began = time.monotonic()
    answered = began
    while len(times) + len(errors) < total:
        now = time.monotonic()
        while free and number < total and began + number / load.rate <= now:
            due = began + number / load.rate
            which = number % len(load.paths)
            token = (number // len(load.paths)) % len(load.tokens)
            free.popleft().send(requests[which][token], load.paths[which], due)
            number += 1
        wait = began + number / load.rate - now if free and number < total else 1.0
        for descriptor, _ in poll.poll(max(0.0, wait)):
            link = links[descriptor]
            answer = link.receive()
            answered = time.monotonic()
            if answer is None:
                continue
            if answer.startswith(b"HTTP/1.1 200 "):
                times.append((answered - link.due) * 1000)
            else:
                errors.append(f"{link.path}: {answer[:200]!r}")
            free.append(link)
        if time.monotonic() - answered > _GIVE_UP_SECONDS:
            errors += ["no answer"] * (total - len(times) - len(errors))
    return Seen(
        times_ms=times,
        errors=errors[:100],
        processor_seconds=time.process_time(),
    )


if __name__ == "__main__":
    json.dump(asdict(put(Load(**json.load(sys.stdin)))), sys.stdout)
