"""The page to log in by, for those who have no link of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from api import cookies
from api.asking import address_of
from api.console.rendering import rendered
from api.console.table import Visit, order
from api.policy import USER
from api.problems import request_id
from operations import log_ins

PATH: Final = "/login"
_LONGEST: Final = 1000


def show(request: Request) -> Response:
    """Show the form; `next` is the page to go to."""
    return _form(request, place_of(request.query_params.get("next", "/")))


def enter(request: Request, form: Mapping[str, str]) -> Response:
    """Begin a session by name and password, and go on."""
    cookies.check_origin(request)
    place = place_of(form.get("next", "/"))
    text = log_ins.log_in(
        request.app.state.engine,
        form.get("name", "")[:_LONGEST],
        form.get("password", "")[:_LONGEST],
        address=address_of(request),
        request=request_id(request),
    )
    if text is None:
        return _form(request, place, mistake=True)
    answer = RedirectResponse(place, status_code=303)
    cookies.give(request, answer, text)
    return answer


def leave(visit: Visit) -> Response:
    """End the session."""
    text = cookies.session_text(visit.request) or ""
    log_ins.log_out(
        visit.session.engine,
        text,
        address=address_of(visit.request),
        request=request_id(visit.request),
    )
    answer = RedirectResponse(PATH, status_code=303)
    cookies.take_away(visit.request, answer)
    return answer


def _form(request: Request, place: str, *, mistake: bool = False) -> Response:
    return rendered(
        "log_in.html",
        zone=None,
        request=request,
        status=401 if mistake else 200,
        next=place,
        mistake=mistake,
        provider=request.app.state.oidc is not None,
    )


def place_of(given: str) -> str:
    """Return a path of this server as it is; anything else leads to the first page."""
    is_path = given.startswith("/") and not given.startswith(("//", "/\\"))
    return given if is_path and given.isprintable() and len(given) <= _LONGEST else "/"


PAGES: Final = (order("/logout", USER, leave),)
