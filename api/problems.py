"""Errors as problem documents (RFC 9457): the kind, the cause, the cure, the places of mistakes.

No answer holds a trace, a statement or a secret: an unforeseen error is logged under the id of the
request, and the answer names that id.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.marking import marked
from common.errors import (
    ConfigurationError,
    InvalidDefinitionError,
    InvalidSpecError,
    NotAllowedError,
    NotFoundError,
    SchedulerError,
    ServiceUnreachableError,
)
from common.masking import mask_text
from common.store.connect import is_transient
from operations.definition_files import InvalidFilesError
from operations.errors import (
    ChangedMeanwhileError,
    CommandFailedError,
    ForbiddenError,
    UsageError,
)
from operations.log_ins import LogInBlockedError

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_RETRY_SECONDS: Final = 1
_MOST_MISTAKES: Final = 1000
_SHOWN_MISTAKES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of problem, with its status and the text of its page."""

    status: int
    title: str
    text: str


KINDS: Final[Mapping[str, Kind]] = {
    "unauthenticated": Kind(
        status=401,
        title=marked("Not logged in"),
        text=marked(
            "The request has no token and no session, or one that is unknown, expired, revoked, or"
            " of a disabled user. Send `Authorization: Bearer of_…` (`orcaflow token create` makes"
            " a token), or log in: `POST /api/v1/login`, `/oidc/login`, `orcaflow console`."
        ),
    ),
    "forbidden": Kind(
        status=403,
        title=marked("Not allowed"),
        text=marked(
            "You may see the object and not do this to it. An administrator gives roles:"
            " `orcaflow user grant`. The token may have less than your role. A change by a cookie"
            " needs the token of its session in `X-CSRF-Token`, and a page of this server."
        ),
    ),
    "not-found": Kind(
        status=404,
        title=marked("Not found"),
        text=marked(
            "There is no such object or path, or the object is in a project that is not yours:"
            " the answer is the same."
        ),
    ),
    "method": Kind(
        status=405,
        title=marked("Method not allowed"),
        text=marked("The path is known, by other methods."),
    ),
    "conflict": Kind(
        status=409,
        title=marked("Not in this state"),
        text=marked(
            "The request is understood, and the state of the object forbids it at present."
        ),
    ),
    "changed": Kind(
        status=412,
        title=marked("Changed meanwhile"),
        text=marked(
            "Somebody else has saved the object since you read it. Read it again, and send your"
            " change with the `ETag` of what you have read then."
        ),
    ),
    "too-large": Kind(
        status=413,
        title=marked("Too large"),
        text=marked("A body has at most 10 MB, and JSON a depth of 64."),
    ),
    "range": Kind(
        status=416,
        title=marked("Not satisfiable"),
        text=marked(
            "The log ends before the bytes that `Range` asks for; `Content-Range` tells its size."
        ),
    ),
    "host": Kind(
        status=421,
        title=marked("Another host's name"),
        text=marked(
            "The server answers to its loopback names and those of `api.url` and"
            " `api.allowed_hosts` alone, so that no web page can reach it by a name of its own."
        ),
    ),
    "invalid": Kind(
        status=422,
        title=marked("Invalid input"),
        text=marked(
            "A parameter, a header or a field is wrong; `mistakes` names each with its place."
        ),
    ),
    "definition": Kind(
        status=422,
        title=marked("A definition with mistakes"),
        text=marked(
            "`mistakes` names each with its place: the definition, the task and its key. Nothing"
            " was saved. `POST /api/v1/definitions/lint` finds them too."
        ),
    ),
    "specification": Kind(
        status=422,
        title=marked("A specification with mistakes"),
        text=marked(
            "`mistakes` names each with its place in the specification of the stream. Nothing was"
            " saved."
        ),
    ),
    "unconditional": Kind(
        status=428,
        title=marked("A condition is needed"),
        text=marked(
            "Send `If-Match` with the `ETag` of what you have read, so that nobody's change is"
            " lost; `*` takes whatever there is."
        ),
    ),
    "too-many": Kind(
        status=429,
        title=marked("Too many"),
        text=marked(
            "The server, or you, have as many of these open as there may be, or you ask too often."
            " Try again after the seconds of `Retry-After`."
        ),
    ),
    "provider": Kind(
        status=502,
        title=marked("Not trusted"),
        text=marked(
            "The answer of the login provider is not as it has to be, and nobody was logged in."
            " `detail` says what is wrong. Begin again at /oidc/login; if it happens again, compare"
            " `[oidc]` of the api-server with the settings of the provider."
        ),
    ),
    "unavailable": Kind(
        status=503,
        title=marked("A service is away"),
        text=marked(
            "PostgreSQL, ZooKeeper or the login provider can't be reached, or is overloaded."
            " Nothing was done, unless `detail` says that it may have been; send the request again"
            " after the seconds of `Retry-After`."
        ),
    ),
    "internal": Kind(
        status=500,
        title=marked("Unforeseen error"),
        text=marked(
            "The log of the api-server has the cause under the `request_id` of the answer."
        ),
    ),
}


class UnauthenticatedError(SchedulerError):
    """The request has no valid token. Answer 401."""


class ProviderError(SchedulerError):
    """The login provider's answer is not as it has to be. Answer 502."""


class OutOfRangeError(SchedulerError):
    """There are no such bytes. Answer 416."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the log has {size} bytes")
        self.size: Final = size


class UnconditionalError(SchedulerError):
    """The request does not say what it is about to replace. Answer 428."""


class TooManyError(SchedulerError):
    """There may be no more of these at present. Answer 429; it may be asked again later."""

    def __init__(self, message: str, *, retry_after: int = 5) -> None:
        super().__init__(message)
        self.retry_after: Final = retry_after


def problem(
    request: Request,
    kind: str,
    detail: str,
    *,
    mistakes: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Build the answer of a problem."""
    known = KINDS[kind]
    return JSONResponse(
        {
            "type": f"/problems/{kind}",
            "title": known.title,
            "status": known.status,
            "detail": mask_text(detail),
            "cure": _cure(detail) or known.text,
            "mistakes": list(mistakes),
            "request_id": request_id(request),
        },
        status_code=known.status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def _cure(detail: str) -> str | None:
    """The part of a message that says what to do: behind its last semicolon, or in brackets."""
    if detail.endswith(")") and "(orcaflow " in detail:
        return detail.rpartition("(")[2].removesuffix(")")
    before, _, after = detail.rpartition("; ")
    return after if before else None


def on_scheduler_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of an operation."""
    match error:
        case UnauthenticatedError():
            return problem(
                request, "unauthenticated", str(error), headers={"WWW-Authenticate": "Bearer"}
            )
        case TooManyError():
            return problem(
                request,
                "too-many",
                str(error),
                headers={"Retry-After": str(error.retry_after)},
            )
        case ProviderError():
            return problem(request, "provider", str(error))
        case OutOfRangeError():
            size = {"Content-Range": f"bytes */{error.size}"}
            return problem(request, "range", str(error), headers=size)
        case UsageError():
            place = error.field or ""
            return problem(
                request,
                "invalid",
                f"{place}: {error.message}" if place else error.message,
                mistakes=[{"place": place, "message": error.message}],
            )
        case InvalidFilesError():
            rows = [(each.row(), each) for each in error.found]
            found = [
                {
                    "place": _place(row),
                    "message": str(row["problem"]),
                    "definition": str(row["definition"] or ""),
                    "text": each.text,
                }
                for row, each in rows
            ]
            return problem(request, "definition", _short(error), mistakes=found[:_MOST_MISTAKES])
        case InvalidDefinitionError():
            found = [{"place": "", "message": each} for each in error.mistakes]
            return problem(request, "definition", _short(error), mistakes=found[:_MOST_MISTAKES])
        case InvalidSpecError():
            found = [{"place": "", "message": each} for each in error.mistakes]
            return problem(request, "specification", _short(error), mistakes=found[:_MOST_MISTAKES])
        case UnconditionalError():
            return problem(request, "unconditional", str(error))
        case ChangedMeanwhileError():
            return problem(request, "changed", str(error), headers={"ETag": f'"{error.tag}"'})
        case ForbiddenError():
            return problem(request, "forbidden", str(error))
        case NotFoundError():
            return problem(request, "not-found", str(error))
        case LogInBlockedError():
            return problem(
                request,
                "too-many",
                str(error),
                headers={"Retry-After": str(error.retry_after)},
            )
        case NotAllowedError() | CommandFailedError():
            return problem(request, "conflict", str(error))
        case ServiceUnreachableError() | ConfigurationError():
            return unavailable(request, str(error))
        case _:
            return on_any_error(request, error)


def _place(row: Mapping[str, object]) -> str:
    """The place of a mistake: the definition, the task, the key, as far as it names them."""
    node = row["node"]
    parts = (row["definition"], None if node is None else f"task {node}", row["key"])
    return ", ".join(str(each)[:200] for each in parts if each is not None)


def _short(error: InvalidDefinitionError | InvalidSpecError) -> str:
    more = len(error.mistakes) - _SHOWN_MISTAKES
    shown = "; ".join(each[:500] for each in error.mistakes[:_SHOWN_MISTAKES])
    return f"{shown}; and {more} more" if more > 0 else shown


def on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Answer a request whose parameters or body have the wrong form."""
    found: list[Any] = list(error.errors()) if isinstance(error, RequestValidationError) else []
    # The value itself is not repeated: it may be a secret, or large.
    mistakes = [
        {"place": ".".join(str(part) for part in each["loc"])[:200], "message": str(each["msg"])}
        for each in found[:100]
    ]
    detail = "; ".join(f"{each['place']}: {each['message']}" for each in mistakes[:5])
    return problem(request, "invalid", detail or "the request can't be read", mistakes=mistakes)


def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of the framework: a path or a method that no route has, a broken body."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if isinstance(error.__cause__, InvalidDefinitionError):  # From `common.strict_json`.
        mistakes = [{"place": "body", "message": each} for each in error.__cause__.mistakes]
        detail = f"body: {_short(error.__cause__)}"
        return problem(request, "invalid", detail, mistakes=mistakes[:_MOST_MISTAKES])
    match status:
        case 404:
            return problem(request, "not-found", marked("there is nothing at this path"))
        case 405:
            return problem(
                request,
                "method",
                marked("this path has other methods"),
                headers={"Allow": _allowed(request)},
            )
        case 413:
            return problem(request, "too-large", marked("the body has more than 10 MB"))
        case _ if status < 500:
            return problem(request, "invalid", marked("the body can't be read"))
        case _:
            return on_any_error(request, error)


def _allowed(request: Request) -> str:
    """The methods of a path; the framework names those of one route alone."""
    methods: set[str] = set()
    for each in request.app.routes:
        if each.matches(request.scope)[0] is not Match.NONE:
            methods |= each.methods
    return ", ".join(sorted(methods))


def on_any_error(request: Request, error: Exception) -> JSONResponse:
    """Answer what nobody foresaw; a busy or vanished database is told from a fault of ours."""
    if is_transient(error) or "57014" in str(error):
        return unavailable(request, marked("the database did not answer in time"))
    log.error("request failed", extra={"request_id": request_id(request)}, exc_info=error)
    return problem(request, "internal", marked("the request could not be carried out"))


def unavailable(request: Request, detail: str) -> JSONResponse:
    """Build the answer of a service that is away, or too busy."""
    return problem(request, "unavailable", detail, headers={"Retry-After": str(_RETRY_SECONDS)})
