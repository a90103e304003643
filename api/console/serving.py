"""Serves the table of pages: who is logged in, proofs of forms, errors as pages.

Whoever is not logged in is led to `/login`, and from there to the page that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, quote

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.routing import Match, Route

from api import cookies
from api.asking import RequestSession, address_of, heavy_place
from api.bodies import SMALL_BODY, body_of
from api.console import languages
from api.console.pages import (
    begin,
    calendar,
    complement,
    datasource,
    definitions,
    editor,
    find,
    grants,
    lists,
    log,
    log_in,
    overview,
    people,
    pools,
    proposals,
    run,
    runs,
    schedule,
    schedule_form,
    script,
    spark_ui,
    streams,
    topologies,
    versions,
)
from api.console.parts import HEADER
from api.console.rendering import STATIC, rendered, static
from api.console.table import Page, Visit
from api.marking import marked
from api.problems import (
    TooManyError,
    UnauthenticatedError,
    on_any_error,
    on_scheduler_error,
    request_id,
)
from api.turns import in_turns, turn_of
from common.errors import SchedulerError
from common.masking import mask_text
from common.model.rights import Principal
from operations.errors import ForbiddenError, UsageError
from operations.log_ins import csrf_token, is_csrf_token, principal_of_session

PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *definitions.PAGES,
    *versions.PAGES,
    *proposals.PAGES,
    *editor.PAGES,
    *topologies.PAGES,
    *streams.PAGES,
    *pools.PAGES,
    *begin.PAGES,
    *find.PAGES,
    *runs.PAGES,
    *run.PAGES,
    *log.PAGES,
    *script.PAGES,
    *spark_ui.PAGES,
    *calendar.PAGES,
    *lists.PAGES,
    *schedule_form.PAGES,
    *schedule.PAGES,
    *complement.PAGES,
    *datasource.PAGES,
    *people.PAGES,
    *grants.PAGES,
    *log_in.PAGES,
)
_RELOAD: Final = marked("load the page again")
"""The cure of the errors that end with it."""
CSRF_FIELD: Final = "csrf_token"
LANGUAGE_PATH: Final = "/language"
_RENEWALS: Final = CapacityLimiter(2)
"""Open pages that ask for their parts are served two at a time: each change makes all of them ask,
and more threads would keep the interpreter from those that tell the change itself."""
_LARGEST_ID: Final = 2**31 - 1
_UNAVAILABLE: Final = 503
_TYPED: Final = ("name", "note", "reason", "user", "partitions", "cores", "size", "days")
"""The fields of short forms whose texts the page of a refusal repeats. None of them is a secret."""
_MOST_FIELDS: Final = 1000


def add_to(app: FastAPI) -> None:
    """Add all pages to the application."""
    pages = [Route(each.path, _endpoint(each), methods=[each.method]) for each in PAGES]
    shown = Route(log_in.PATH, _plain(log_in.show), methods=["GET"])
    app.state.console_pages = [shown, *pages]
    app.router.routes += [
        shown,
        Route(log_in.PATH, _plain(log_in.enter), methods=["POST"]),
        Route(LANGUAGE_PATH, _plain(_choose_language), methods=["POST"]),
        Route(f"{STATIC}/{{digest}}/{{name}}", _plain(static), methods=["GET"]),
        Route(spark_ui.PATH, _plain(spark_ui.show), methods=["GET", "OPTIONS"]),
        *pages,
    ]


def _plain(serve: Callable[..., Response]) -> Callable[[Request], Awaitable[Response]]:
    """Wrap what is for anyone."""

    async def endpoint(request: Request) -> Response:
        if request.method == "POST":
            try:
                body = await body_of(request, _refuse_large)
            except UsageError as error:
                return _problem_page(request, error)
            return await run_in_threadpool(partial(_guarded, _posted(serve, body), request))
        return await run_in_threadpool(partial(_guarded, serve, request))

    return endpoint


def _refuse_large() -> None:
    raise UsageError("", marked("the form is too large"))


def _posted(
    serve: Callable[[Request, Mapping[str, str]], Response], body: bytes
) -> Callable[[Request], Response]:
    return lambda request: serve(request, _form(body))


def _choose_language(request: Request, form: Mapping[str, str]) -> Response:
    """Keep the language that is chosen, and lead back to the page, or to the next above it.

    The answer of a form is no address to come back to, and one that no page has leads to the first.
    """
    cookies.check_origin(request)
    path, mark, query = log_in.place_of(form.get("next", "/")).partition("?")
    place = path + mark + query
    while path and not _is_page(request, path):
        path = place = path.rpartition("/")[0]
    answer = RedirectResponse(place or "/", status_code=303)
    languages.choose(answer, form.get("language", ""))
    return answer


def _is_page(request: Request, path: str) -> bool:
    asked = {"type": "http", "method": "GET", "path": path}
    found = (each.matches(asked) for each in request.app.state.console_pages)
    return any(
        match is Match.FULL and str(scope["path_params"].get("id", 0)).isdigit()
        for match, scope in found
    )


def _endpoint(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visitor: _Visitor | None = None

        def admit() -> None:
            nonlocal visitor
            visitor = _visitor_of(request)
            if visitor is None:
                raise UnauthenticatedError("the session is missing or has ended; log in again")

        try:
            body = b"" if page.method == "GET" else await body_of(request, admit)
        except Exception as error:  # noqa: BLE001  # Every error is shown as a page.
            return _problem_page(request, error)
        request.scope["state"]["visitor"] = visitor
        serve = partial(_guarded, partial(_served, page, body=body), request)
        limiter = _RENEWALS if HEADER in request.headers else None
        try:
            return await in_turns(request, partial(run_sync, serve, limiter=limiter))
        except TooManyError as error:
            return _problem_page(request, error)

    return endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visitor:
    """The user of a request, and the text of the session's cookie."""

    principal: Principal
    text: str


def _visitor_of(request: Request) -> _Visitor | None:
    """Authenticate and count the request; None without a session."""
    text = cookies.session_text(request)
    if text is None:
        return None
    state = request.app.state
    principal = principal_of_session(
        state.engine, text, address=address_of(request), request=request_id(request)
    )
    if principal is None:
        return None
    state.pace.take(principal.user_id)
    if request.method != "GET":
        cookies.check_origin(request)
    return _Visitor(principal=principal, text=text)


def _served(page: Page, request: Request, body: bytes) -> Response:
    """Serve a page. A large body, or a wait for a turn, required authentication before."""
    visitor: _Visitor | None = request.scope["state"]["visitor"]
    if visitor is None:
        visitor = _visitor_of(request)
    if visitor is None:
        place = request.url.path if page.method == "GET" else "/"
        query = f"?{request.url.query}" if page.method == "GET" and request.url.query else ""
        return RedirectResponse(f"{log_in.PATH}?next={quote(place + query)}", status_code=303)
    request.scope["state"]["visitor"] = visitor
    with turn_of(request, visitor.principal.user_id):
        return _shown(page, request, body, visitor)


def _shown(page: Page, request: Request, body: bytes, visitor: _Visitor) -> Response:
    text, principal = visitor.text, visitor.principal
    form: Mapping[str, str] = {}
    if page.method != "GET":
        form = _form(body)
        if not is_csrf_token(text, form.get(CSRF_FIELD, "")):
            raise ForbiddenError(marked("the form is not of this session; load the page again"))
        request.scope["state"]["typed"] = [
            mask_text(form[name]) for name in _TYPED if form.get(name, "").strip()
        ]
    visit = _visit(
        request,
        visitor,
        number=_id(request),
        name=str(request.path_params.get("name", "")),
        query=_query(request),
        form=form,
    )
    if not page.is_heavy and len(body) <= SMALL_BODY:
        return page.serve(visit)
    with heavy_place(request, principal.user_id):
        return page.serve(visit)


def _visit(
    request: Request,
    visitor: _Visitor,
    *,
    number: int = 0,
    name: str = "",
    query: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
) -> Visit:
    state = request.app.state
    return Visit(
        session=RequestSession(state.config, state.engine, visitor.principal),
        request=request,
        csrf=csrf_token(visitor.text),
        id=number,
        name=name,
        query=query or {},
        form=form or {},
    )


def _id(request: Request) -> int:
    text = str(request.path_params.get("id", "0"))
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _LARGEST_ID):
        told = marked("%(text)s is no number of anything here")
        raise UsageError("id", languages.said(request, told, text=f"{text!r:.50}"))
    return int(text)


def _query(request: Request) -> Mapping[str, str]:
    """Return the parameters of the address, but for the empty fields of forms."""
    pairs = [(name, value) for name, value in request.query_params.multi_items() if value]
    query = dict(pairs)
    if len(query) < len(pairs) or any("\0" in value for value in query.values()):
        raise UsageError("", marked("the address names something twice, or holds a NUL"))
    return query


def _form(body: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except ValueError:
        raise UsageError("", marked("the form can't be read; load the page again")) from None
    fields = dict(pairs)
    if len(fields) < len(pairs) or any("\0" in each for each in fields.values()):
        raise UsageError("", marked("the form has a field twice, or a NUL; load the page again"))
    return fields


def _guarded(serve: Callable[[Request], Response], request: Request) -> Response:
    try:
        return serve(request)
    except SchedulerError as error:
        return _problem_page(request, error)
    except Exception as error:  # noqa: BLE001  # People read a page, whatever went wrong.
        return _problem_page(request, error)


def _problem_page(request: Request, error: Exception) -> Response:
    """Return the problem that the API would answer with, as a page."""
    if isinstance(error, UnauthenticatedError):
        return RedirectResponse(log_in.PATH, status_code=303)
    answer = (
        on_scheduler_error(request, error)
        if isinstance(error, SchedulerError)
        else on_any_error(request, error)
    )
    return page_of(request, answer)


def page_of(request: Request, answer: Response) -> Response:
    """Return a problem's JSON as a page, with the navigation if a user is logged in."""
    visit = None
    # The database may be away, and a part of an open page has no navigation.
    if answer.status_code < _UNAVAILABLE and HEADER not in request.headers:
        visit = _visit_of_problem(request)
    try:
        return _page_of(request, answer, visit)
    except Exception:
        if visit is None:
            raise
        return _page_of(request, answer, None)


def bare_page_of(request: Request, answer: Response) -> Response:
    """Return a problem's JSON as a page; needs no database."""
    return _page_of(request, answer, None)


def _visit_of_problem(request: Request) -> Visit | None:
    """Return the visit of a request that failed, also before it was authenticated."""
    visitor: _Visitor | None = request.scope["state"].get("visitor")
    if visitor is None:
        try:
            visitor = _visitor_of(request)
        except Exception:  # noqa: BLE001  # The problem itself is shown all the same.
            return None
    return None if visitor is None else _visit(request, visitor)


def _page_of(request: Request, answer: Response, visit: Visit | None) -> Response:
    made = rendered(
        "problem.html",
        zone=None,
        request=request,
        visit=visit,
        status=answer.status_code,
        problem=json.loads(bytes(answer.body)),
        typed=request.scope["state"].get("typed", []),
    )
    for name in ("Retry-After", "Allow"):
        if name in answer.headers:
            made.headers[name] = answer.headers[name]
    return made
