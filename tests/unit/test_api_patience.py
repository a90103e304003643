"""A request that is not answered in time, on an application that answers when it is told to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request, Response

from api.gate import Receive, Scope, Send
from api.patience import Patience

BEGIN = {"type": "http.response.start", "status": 200, "headers": []}
END = {"type": "http.response.body", "body": b"", "more_body": False}


class Slow:
    """An application that begins and ends its answer when it is told to."""

    def __init__(self) -> None:
        self.begin = asyncio.Event()
        self.end = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin.wait()
        await send(BEGIN)
        await self.end.wait()
        await send(END)
        self.has_ended.set()


def page_of(request: Request, told: Response) -> Response:
    return Response(f"<p>{told.status_code}", status_code=503, media_type="text/html")


async def nothing() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


def asked(
    seconds: float, path: str = "/api/v1/me", prefer: bytes = b"", accept: bytes = b"*/*"
) -> dict[str, Any]:
    app = SimpleNamespace(state=SimpleNamespace(patience_seconds=seconds))
    headers = [(b"prefer", prefer), (b"accept", accept)]
    return {"type": "http", "app": app, "path": path, "headers": headers, "state": {}}


async def given_up(path: str = "/api/v1/me", accept: bytes = b"*/*") -> list[Any]:
    slow, sent = Slow(), list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    await Patience(slow, page_of=page_of)(asked(0.0, path, accept=accept), nothing, send)
    slow.begin.set()
    slow.end.set()
    await slow.has_ended.wait()
    return sent


def test_what_is_said_after_it_was_given_up_is_dropped() -> None:
    sent = asyncio.run(given_up())
    assert [each["type"] for each in sent] == [BEGIN["type"], END["type"]]
    assert (sent[0]["status"], b"unavailable" in sent[1]["body"]) == (503, True)


def test_a_browser_is_given_a_page() -> None:
    begin, end = asyncio.run(given_up("/runs", accept=b"text/html,*/*;q=0.8"))
    assert (begin["status"], end["body"]) == (503, b"<p>503")


def test_a_path_for_programs_answers_a_browser_with_json() -> None:
    begin, end = asyncio.run(given_up(accept=b"text/html"))
    assert (begin["status"], b"unavailable" in end["body"]) == (503, True)


async def begun(scope: dict[str, Any], *, late: bool = False) -> list[Any]:
    slow, sent = Slow(), list[Any]()
    if not late:
        slow.begin.set()

    async def send(message: Any) -> None:
        sent.append(message)

    request = asyncio.ensure_future(Patience(slow, page_of=page_of)(scope, nothing, send))
    done, _ = await asyncio.wait({request}, timeout=0.1)
    assert not done
    slow.begin.set()
    slow.end.set()
    await request
    return sent


def test_an_answer_that_has_begun_may_take_as_long_as_it_takes() -> None:
    assert asyncio.run(begun(asked(0.01))) == [BEGIN, END]


@pytest.mark.parametrize(
    "scope",
    [asked(0.01, prefer=b"wait=10"), asked(0.01, path="/dolphinscheduler/projects/1/executors")],
    ids=["who says so", "a script of DolphinScheduler's"],
)
def test_who_waits_for_a_run_is_given_the_time_for_it(scope: dict[str, Any]) -> None:
    assert asyncio.run(begun(scope, late=True)) == [BEGIN, END]


def test_long_work_has_more_time_and_learns_that_its_client_was_answered_x66() -> None:
    async def served(more: float) -> tuple[dict[str, Any], list[Any]]:
        slow, sent = Slow(), list[Any]()
        scope = asked(0.0)

        async def send(message: Any) -> None:
            sent.append(message)

        async def long_work(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"]["more_seconds"] = more
            await slow(scope, receive, send)

        if more > 1:
            asyncio.get_running_loop().call_later(0.01, slow.begin.set)
            slow.end.set()
        scope["state"]["more_seconds"] = more
        await Patience(long_work, page_of=page_of)(scope, nothing, send)
        slow.begin.set()
        slow.end.set()
        return scope["state"], sent

    state, sent = asyncio.run(served(60.0))
    assert sent == [BEGIN, END]
    assert "is_over" not in state
    state, sent = asyncio.run(served(0.01))
    assert sent[0]["status"] == 503
    assert state["is_over"]
