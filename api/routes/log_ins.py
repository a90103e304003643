"""Log-ins of people: by a password, by a link of the command line, and the sessions they begin."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from api import cookies
from api.answers import Ended, LoggedIn, LogIn, SessionList
from api.asking import Asked, address_of
from api.problems import UnauthenticatedError, request_id
from api.route import Route, get, post
from common.errors import NotAllowedError
from operations import log_ins


def log_in(given: LogIn, request: Request, response: Response) -> dict[str, Any]:
    """Begin a session by name and password; its cookie is for browsers, programs use tokens."""
    cookies.check_origin(request)
    engine = request.app.state.engine
    asks = {"address": address_of(request), "request": request_id(request)}
    text = log_ins.log_in(engine, given.name, given.password, **asks)
    principal = None if text is None else log_ins.principal_of_session(engine, text, **asks)
    if text is None or principal is None:
        raise UnauthenticatedError("no user has this name and this password")
    cookies.give(request, response, text)
    return {
        "id": principal.user_id,
        "name": principal.user_name,
        "csrf_token": log_ins.csrf_token(text),
    }


def log_out(session: Asked, request: Request, response: Response) -> dict[str, Any]:
    """End the session of the cookie."""
    text = cookies.session_text(request)
    if session.principal.session_hash is None or text is None:
        raise NotAllowedError("a token has no session to end; orcaflow token revoke ends a token")
    log_ins.log_out(session.engine, text, address=address_of(request), request=request_id(request))
    cookies.take_away(request, response)
    return {"ended": True}


def list_sessions(session: Asked) -> dict[str, Any]:
    """List your sessions."""
    own = log_ins.own_key(session.principal)
    return {
        "items": [
            {
                "id": each.key,
                "current": each.key == own,
                "address": each.address,
                "last_used": each.last_used,
                "expire_time": each.expire_time,
            }
            for each in log_ins.list_sessions(session)
        ]
    }


def end(id: str, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """End a session of yours, on whatever computer it is."""
    log_ins.end_own_session(session, id)
    return {"ended": True}


def open_link(request: Request, link: Annotated[str, Query(max_length=100)]) -> Response:
    """Begin the session of a link, once, and go to the console's first page."""
    text = log_ins.open_link(
        request.app.state.engine,
        link,
        address=address_of(request),
        request=request_id(request),
    )
    if text is None:
        raise UnauthenticatedError(
            "the link was used, is older than 30 s, or is of another cluster; orcaflow console"
            " makes another"
        )
    answer = RedirectResponse("/", status_code=303)
    answer.headers["referrer-policy"] = "no-referrer"
    cookies.give(request, answer, text)
    return answer


ROUTES: Final[tuple[Route, ...]] = (
    post("/login", log_in, LoggedIn),
    post("/logout", log_out, Ended),
    get("/sessions", list_sessions, SessionList),
    post("/sessions/{id}/end", end, Ended),
)
