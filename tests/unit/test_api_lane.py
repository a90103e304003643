"""Plain reads past the framework while the greenlets for them are at slow work."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response
from greenlet import getcurrent

from api.asking import Asked
from api.gate import Receive, Scope, Send
from api.lane import Lane, greenlets_of
from api.policy import BASE
from api.route import get
from common.store.yielding import Readiness


def serve(session: Asked) -> None:
    """Stands for what a route does."""


async def nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}


def asked() -> dict[str, Any]:
    state = SimpleNamespace(patience_seconds=60, config=None, reading_engine=object())
    return {
        "type": "http",
        "method": "GET",
        "path": f"{BASE}/things",
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer x")],
        "app": SimpleNamespace(state=state),
        "state": {},
    }


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """The two ends of a pipe: reads wait until something is written."""
    monkeypatch.setattr("api.greenlets._SLOW_SECONDS", 0)
    ends = os.pipe()
    yield ends
    for each in ends:
        os.close(each)


def test_slow_reads_keep_no_other_waiting(database: tuple[int, int]) -> None:
    answers, writes = database
    passed: list[Scope] = []
    sent: list[Any] = []

    def handle(session: Any) -> Response:
        del session
        parent = getcurrent().parent
        assert parent is not None
        parent.switch(Readiness(answers, select.EPOLLIN))
        return Response(b"read")

    async def framework(scope: Scope, _receive: Receive, _send: Send) -> None:
        passed.append(scope)

    async def send(message: Any) -> None:
        sent.append(message.get("body"))

    async def scene() -> None:
        lane = Lane(framework, routes=[(get("/things", serve, None), handle)], greenlets=1)
        first = asyncio.ensure_future(lane(asked(), nothing, send))
        second = asyncio.ensure_future(lane(asked(), nothing, send))
        await asyncio.wait({first, second}, timeout=0)
        await lane(asked(), nothing, send)
        assert (len(passed), sent) == (1, [])
        os.write(writes, b"x")
        await asyncio.gather(first, second)
        await lane(asked(), nothing, send)
        assert (len(passed), sent.count(b"read")) == (1, 3)

    asyncio.run(scene())


def test_no_read_is_taken_before_there_are_connections_for_it() -> None:
    passed: list[Scope] = []

    async def framework(scope: Scope, _receive: Receive, _send: Send) -> None:
        passed.append(scope)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    lane = Lane(framework, routes=[(get("/things", serve, None), serve)], greenlets=1)
    request = asked()
    request["app"].state.reading_engine = None
    asyncio.run(lane(request, nothing, send))
    assert passed == [request]


def test_plain_reads_have_four_connections_or_half_of_them() -> None:
    assert [greenlets_of(each) for each in (1, 2, 7, 8, 10, 100)] == [0, 1, 3, 4, 4, 4]
