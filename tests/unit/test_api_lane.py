"""Plain reads past the framework while the threads for them are at slow work."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response

from api.asking import Asked
from api.gate import Receive, Scope, Send
from api.lane import Lane
from api.policy import BASE
from api.route import get


def serve(session: Asked) -> None:
    """Stands for what a route does."""


async def nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}


def asked() -> dict[str, Any]:
    state = SimpleNamespace(patience_seconds=60, config=None, engine=None)
    return {
        "type": "http",
        "method": "GET",
        "path": f"{BASE}/things",
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer x")],
        "app": SimpleNamespace(state=state),
        "state": {},
    }


def test_slow_reads_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.lane._SLOW_SECONDS", 0)
    begun, go_on = threading.Event(), threading.Event()
    passed: list[Scope] = []
    sent: list[Any] = []

    def handle(session: Any) -> Response:
        del session
        begun.set()
        go_on.wait()
        return Response(b"read")

    async def framework(scope: Scope, _receive: Receive, _send: Send) -> None:
        passed.append(scope)

    async def send(message: Any) -> None:
        sent.append(message.get("body"))

    async def scene() -> None:
        lane = Lane(framework, routes=[(get("/things", serve, None), handle)], threads=1)
        first = asyncio.ensure_future(lane(asked(), nothing, send))
        await asyncio.wait({first}, timeout=0)
        await asyncio.to_thread(begun.wait)
        second = asyncio.ensure_future(lane(asked(), nothing, send))
        await asyncio.wait({second}, timeout=0)
        await lane(asked(), nothing, send)
        assert (len(passed), sent) == (1, [])
        go_on.set()
        await asyncio.gather(first, second)
        await lane(asked(), nothing, send)
        assert (len(passed), sent.count(b"read")) == (1, 3)

    asyncio.run(scene())
