"""The cookie of a session, and the proofs that a page of this server sends it along.

A browser sends the cookie with requests of any page, so a change takes two proofs more: the
browser's word that the page is ours (`Sec-Fetch-Site`, `Origin`), and a token that only a page can
know which may read our answers. No header says that another site may read them.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response

from operations.errors import ForbiddenError
from operations.log_ins import is_csrf_token

COOKIE: Final = "orcaflow_session"
CSRF_HEADER: Final = "X-CSRF-Token"
_READING: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def session_text(request: Request) -> str | None:
    return request.cookies.get(COOKIE)


def give(response: Response, text: str) -> None:
    """Set the cookie; a new one at each log-in, whatever the browser had."""
    response.set_cookie(COOKIE, text, path="/", httponly=True, samesite="lax", secure=True)


def take_away(response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax", secure=True)


def check_change(request: Request, text: str) -> None:
    """Refuse a change that a page of another origin may have made the browser send."""
    if request.method in _READING:
        return
    check_origin(request)
    if not is_csrf_token(text, request.headers.get(CSRF_HEADER, "")):
        raise ForbiddenError(
            f"a change by a cookie needs its token in {CSRF_HEADER}; GET /api/v1/me has it"
        )


def check_origin(request: Request) -> None:
    """Refuse a request of which the browser says that another origin's page sends it."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if (site is not None and site not in _OWN_SITES) or (
        origin is not None
        and not request.app.state.reach.is_own_origin(origin, request.headers.get("host"))
    ):
        raise ForbiddenError(
            "the request comes from a page of another origin, which orders nothing"
        )
