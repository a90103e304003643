"""Runs a TCP proxy of the tests on a thread of its own, and ends it with all of its connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from common.ports import LOOPBACK, free_port

AT_ONCE = 65_536
"""The most bytes that a proxy reads at a time."""


class Proxy(Protocol):
    """Something that listens on loopback once it is told to."""

    async def listen(self) -> asyncio.Server: ...


class Door:
    """A port of its own that leads to a server, but only while it runs: before, nobody listens."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.port = free_port()
        """The port, on loopback."""

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, LOOPBACK, self.port)

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        replies, server = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.create_task(copy(client, server)),
            asyncio.create_task(copy(replies, answers)),
        ]
        await end_together(ways, server, answers)


async def end_together(ways: Sequence[asyncio.Task[None]], *streams: asyncio.StreamWriter) -> None:
    """Wait for the first of the ways that ends: it ends the others, and the connection."""
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        for stream in streams:
            stream.close()


@contextmanager
def running(proxy: Proxy, *, name: str) -> Iterator[None]:
    """Have the proxy listen, and serve on a thread of this name."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(proxy.listen())
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def copy(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    count: Callable[[bytes], None] = lambda _: None,
) -> None:
    """Pass on what comes until either side ends; each chunk is counted before it goes on."""
    with suppress(ConnectionError):
        while chunk := await source.read(AT_ONCE):
            count(chunk)
            target.write(chunk)
            await target.drain()


async def _close(server: asyncio.Server) -> None:
    server.close()
    current = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not current]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
