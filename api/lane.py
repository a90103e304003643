"""Serves plain reads of the database past the framework, which takes longer than they do.

It takes the requests that it can read without any doubt: GET of a route that is `quick`, with a
token, and parameters that are right. All others go on to the framework, so that the documents, the
checks and the mistakes of both are the same; what serves them (`api.handling`) is the same anyway.

They are served by greenlets of the loop's thread, on connections of their own, which give way while
the database works (`reading_engine` of the application's state; without it nothing is taken).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Final, TypeAlias, get_type_hints
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.params import Query
from pydantic import TypeAdapter, ValidationError

from api.asking import AskedSession
from api.gate import Application, Receive, Scope, Send
from api.greenlets import Greenlets
from api.patience import SILENT
from api.policy import BASE
from api.problems import on_any_error, on_scheduler_error, unavailable
from api.route import Route
from common.errors import SchedulerError
from common.store.connect import Engine
from operations.session import Session

_Work: TypeAlias = Callable[[], Response]

_ID: Final = re.compile(r"/([1-9][0-9]{0,9})(?=/|$)")
_LARGEST_ID: Final = 2**31 - 1
_MOST_GREENLETS: Final = 4
_LONGEST_QUERY: Final = 4096
_OF_BODIES: Final = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of the query, and what reads its text."""

    read: TypeAdapter[Any]
    is_list: bool


class _Quick:
    """A route that is served here."""

    def __init__(self, route: Route, handle: Callable[..., Response]) -> None:
        self.handle = handle
        self.session = ""
        self.response: str | None = None
        self.defaults: dict[str, Any] = {}
        self.parameters: dict[str, tuple[str, _Parameter]] = {}
        hints = get_type_hints(route.serve, include_extras=True)
        for name, each in signature(route.serve).parameters.items():
            self._add(name, each, hints[name])

    def _add(self, name: str, given: Parameter, hint: Any) -> None:
        bare = getattr(hint, "__origin__", hint)
        query = next((x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Query)), None)
        if bare is Session:
            self.session = name
        elif bare is Response:
            self.response = name
        elif name != "id":
            assert query is not None, f"{name} is no parameter of the query"
            read = TypeAdapter[Any](hint)
            self.defaults[name] = given.default
            self.parameters[query.alias or name] = (name, _Parameter(read, "list[" in str(bare)))

    def values(self, query: str) -> dict[str, Any] | None:
        """Return the values of a query; None if they are not all right."""
        values = dict(self.defaults)
        if not query:
            return values
        texts: dict[str, list[str]] = {}
        for key, text in parse_qsl(query, keep_blank_values=True):
            if "\0" in text:
                return None  # No text of the database has one.
            texts.setdefault(key, []).append(text)
        for key, found in texts.items():
            name, parameter = self.parameters.get(key, ("", None))
            if parameter is None or (len(found) > 1 and not parameter.is_list):
                return None
            try:
                given: list[str] | str = found if parameter.is_list else found[0]
                values[name] = parameter.read.validate_python(given)
            except ValidationError:
                return None
        return values


class _Limits:
    """The times at which requests are given up, in their order: a timer for each would cost more.

    It belongs to the loop's thread.
    """

    def __init__(self) -> None:
        self._ends: dict[asyncio.Future[Response | None], float] = {}
        self._is_timed = False

    def add(self, future: asyncio.Future[Response | None], seconds: float) -> None:
        """Give it up after so many seconds, which are the same for all."""
        loop = future.get_loop()
        self._ends[future] = loop.time() + seconds
        if not self._is_timed:
            self._is_timed = True
            loop.call_later(seconds, self._look, loop)

    def remove(self, future: asyncio.Future[Response | None]) -> None:
        del self._ends[future]

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for future, end in self._ends.items():
            if end > now:
                loop.call_later(end - now, self._look, loop)
                return
            if not future.done():
                future.set_result(None)
        self._is_timed = False


def greenlets_of(pool_size: int) -> int:
    """Return the number of connections for plain reads among those of a server; 0 for none."""
    return min(_MOST_GREENLETS, pool_size // 2)


class Lane:
    """Serves the requests of quick routes in greenlets; lets all others pass."""

    def __init__(
        self,
        app: Application,
        *,
        routes: Iterable[tuple[Route, Callable[..., Response]]],
        greenlets: int,
    ) -> None:
        self._app = app
        self._quick: Mapping[str, _Quick] = {
            BASE + route.path: _Quick(route, handle) for route, handle in routes
        }
        self._number = greenlets
        self._greenlets: Greenlets[Response] | None = None
        self._limits = _Limits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or let it pass."""
        work = self._work_of(scope) if scope["type"] == "http" else None
        greenlets = self._greenlets_of(asyncio.get_running_loop())
        if work is None or greenlets.is_stuck():  # The framework has threads of its own.
            await self._app(scope, receive, send)
            return
        future = greenlets.begin(work)
        self._limits.add(future, scope["app"].state.patience_seconds)
        try:
            answer = await future
        finally:
            self._limits.remove(future)
        await (answer or unavailable(Request(scope), SILENT))(scope, receive, send)

    def _greenlets_of(self, loop: asyncio.AbstractEventLoop) -> Greenlets[Response]:
        if self._greenlets is None or not self._greenlets.is_of(loop):
            self._greenlets = Greenlets(loop, self._number)
        return self._greenlets

    def _work_of(self, scope: Scope) -> _Work | None:
        engine: Engine | None = scope["app"].state.reading_engine
        if engine is None or scope["method"] != "GET":
            return None
        path, number = scope["path"], None
        quick = self._quick.get(path)
        if quick is None:
            found = _ID.search(path)
            if found is None:
                return None
            number = int(found[1])
            quick = self._quick.get(f"{path[: found.start()]}/{{id}}{path[found.end() :]}")
            if quick is None or number > _LARGEST_ID:
                return None
        names = [name for name, _ in scope["headers"]]
        if b"authorization" not in names or not _OF_BODIES.isdisjoint(names):
            return None
        query = scope["query_string"]
        if len(query) > _LONGEST_QUERY or not query.isascii():
            return None
        values = quick.values(query.decode("ascii"))
        if values is None:
            return None
        if number is not None:
            values["id"] = number
        request = Request(scope)
        values[quick.session] = AskedSession(request, engine=engine, may_be_known=True)
        if quick.response is not None:
            values[quick.response] = Response()
        return lambda: _served(request, quick.handle, values)


def _served(request: Request, handle: Callable[..., Response], values: dict[str, Any]) -> Response:
    try:
        return handle(**values)
    except SchedulerError as error:
        return on_scheduler_error(request, error)
    except Exception as error:  # noqa: BLE001  # Answered as everywhere, and logged there.
        return on_any_error(request, error)
