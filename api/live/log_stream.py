"""A log as server-sent events, and as a download: read piece by piece, however long it is.

Reading waits for a file or a worker, so it has threads of its own: workers that don't answer keep
nobody waiting but those who read their logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Response

from api.gate import Receive, Scope, Send
from api.live.log_texts import log_event, viewable
from api.live.stream import PING_SECONDS, SEND_PATIENCE_SECONDS, await_leaving
from api.live.streams import Streams
from api.live.texts import PING
from common.errors import NotFoundError, SchedulerError
from operations.attempt_logs import FollowedLog, LogPiece, SourceGoneError
from operations.errors import ForbiddenError
from operations.task_log import LogMissingError

log = logging.getLogger(__name__)

_PIECE_BYTES: Final = 65_536
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
_PAUSE_GROWTH: Final = 1.5
_MOST_THREADS: Final = 8


def threads() -> CapacityLimiter:
    """Return the limit of a server's threads that wait for logs."""
    return CapacityLimiter(_MOST_THREADS)


class LogStream(Response):
    """The text of a log from an offset on, until its task has ended."""

    media_type = "text/event-stream"

    def __init__(
        self,
        followed: FollowedLog,
        *,
        at: int,
        user_id: int,
        streams: Streams,
        limiter: CapacityLimiter,
    ) -> None:
        """The seat of the stream is taken already; it is left at the end."""
        super().__init__()
        self._followed = followed
        self._at = at
        self._user_id = user_id
        self._streams = streams
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream to its end."""
        leaving = asyncio.create_task(await_leaving(receive))
        try:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            quiet, pause, is_open = 0.0, _FIRST_PAUSE, True
            while is_open and not leaving.done():
                body, is_open = await run_sync(self._step, limiter=self._limiter)
                if not body and quiet >= PING_SECONDS:
                    body = PING
                if body:
                    quiet, pause = 0.0, _FIRST_PAUSE
                    message = {"type": "http.response.body", "body": body, "more_body": is_open}
                    async with asyncio.timeout(SEND_PATIENCE_SECONDS):
                        await send(message)
                else:
                    await asyncio.wait({leaving}, timeout=pause)
                    quiet += pause
                    pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
        except TimeoutError:
            # The server closes a connection whose answer has no end.
            log.info("stream was not read", extra={"user": self._user_id})
        finally:
            leaving.cancel()
            self._streams.seats.leave(self._user_id)
            self._followed.close()

    def _step(self) -> tuple[bytes, bool]:
        """Return the events that are due, and whether more may come."""
        if self._streams.last is not None:
            return self._streams.last, False
        try:
            found = self._followed.read(self._at, _PIECE_BYTES)
        except ForbiddenError:
            return self._end("unauthenticated"), False
        except LogMissingError as error:
            return self._end("no-log", str(error)), False
        except NotFoundError:
            return self._end("not-found"), False
        except SourceGoneError as error:
            return self._end("lost", str(error)), False
        except SchedulerError:
            return self._end("unavailable"), False
        return (b"", True) if found is None else self._shown(found)

    def _shown(self, found: LogPiece) -> tuple[bytes, bool]:
        told = b""
        if found.start != self._at:
            # Behind the offset: what is between is out of reach. Before it: the log was cut.
            told = log_event("gap", {"from": self._at, "to": found.start}, at=found.start)
            self._at = found.start
        text, taken = viewable(found.body, is_end=found.ended)
        self._at += taken
        if text:
            told += log_event("log", {"text": text}, at=self._at)
        if not found.ended:
            return told, True
        return told + self._end("ended", state=self._followed.state), False

    def _end(self, reason: str, detail: str | None = None, *, state: str | None = None) -> bytes:
        document = {"reason": reason, "detail": detail, "state": state}
        given = {key: each for key, each in document.items() if each is not None}
        return log_event("end", given, at=self._at)


class LogDownload(Response):
    """The bytes of a log from an offset up to another, as they are.

    Its length is not promised: a worker may lie about it, and a task may still write. A download
    that can't be finished breaks off without an end, which clients notice.
    """

    media_type = "application/octet-stream"

    def __init__(
        self,
        followed: FollowedLog,
        first: LogPiece,
        *,
        until: int,
        headers: dict[str, str],
        status: int,
        limiter: CapacityLimiter,
    ) -> None:
        super().__init__(status_code=status, headers=headers)
        del self.headers["content-length"]
        self._followed = followed
        self._first = first
        self._until = until
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the download to its end."""
        leaving = asyncio.create_task(await_leaving(receive))
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for body in self._pieces():
                if leaving.done():
                    return
                async with asyncio.timeout(SEND_PATIENCE_SECONDS):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (SchedulerError, TimeoutError) as error:
            # The server closes a connection whose answer has no end.
            log.info("download broke off", extra={"cause": str(error)})
        finally:
            leaving.cancel()
            self._followed.close()

    async def _pieces(self) -> AsyncIterator[bytes]:
        found: LogPiece | None = self._first
        while found is not None and found.body:
            yield found.body[: self._until - found.start]
            at = found.start + len(found.body)
            if at >= self._until:
                return
            most = min(_PIECE_BYTES, self._until - at)
            found = await run_sync(self._followed.read, at, most, limiter=self._limiter)
