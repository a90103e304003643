"""A TCP proxy that adds a time to each message of its clients: a server that is far away.

A message is passed on a while after it came, in order, so that statements that a client sends
together wait together. What the server answers is passed on at once. Runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.proxies import AT_ONCE, copy, end_together, running

_Message = tuple[float, bytes]


class SlowLink:
    """The proxy. `delay` is in seconds, and may be changed at any time."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.delay = 0.0
        self.port = 0
        """The port at which it listens, on loopback."""
        self.messages = 0
        """The messages of clients so far: about one a statement."""

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            replies, server = await asyncio.open_connection(*self._target)
        except OSError:
            answers.close()
            return
        waiting: asyncio.Queue[_Message] = asyncio.Queue()
        ways = [
            asyncio.create_task(self._take(client, waiting)),
            asyncio.create_task(_pass_on(waiting, server)),
            asyncio.create_task(copy(replies, answers)),
        ]
        await end_together(ways, server, answers)

    async def _take(self, client: asyncio.StreamReader, waiting: asyncio.Queue[_Message]) -> None:
        clock = asyncio.get_running_loop()
        while message := await client.read(AT_ONCE):
            self.messages += 1
            waiting.put_nowait((clock.time() + self.delay, message))
        await asyncio.sleep(self.delay)


@contextmanager
def slow_link(host: str, port: int) -> Iterator[SlowLink]:
    """Run a proxy in front of this address, without a delay at first."""
    link = SlowLink(host, port)
    with running(link, name="slow-link"):
        yield link


async def _pass_on(waiting: asyncio.Queue[_Message], server: asyncio.StreamWriter) -> None:
    clock = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while True:
            due, message = await waiting.get()
            await asyncio.sleep(due - clock.time())
            server.write(message)
            await server.drain()
