"""Spark's UI of a running attempt: the link from the task, and the pages behind it.

Spark's pages hold texts of tasks, so they are not trusted. Their content is sandboxed: without an
origin, the scripts can neither use the session of the console nor read its pages. Of the headers
of Spark, only the type of a listed page is passed on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from api.asking import RequestSession
from api.console.table import Visit, page
from api.policy import Policy
from api.problems import TooManyError
from common.clock import SystemClock
from common.model.rights import NOTHING, Action, Principal
from common.page_access import FIRST_PAGE, PREFIX, is_file
from operations.spark_pages import fetch, holder_of, link_to, read_pass

PATH: Final = f"{PREFIX}/{{leave}}/{{path:path}}"

_POLICY: Final = (
    "sandbox allow-scripts allow-forms; default-src 'none'; script-src 'self' 'unsafe-inline';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    # A page without an origin requests its scripts and documents across origins.
    "Access-Control-Allow-Origin": "null",
}
_PREFLIGHT: Final[Mapping[str, str]] = {
    **_HEADERS,
    # jQuery sends this header along.
    "Access-Control-Allow-Headers": "X-Requested-With",
}
_HEAD: Final = b"<head>"
_STORAGE: Final = (
    b'<script>for(const name of["localStorage","sessionStorage"]){const kept=new Map();'
    b"Object.defineProperty(window,name,{value:{"
    b"getItem:key=>kept.get(String(key))??null,"
    b"setItem(key,text){kept.set(String(key),String(text))},"
    b"removeItem(key){kept.delete(String(key))},clear(){kept.clear()},"
    b"key:at=>[...kept.keys()][at]??null,get length(){return kept.size}}})}</script>"
)
"""A storage that ends with the page. Browsers offer none to a sandbox, and scripts would fail."""
_KEPT: Final = "private, max-age=3600"
_TEXTS: Final = frozenset(
    {"text/html", "text/css", "text/javascript", "application/javascript", "application/json"}
)
_OTHERS: Final = frozenset(
    {
        *("image/png", "image/gif", "image/jpeg", "image/svg+xml", "image/x-icon"),
        *("image/vnd.microsoft.icon", "font/woff", "font/woff2"),
    }
)
_NOBODY: Final = Principal(user_id=0, user_name="nobody", scope=NOTHING)
_MOST_READERS: Final = 16
_readers = threading.BoundedSemaphore(_MOST_READERS)
_clock = SystemClock()


def open_ui(visit: Visit) -> Response:
    """Lead to the UI."""
    return RedirectResponse(link_to(visit.session, visit.id, clock=_clock), status_code=303)


def show(request: Request) -> Response:
    """Show a page of the UI to the holder of a pass."""
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=_PREFLIGHT)
    state = request.app.state
    nobody = RequestSession(state.config, state.engine, _NOBODY)
    allowed = read_pass(nobody, str(request.path_params["leave"]), clock=_clock)
    principal = holder_of(state.engine, allowed)
    path = str(request.path_params["path"])
    if not path:
        return RedirectResponse(f"{allowed.base}/{FIRST_PAGE}", status_code=303)
    if not is_file(path):
        # Files are not counted, because a page loads a dozen of them.
        state.pace.take(principal.user_id)
    if not _readers.acquire(timeout=1):
        raise TooManyError(
            "too many pages of Spark are being read, because workers are slow to answer"
        )
    try:
        session = RequestSession(state.config, state.engine, principal)
        found = fetch(session, allowed, path, request.url.query, clock=_clock)
    finally:
        _readers.release()
    if found.place is not None:
        return RedirectResponse(found.place, status_code=303, headers=_HEADERS)
    headers = {**_HEADERS, "Content-Type": _type_of(found.media_type)}
    if is_file(path):
        headers["Cache-Control"] = _KEPT
    body = found.body
    if found.media_type == "text/html":
        body = body.replace(_HEAD, _HEAD + _STORAGE, 1)
    return Response(body, headers=headers)


def _type_of(media_type: str) -> str:
    """Return the type of an answer; a type that is not listed is bytes."""
    if media_type in _TEXTS:
        return f"{media_type}; charset=utf-8"
    return media_type if media_type in _OTHERS else "application/octet-stream"


PAGES: Final = (page("/tasks/{id}/spark-ui", Policy(takes=Action.VIEW, thing="task"), open_ui),)
