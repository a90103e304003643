"""HTTP: one request, and a check of what came back.

The keys are those of the specification §1.20.4. Parameters of the type PARAMETER go into the query,
HEADERS into the header, and BODY into a JSON object, which is sent only if there is one (T58). What
counts as success is `httpCheckCondition`. `connectTimeout` and `socketTimeout` are milliseconds, a
minute each if they are not given. `response` and `status` are put out if they are declared OUT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.runner import run_by

_METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE")
_CHECKS = ("STATUS_CODE_DEFAULT", "STATUS_CODE_CUSTOM", "BODY_CONTAINS", "BODY_NOT_CONTAINS")
_PLACES = ("PARAMETER", "BODY", "HEADERS")
_DEFAULT_TIMEOUT_MS: Final = 60_000
_LONGEST_TIMEOUT_MS: Final = 24 * 3600 * 1000
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
# They say where a message ends, which is the library's business.
_REFUSED_HEADERS = frozenset({"content-length", "transfer-encoding", "connection", "upgrade"})


class HttpTask:
    """Makes one request to `url`."""

    def launch(self, context: TaskContext) -> Launch:
        url = _url(context)
        given: dict[str, list[tuple[str, str]]] = {place: [] for place in _PLACES}
        for place, name, value in _http_params(context):
            given[place].append((name, value))
        check = context.one_of("httpCheckCondition", _CHECKS, _CHECKS[0])
        condition = context.substitute(context.text("condition"))
        if check == "STATUS_CODE_CUSTOM" and not re.fullmatch(r"\s*[1-5][0-9]{2}\s*", condition):
            raise TaskParameterError(
                f"params.condition must be a status such as 204, not {condition[:40]!r}"
            )
        if check.startswith("BODY") and not condition:
            raise TaskParameterError(f"params.condition: {check} needs a text to look for")
        return run_by(
            context,
            "http",
            {
                "method": context.one_of("httpMethod", _METHODS, "GET"),
                "url": url,
                "query": given["PARAMETER"],
                "headers": given["HEADERS"],
                "body": dict(given["BODY"]) or None,
                "check": check,
                "condition": condition,
                "connect_timeout_ms": _milliseconds(context, "connectTimeout"),
                "socket_timeout_ms": _milliseconds(context, "socketTimeout"),
                "denied": list(context.settings.http_denied),
                "secrets": list(context.secrets),
            },
        )


def _milliseconds(context: TaskContext, key: str) -> int:
    return min(context.number(key) or _DEFAULT_TIMEOUT_MS, _LONGEST_TIMEOUT_MS)


def _url(context: TaskContext) -> str:
    url = context.substitute(context.text("url")).strip()
    if not url:
        raise TaskParameterError("params.url is empty")
    # No message repeats the address: it may hold a password.
    if not url.isprintable() or " " in url:
        raise TaskParameterError("params.url has a blank or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise TaskParameterError("params.url is malformed") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise TaskParameterError(
            f"params.url must begin with http:// or https://, not {parts.scheme[:20]!r}"
        )
    if not parts.hostname or port == 0:
        raise TaskParameterError("params.url names no host")
    return url


def _http_params(context: TaskContext) -> list[tuple[str, str, str]]:
    listed = context.params.get("httpParams") or []
    if not isinstance(listed, list):
        raise TaskParameterError("params.httpParams must be a list")
    found: list[tuple[str, str, str]] = []
    for index, each in enumerate(listed):
        key = f"params.httpParams[{index}]"
        if not isinstance(each, Mapping):
            raise TaskParameterError(f"{key} must be an object")
        name, value, place = each.get("prop"), each.get("value"), each.get("httpParametersType")
        if not isinstance(name, str) or not name:
            raise TaskParameterError(f"{key}: prop must be a name")
        if place not in _PLACES:
            raise TaskParameterError(
                f"{key}: httpParametersType must be one of {', '.join(_PLACES)}"
            )
        if isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise TaskParameterError(f"{key}: value must be text")
        name = context.substitute(name)
        text = context.substitute("" if value is None else str(value))
        if place == "HEADERS":
            _check_header(key, name, text)
        found.append((place, name, text))
    return found


def _check_header(key: str, name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise TaskParameterError(f"{key}: {name[:40]!r} is no name of a header")
    if name.lower() in _REFUSED_HEADERS:
        raise TaskParameterError(f"{key}: the header {name} can't be chosen")
    if not _HEADER_VALUE.fullmatch(value):
        # Else a value could add headers of its own, or a second request.
        raise TaskParameterError(
            f"{key}: the value of {name} has a line end or a control character"
        )
