"""Answers for a handler that does not: a database that is frozen says nothing, and never will.

The statements of the server have time limits of their own, but those are the database's to keep. A
handler that was given up goes on in its thread, and what it says then is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fastapi import Request, Response

from api import waiting
from api.browsers import reads_page
from api.dolphinscheduler.serving import BASE as DOLPHINSCHEDULER
from api.gate import Application, Message, Receive, Scope, Send
from api.problems import unavailable

MORE_SECONDS: Final = 1.0
"""The time of a request besides its statement, so that a busy one can answer first."""
SILENT: Final = (
    "the server did not finish the request in time, and it may still be applied; check its result,"
    " or send it again with its Idempotency-Key"
)


class Patience:
    """Lets a request take its time, and no more; one that has begun to answer is left alone."""

    def __init__(
        self, app: Application, *, page_of: Callable[[Request, Response], Response]
    ) -> None:
        """`page_of` makes a page of a problem, for a browser."""
        self._app = app
        self._page_of = page_of
        self._given_up: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = is_given_up = False

        async def answer(message: Message) -> None:
            nonlocal has_begun
            if not is_given_up:
                has_begun = True
                await send(message)

        work = asyncio.ensure_future(self._app(scope, receive, answer))
        try:
            await asyncio.wait({work}, timeout=_seconds(scope))
            if not work.done() and (more := scope["state"].get("more_seconds")):
                await asyncio.wait({work}, timeout=more)
            if work.done() or has_begun:
                await work
                return
        except asyncio.CancelledError:
            work.cancel()
            raise
        is_given_up = scope["state"]["is_over"] = True
        self._given_up.add(work)
        work.add_done_callback(self._end)
        request = Request(scope)
        told: Response = unavailable(request, SILENT)
        if reads_page(request.url.path, request.headers):
            told = self._page_of(request, told)
        await told(scope, receive, send)

    def _end(self, work: asyncio.Task[None]) -> None:
        self._given_up.discard(work)
        if not work.cancelled():
            work.exception()  # Seen, and logged by whoever has answered.


def _seconds(scope: Scope) -> float:
    patience: float = scope["app"].state.patience_seconds
    if scope["path"].startswith(f"{DOLPHINSCHEDULER}/"):
        return patience + waiting.LONGEST_SECONDS  # Its clients can't say that they wait.
    preferred = dict(scope["headers"]).get(b"prefer", b"").decode("latin-1")
    return patience + waiting.seconds_of(preferred)
