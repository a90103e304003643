"""Reads the body of a request: a small one from any client, a large one after authentication."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

SMALL_BODY: Final = 16_384
"""The largest body, in bytes, that is read before authentication."""


async def body_of(request: Request, admit: Callable[[], object]) -> bytes:
    """Return the body. `admit` runs in a thread before a large body is read; it may raise."""
    if size_of(request) > SMALL_BODY:
        await run_in_threadpool(admit)
    return await request.body()


def size_of(request: Request) -> float:
    """Return the length of the body by its headers; infinite for a body in chunks."""
    length = request.headers.get("content-length", "0")
    is_chunked = "transfer-encoding" in request.headers
    return math.inf if is_chunked or not length.isdecimal() else int(length)
