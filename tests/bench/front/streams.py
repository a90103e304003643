"""Readers of server-sent events: many streams on one thread, with the moment of each event."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

# An event is never cut by a chunk of the answer, which are told apart by lines between them.
_EVENT = re.compile(rb"event: (\w+)\n(?:id: \d+\n)?data: (.*)\n\n")
_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event at one of the streams; `at` is Unix time."""

    stream: int
    at: float
    kind: str
    document: Any


class Streams:
    """Open while its context is: a stream for each path, with its token."""

    def __init__(self, port: int, asked: Sequence[tuple[str, str]]) -> None:
        """`asked`: the paths, each with a token."""
        self._port = port
        self._asked = asked
        self._changed = threading.Condition()
        self._seen: list[Arrival] = []
        self._fault: str | None = None
        self._links: dict[int, tuple[int, socket.socket]] = {}
        self._ends, self._end = os.pipe()
        self._thread = threading.Thread(target=self._read, name="streams", daemon=True)

    def __enter__(self) -> Self:
        for number, (path, token) in enumerate(self._asked):
            link = socket.create_connection(("127.0.0.1", self._port))
            link.sendall(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
                f"Authorization: Bearer {token}\r\n\r\n".encode()
            )
            self._links[link.fileno()] = number, link
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.write(self._end, b".")
        self._thread.join()
        for _, link in self._links.values():
            link.close()
        os.close(self._ends)
        os.close(self._end)

    def until(self, enough: Callable[[Sequence[Arrival]], bool], *, within: float) -> list[Arrival]:
        """Wait until what has arrived is `enough`, and return it."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._fault is not None or enough(self._seen), timeout=within
            ):
                raise TimeoutError(f"{len(self._seen)} events in {within:g} s are not enough")
            if self._fault is not None:
                raise RuntimeError(self._fault)
            return list(self._seen)

    def _read(self) -> None:
        poll = select.epoll()
        poll.register(self._ends, select.EPOLLIN)
        rests = dict.fromkeys(self._links, b"")
        for descriptor in self._links:
            poll.register(descriptor, select.EPOLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._ends:
                    return
                number, link = self._links[descriptor]
                part = link.recv(_AT_ONCE)
                at = time.time()
                if not part:
                    poll.unregister(descriptor)
                text = rests[descriptor] + part
                found = list(_EVENT.finditer(text))
                rests[descriptor] = text[found[-1].end() :] if found else text
                arrived = [
                    Arrival(number, at, each[1].decode(), json.loads(each[2])) for each in found
                ]
                with self._changed:
                    self._seen += arrived
                    if b"HTTP/1.1 " in text and b"HTTP/1.1 200" not in text:
                        self._fault = f"stream {number} was refused: {text[:300]!r}"
                    self._changed.notify_all()


def snapshots(seen: Sequence[Arrival]) -> int:
    """Count the streams that have had one."""
    return len({each.stream for each in seen if each.kind == "snapshot"})
