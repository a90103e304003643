"""Carries a request out in one thread: who asks, the pace, the work, and the text of the answer.

The framework would take a thread for each of them, and every hand-over costs as much as a short
statement. Mistakes in parameters are found before that thread; whoever has no right to ask is told
so all the same, and nothing of the mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from api.answers import writer
from api.asking import AskedSession, session_of
from api.bodies import SMALL_BODY, size_of
from api.policy import Policy, Who
from api.route import Route
from api.turns import in_turns
from common.strict_json import strict_json
from operations.errors import UsageError

_JSON: Final = "application/json"


def handler(route: Route, policy: Policy) -> Callable[..., Any]:
    """Return what serves the route, to be called in a thread, with the parameters of the route."""
    write = None if route.answer is None else writer(route.answer)

    @wraps(route.serve)
    def handle(**given: Any) -> Response:
        turn: AbstractContextManager[None] = nullcontext()
        place: AbstractContextManager[None] = nullcontext()
        if policy.takes is not Who.ANYONE:
            asked = _asked(given)
            asked.tell()
            turn = asked.turn()
            if route.is_heavy:
                place = asked.heavy_place()
        with turn, place:
            found = route.serve(**given)
            if write is None or isinstance(found, Response):
                made: Response = found
                return made
            return _written(write(found), route.status, given)

    return handle


class HandledRoute(APIRoute):
    """A route that says who may not ask before it says what was asked wrongly.

    It takes no path that another route, of whatever method, has word by word: `/schedules/release`
    is no schedule, and PATCH is a wrong method there.
    """

    others: tuple[re.Pattern[str], ...] = ()
    """The paths that are more special than its own."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as the framework does, but for paths of others."""
        found, child = super().matches(scope)
        if found is not Match.NONE and any(each.match(scope["path"]) for each in self.others):
            return Match.NONE, {}
        return found, child

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the framework's own."""
        handle = super().get_route_handler()

        async def served(request: Request) -> Response:
            try:
                if size_of(request) > SMALL_BODY:
                    await self._admit(request)
                strict = _StrictRequest(request.scope, request.receive)
                return await in_turns(request, lambda: handle(strict))
            except (RequestValidationError, UsageError):
                session = request.scope["state"].get("session")
                if session is not None:
                    await run_in_threadpool(session.tell)
                raise

        return served

    async def _admit(self, request: Request) -> None:
        """Authenticate before a large body is read; 413 on a route without authentication."""
        if not any(each.dependency is session_of for each in self.dependencies):
            raise HTTPException(413)
        session = await session_of(request)
        await run_in_threadpool(session.tell)


class _StrictRequest(Request):
    """A request with JSON that is parsed as strictly as a file of definitions."""

    parsed: tuple[Any] | None = None

    async def json(self) -> Any:
        """Parse the body; a large one in a thread, so that the loop serves other requests."""
        if self.parsed is None:
            body = await self.body()
            if len(body) > SMALL_BODY:
                self.parsed = (await run_in_threadpool(self._parse, body),)
            else:
                self.parsed = (strict_json(body),)
        return self.parsed[0]

    def _parse(self, body: bytes) -> Any:
        """Parse a large body in a turn of the user, who is authenticated already."""
        session: AskedSession = self.scope["state"]["session"]
        with session.turn():
            return strict_json(body)


def keep_apart(routes: Iterable[object]) -> None:
    """Tell each route the paths that others have more specially, a word in the place of an id."""
    handled = [each for each in routes if isinstance(each, HandledRoute)]
    paths = {each.path: each.path_regex for each in handled}
    for route in handled:
        route.others = tuple(
            found for path, found in paths.items() if _is_more_special(path, route.path)
        )


def _is_more_special(path: str, other: str) -> bool:
    parts, others = path.split("/"), other.split("/")
    return (
        path != other
        and len(parts) == len(others)
        and all(
            part == theirs or (theirs.startswith("{") and not part.startswith("{"))
            for part, theirs in zip(parts, others, strict=True)
        )
    )


def _asked(given: dict[str, Any]) -> AskedSession:
    (session,) = (each for each in given.values() if isinstance(each, AskedSession))
    return session


def _written(body: bytes, status: int, given: dict[str, Any]) -> Response:
    """Build the answer, with the status and the headers that the route has set."""
    answer = Response(body, status_code=status, media_type=_JSON)
    for each in given.values():
        if isinstance(each, Response):
            answer.status_code = each.status_code or status
            answer.raw_headers.extend(
                pair for pair in each.raw_headers if pair[0] != b"content-length"
            )
    return answer
