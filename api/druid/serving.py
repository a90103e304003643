"""Serves the table of Druid's routes: who asks, and errors as Druid's clients read them.

Clients send a token as `Authorization: Bearer`, or as the password of a user by `Basic`, which is
what Druid's own take. Nobody is asked for it by a challenge: a browser that had answered one would
send it along with every request that a page of somebody else makes.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from api.asking import RequestSession, address_of, check_origin, heavy_place
from api.bodies import SMALL_BODY, body_of
from api.druid import supervisors, tasks, workers
from api.druid.table import Call, RefusedError, Row
from api.problems import TooManyError, UnauthenticatedError, request_id
from api.turns import in_turns, turn_of
from common.errors import (
    InvalidSpecError,
    NotAllowedError,
    NotFoundError,
    SchedulerError,
    ServiceUnreachableError,
)
from common.masking import mask_value
from common.store.connect import is_transient
from operations.errors import ForbiddenError, UsageError
from operations.explaining import has_master
from operations.session import Session
from operations.tokens import principal_of

log = logging.getLogger(__name__)

BASE: Final = "/druid/indexer/v1"
ROWS: Final[tuple[Row, ...]] = (*supervisors.ROWS, *tasks.ROWS, *workers.ROWS)
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH")
_AGAIN: Final = {"Retry-After": "1"}


def add_to(app: FastAPI) -> None:
    """Add all routes to the application; what is none of them is answered as missing."""
    # A word goes before what stands for any.
    ordered = sorted(ROWS, key=lambda row: [(part == "{id}", part) for part in row.path.split("/")])
    routes = [
        Route(f"/{row.path}{end}", _endpoint(row), methods=[row.method])
        for row in ordered
        for end in ("", "/")
    ]
    unknown = Route("/{path:path}", _unknown, methods=list(_METHODS))
    app.router.routes.append(Mount(BASE, app=Router([*routes, unknown], redirect_slashes=False)))


def _endpoint(row: Row) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        session: Session | None = None

        def admit() -> None:
            nonlocal session
            session = _session(request)

        try:
            body = b"" if row.method == "GET" else await body_of(request, admit)
        except Exception as error:  # noqa: BLE001  # The client reads only this document.
            return _refused(error, request)

        def authenticate() -> Session:
            nonlocal session
            if session is None:
                session = _session(request)
            return session

        serve_once = partial(_serve, row, request, body, authenticate)
        try:
            return await in_turns(request, partial(run_in_threadpool, serve_once))
        except TooManyError as error:
            return _refused(error, request)

    return serve


async def _unknown(request: Request) -> Response:
    return await run_in_threadpool(_serve, None, request, b"", partial(_session, request))


def _serve(
    row: Row | None, request: Request, body: bytes, authenticate: Callable[[], Session]
) -> Response:
    try:
        session = authenticate()
        if row is None:
            place = f"{request.method} {request.url.path:.200}"
            return _error(404, f"{place} is not served here; docs/streams.md lists what is")
        if row.method != "GET" and has_master(session) is False:
            raise ServiceUnreachableError("no master is alive; start one: server start master")
        call = Call(
            session=session,
            request=request,
            id=str(request.path_params.get("id", "")),
            query=dict(request.query_params),
            body=body,
        )
        is_large = len(body) > SMALL_BODY
        user_id = session.principal.user_id
        with (
            turn_of(request, user_id),
            heavy_place(request, user_id) if is_large else nullcontext(),
        ):
            found = row.serve(call)
            return found if isinstance(found, Response) else _answer(found, 200)
    except RefusedError as refused:
        return _answer(refused.document, refused.status)
    except Exception as error:  # noqa: BLE001  # The client reads nothing but this document.
        return _refused(error, request)


def _answer(document: Any, status: int) -> Response:
    match document:
        case None:
            return Response(status_code=status)
        case str():
            return Response(document, status_code=status, media_type="text/plain")
        case _:
            return JSONResponse(mask_value(document), status_code=status)


def _session(request: Request) -> Session:
    app = request.app.state
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    user, token = None, given.strip()
    if scheme.lower() == "basic":
        user, token = _user_and_token(token)
        check_origin(request)
    elif scheme.lower() != "bearer":
        token = ""
    principal = None
    if token:
        principal = principal_of(
            app.engine, token, address=address_of(request), request=request_id(request)
        )
    if principal is None or user not in (None, principal.user_name):
        raise UnauthenticatedError(
            "send a token as Authorization: Bearer, or as the password of its user by Basic"
            " (orcaflow token create)"
        )
    app.pace.take(principal.user_id)
    return RequestSession(app.config, app.engine, principal)


def _user_and_token(given: str) -> tuple[str | None, str]:
    try:
        user, _, token = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None, ""
    return user, token


def _refused(error: Exception, request: Request) -> Response:
    match error:
        case UnauthenticatedError():
            return _error(401, str(error), {"WWW-Authenticate": "Bearer"})
        case TooManyError():
            return _error(429, str(error), {"Retry-After": str(error.retry_after)})
        case InvalidSpecError():
            return _error(400, "; ".join(error.mistakes)[:10_000])
        case UsageError():
            place = f"{error.field}: " if error.field else ""
            return _error(400, f"{place}{error.message}")
        case ForbiddenError():
            return _answer({"Access-Check-Result": str(error)}, 403)
        case NotFoundError():
            return _error(404, str(error))
        case ServiceUnreachableError():
            return _error(503, str(error), _AGAIN)
        case NotAllowedError():
            return _error(400, str(error))
    if is_transient(error) or "57014" in str(error):
        return _error(503, "the database did not answer in time; send the request again", _AGAIN)
    if isinstance(error, SchedulerError):
        return _error(503, str(error), _AGAIN)
    name = request_id(request)
    log.error("request failed", extra={"request_id": name}, exc_info=error)
    return _error(500, f"the request could not be carried out; the log has the cause under {name}")


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    content = json.dumps({"error": text})
    return Response(content, status, headers=headers, media_type="application/json")
