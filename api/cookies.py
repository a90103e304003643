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
_ENCRYPTED_COOKIE: Final = f"__Host-{COOKIE}"
CSRF_HEADER: Final = "X-CSRF-Token"
_READING: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def is_encrypted(request: Request) -> bool:
    """Return True if the client used HTTPS, to this server or to a trusted proxy."""
    return bool(request.scope.get("scheme") == "https")


def name_of(request: Request) -> str:
    """Return the name of the cookie; with HTTPS its prefix keeps other hosts from setting it.

    Browsers reject the prefix without HTTPS, which loopback and tunnels do not use.
    """
    return _ENCRYPTED_COOKIE if is_encrypted(request) else COOKIE


def session_text(request: Request) -> str | None:
    return request.cookies.get(name_of(request))


def give(request: Request, response: Response, text: str) -> None:
    """Set the cookie; a new one at each log-in, whatever the browser had."""
    name = name_of(request)
    response.set_cookie(name, text, path="/", httponly=True, samesite="lax", secure=True)


def take_away(request: Request, response: Response) -> None:
    name = name_of(request)
    response.delete_cookie(name, path="/", httponly=True, samesite="lax", secure=True)


def check_change(request: Request, text: str) -> None:
    """Refuse a change that a page of another origin may have made the browser send."""
    if request.method in _READING:
        return
    check_origin(request)
    if not is_csrf_token(text, request.headers.get(CSRF_HEADER, "")):
        raise ForbiddenError(
            f"a change by a cookie needs its token in {CSRF_HEADER}; GET /api/v1/me has it"
        )


def is_foreign(request: Request) -> bool:
    """Return True if the browser reports that a page of another origin sends the request."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    return (site is not None and site not in _OWN_SITES) or (
        origin is not None
        and not request.app.state.reach.is_own_origin(origin, request.headers.get("host"))
    )


def check_origin(request: Request) -> None:
    """Raise `ForbiddenError` if a page of another origin sends the request."""
    if is_foreign(request):
        raise ForbiddenError(
            "the request comes from a page of another origin, which orders nothing"
        )
