"""A TCP proxy in front of PostgreSQL that counts what passes, by the server's own messages.

It reads the frames of the protocol and no driver, so a statement counts the same whoever sends it and
however. The clients must connect in the clear. Runs on a thread of its own; a message is counted
before it is passed on, so that who has an answer finds it counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.proxies import copy, end_together, running

_HEADER_BYTES = 5
_COMMAND_COMPLETE, _READY = b"C", b"Z"
_NO_STATEMENTS = (b"BEGIN", b"COMMIT", b"ROLLBACK", b"SET")
_IDLE = b"I"


@dataclass(slots=True)
class Passed:
    """The sums so far.

    `statements` are those that were carried out, without BEGIN, COMMIT, ROLLBACK and SET; `round_trips`
    the answers that a client waited for; `transactions` those after which none was open any more.
    `bytes_sent` and `bytes_received` are the client's.
    """

    statements: int = 0
    round_trips: int = 0
    transactions: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class PostgresWire:
    """The proxy; it listens on loopback at `port`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.port = 0
        self.passed = Passed()

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        replies, server = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.create_task(copy(client, server, self._sent)),
            asyncio.create_task(copy(replies, answers, _Answers(self.passed).read)),
        ]
        # The end of either is that of the connection, and so is that of the proxy.
        with suppress(asyncio.CancelledError):
            await end_together(ways, server, answers)

    def _sent(self, chunk: bytes) -> None:
        self.passed.bytes_sent += len(chunk)


class _Answers:
    """Counts the frames of one connection's answers, however they are cut into chunks."""

    def __init__(self, passed: Passed) -> None:
        self._passed = passed
        self._rest = b""

    def read(self, chunk: bytes) -> None:
        self._passed.bytes_received += len(chunk)
        left = self._rest + chunk
        while len(left) >= _HEADER_BYTES:
            end = 1 + int.from_bytes(left[1:_HEADER_BYTES], "big")
            if len(left) < end:
                break
            self._count(left[:1], left[_HEADER_BYTES:end])
            left = left[end:]
        self._rest = left

    def _count(self, kind: bytes, content: bytes) -> None:
        if kind == _READY:
            self._passed.round_trips += 1
            self._passed.transactions += content == _IDLE
        elif kind == _COMMAND_COMPLETE:
            self._passed.statements += not content.startswith(_NO_STATEMENTS)


@contextmanager
def postgres_wire(host: str, port: int) -> Iterator[PostgresWire]:
    """Run a proxy in front of this address."""
    wire = PostgresWire(host, port)
    with running(wire, name="postgres-wire"):
        yield wire
