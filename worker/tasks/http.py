"""HTTP: one request, and a check of what came back.

The keys are those of contract §1.20.4. Parameters of the type PARAMETER go into the query,
HEADERS into the header, and BODY into a JSON object, which is sent only if there is one (T58);
`httpBody` is any JSON instead, nested and with numbers, and is sent as it is written.
`httpCheckCondition` decides about success. `connectTimeout` and `socketTimeout` are milliseconds, a
minute each if they are not given. `response`, `status` and `<task>.response`, the name in
DolphinScheduler 3.x, are put out if they are declared OUT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from common.model.task_type import (
    LOCAL_PARAMS,
    Fault,
    IsParameter,
    Key,
    Shape,
    TaskTypeSpec,
    ValueFaultError,
    is_open,
    text_of,
)
from common.params import response_name, with_some_date
from worker.launching.base import Launch, TaskContext, fault_at
from worker.launching.json_body import text_of_body, with_values
from worker.launching.runner import run_by

_PLACES = ("PARAMETER", "BODY", "HEADERS")
_DEFAULT_TIMEOUT_MS: Final = 60_000
_LONGEST_TIMEOUT_MS: Final = 24 * 3600 * 1000
_STATUS = re.compile(r"\s*[1-5][0-9]{2}\s*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
# They say where a message ends, which is the library's business.
_REFUSED_HEADERS = frozenset({"content-length", "transfer-encoding", "connection", "upgrade"})


def _check_url(value: Any) -> None:
    _read_url(str(value))


def _read_url(text: str) -> str:
    url = text.strip()
    if not url:
        raise ValueFaultError("is empty")
    # No message repeats the address: it may hold a password.
    if not url.isprintable() or " " in url:
        raise ValueFaultError("has a blank or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueFaultError("is malformed") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ValueFaultError(f"must begin with http:// or https://, not {parts.scheme[:20]!r}")
    if not parts.hostname or port == 0:
        raise ValueFaultError("names no host")
    return url


def _check_condition(check: str, condition: str) -> None:
    if check == "STATUS_CODE_CUSTOM" and not _STATUS.fullmatch(condition):
        raise ValueFaultError(f"must be a status such as 204, not {condition[:40]!r}")
    if check.startswith("BODY") and not condition:
        raise ValueFaultError(f"{check} needs a text to look for")


def _faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of parameters one by one, and the condition that its check lacks."""
    listed = params.get(HTTP_PARAMS.name)
    for index, each in enumerate(listed if isinstance(listed, list) else ()):
        try:
            place, name, value = _read_http_param(each)
            if place == "HEADERS" and not is_open([name, value]):
                _check_header(name, value)
        except ValueFaultError as error:
            yield Fault(key=f"{HTTP_PARAMS.name}[{index}]", problem=str(error))
    check, condition = text_of(params, CHECK.name).upper(), text_of(params, "condition")
    if not is_open(condition):
        try:
            _check_condition(check, condition)
        except ValueFaultError as error:
            yield Fault(key="condition", problem=str(error))


def _text_faults(params: Mapping[str, Any], _is_parameter: IsParameter, /) -> Iterator[Fault]:
    body = text_of_body(params.get(BODY.name))
    if not body:
        return
    listed = params.get(HTTP_PARAMS.name)
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and each.get("httpParametersType") == "BODY":
            yield Fault(
                key=BODY.name,
                problem="and httpParams of the type BODY are both given; which one is meant?",
            )
            break
    try:
        # A number stands for any value: it may be outside of quotation marks and within.
        with_values(with_some_date(body), lambda _: "0")
    except ValueFaultError as error:
        yield Fault(key=BODY.name, problem=str(error))


def _check_http_params(value: Any) -> None:
    if value and not isinstance(value, list):
        raise ValueFaultError("must be a list")


METHOD: Final = Key(
    name="httpMethod",
    shape=Shape.WORD,
    words=("GET", "POST", "HEAD", "PUT", "DELETE"),
    default="GET",
)
HTTP_PARAMS: Final = Key(
    name="httpParams",
    shape=Shape.ANY,
    about="Parameters of the request: objects with prop, httpParametersType and value.",
    check=_check_http_params,
    is_literal=True,
)
BODY: Final = Key(
    name="httpBody",
    shape=Shape.ANY,
    about="The JSON that is sent, as text or as the object itself.",
)
CHECK: Final = Key(
    name="httpCheckCondition",
    shape=Shape.WORD,
    about="The check that decides about success.",
    words=(
        "STATUS_CODE_DEFAULT",
        "STATUS_CODE_CUSTOM",
        "BODY_CONTAINS",
        "BODY_NOT_CONTAINS",
    ),
    default="STATUS_CODE_DEFAULT",
)
CONNECT_TIMEOUT: Final = Key(
    name="connectTimeout",
    shape=Shape.NUMBER,
    about="Milliseconds until the connection must be there.",
    default=_DEFAULT_TIMEOUT_MS,
    highest=_LONGEST_TIMEOUT_MS,
)
SOCKET_TIMEOUT: Final = Key(
    name="socketTimeout",
    shape=Shape.NUMBER,
    about="Milliseconds until the next part of the answer must be there.",
    default=_DEFAULT_TIMEOUT_MS,
    highest=_LONGEST_TIMEOUT_MS,
)
SPEC: Final = TaskTypeSpec(
    name="HTTP",
    about="One HTTP request.",
    keys=(
        Key(name="url", about="The address.", check=_check_url),
        METHOD,
        HTTP_PARAMS,
        BODY,
        CHECK,
        Key(name="condition", about="The status or the text that the check looks for."),
        CONNECT_TIMEOUT,
        SOCKET_TIMEOUT,
        LOCAL_PARAMS,
    ),
    needs=(("url",),),
    faults=_faults,
    text_faults=_text_faults,
    names_are_its_own=False,
)


class HttpTask:
    """Makes one request to `url`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        with fault_at("url"):
            url = _read_url(context.substitute(context.text("url")))
        given: dict[str, list[tuple[str, str]]] = {place: [] for place in _PLACES}
        for place, name, value in _http_params(context):
            given[place].append((name, value))
        with fault_at(BODY.name):
            body = text_of_body(context.params.get(BODY.name))
            if body:
                body = with_values(context.dated(body), context.parameters.get)
        check = context.word(CHECK)
        condition = context.substitute(context.text("condition"))
        with fault_at("condition"):
            _check_condition(check, condition)
        return run_by(
            context,
            "http",
            {
                "method": context.word(METHOD),
                "url": url,
                "query": given["PARAMETER"],
                "headers": given["HEADERS"],
                "body": dict(given["BODY"]) or None,
                "content": body or None,
                "check": check,
                "condition": condition,
                "connect_timeout_ms": context.number(CONNECT_TIMEOUT),
                "socket_timeout_ms": context.number(SOCKET_TIMEOUT),
                "allowed": list(context.settings.http_allowed),
                "denied": list(context.settings.http_denied),
                "secrets": list(context.secrets),
                "response_name": response_name(context.task.name),
            },
        )


TASK_TYPE: Final = HttpTask


def _http_params(context: TaskContext) -> list[tuple[str, str, str]]:
    listed = context.params.get(HTTP_PARAMS.name) or []
    with fault_at(HTTP_PARAMS.name):
        _check_http_params(listed)
    found: list[tuple[str, str, str]] = []
    for index, each in enumerate(listed):
        with fault_at(f"{HTTP_PARAMS.name}[{index}]"):
            place, name, value = _read_http_param(each)
            name, value = context.substitute(name), context.substitute(value)
            if place == "HEADERS":
                _check_header(name, value)
        found.append((place, name, value))
    return found


def _read_http_param(entry: object) -> tuple[str, str, str]:
    """Return place, name and value of a parameter of the request."""
    if not isinstance(entry, Mapping):
        raise ValueFaultError("must be an object")
    name, value, place = entry.get("prop"), entry.get("value"), entry.get("httpParametersType")
    if not isinstance(name, str) or not name:
        raise ValueFaultError("prop must be a name")
    if place not in _PLACES:
        raise ValueFaultError(f"httpParametersType must be one of {', '.join(_PLACES)}")
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise ValueFaultError("value must be text")
    return str(place), name, "" if value is None else str(value)


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueFaultError(f"{name[:40]!r} is no name of a header")
    if name.lower() in _REFUSED_HEADERS:
        raise ValueFaultError(f"the header {name} can't be chosen")
    if not _HEADER_VALUE.fullmatch(value):
        # Else a value could add headers of its own, or a second request.
        raise ValueFaultError(f"the value of {name} has a line end or a control character")
