"""The answer that a stream is: sends what its mailbox has, and a ping while it has nothing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from fastapi import Response

from api.gate import Receive, Scope, Send
from api.live.streams import Stream, Streams
from api.live.texts import PING

log = logging.getLogger(__name__)

PING_SECONDS: Final = 15.0
SEND_PATIENCE_SECONDS: Final = 30.0


class EventStream(Response):
    """Server-sent events, until the reader leaves, does not read, or has nothing more to see."""

    media_type = "text/event-stream"

    def __init__(
        self,
        streams: Streams,
        stream: Stream,
        *,
        ping_seconds: float = PING_SECONDS,
        send_patience_seconds: float = SEND_PATIENCE_SECONDS,
    ) -> None:
        super().__init__()
        self._streams = streams
        self._stream = stream
        self._ping_seconds = ping_seconds
        self._send_patience_seconds = send_patience_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream to its end."""
        mailbox = self._stream.mailbox
        news = asyncio.Event()
        loop = asyncio.get_running_loop()

        def notify() -> None:
            with suppress(RuntimeError):  # The server's loop has ended meanwhile.
                loop.call_soon_threadsafe(news.set)

        mailbox.notify_by(notify)
        leaving = asyncio.create_task(await_leaving(receive))
        leaving.add_done_callback(lambda _: news.set())
        try:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not leaving.done():
                ended = mailbox.ended
                news.clear()
                body = mailbox.take()
                if mailbox.wants_snapshot:
                    self._streams.wake()
                if not body and not ended:
                    try:
                        await asyncio.wait_for(news.wait(), self._ping_seconds)
                        continue
                    except TimeoutError:
                        body = PING
                message = {"type": "http.response.body", "body": body, "more_body": not ended}
                try:
                    async with asyncio.timeout(self._send_patience_seconds):
                        await send(message)
                except TimeoutError:
                    # The server closes a connection whose answer has no end.
                    log.info("stream was not read", extra={"user": self._stream.principal.user_id})
                    return
                if ended:
                    return
        finally:
            leaving.cancel()
            self._streams.close(self._stream)


async def await_leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
