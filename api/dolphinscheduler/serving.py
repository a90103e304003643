"""Serves the table of routes: authenticates, reads the parameters, and wraps the results.

Results and errors are masked here (`common.masking`), so no route can show a secret in them. A
route that returns a `Response` does that itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from api.asking import RequestSession, check_origin, heavy_place
from api.bodies import SMALL_BODY, body_of
from api.cookies import is_encrypted
from api.dolphinscheduler import (
    definitions,
    environments,
    instances,
    lists,
    projects,
    runs,
    schedules,
    tasks,
    versions,
)
from api.dolphinscheduler import log_in as log_ins
from api.dolphinscheduler.call import Call, read_parameters
from api.dolphinscheduler.dialects import CLASSIC, LATER, PROCESS, WORKFLOW, Dialect
from api.dolphinscheduler.envelope import RefusedError, Status, answer, refusal
from api.dolphinscheduler.table import Row
from api.policy import Who
from api.problems import TooManyError, UnauthenticatedError, request_id
from api.turns import in_turns, turn_of
from common.errors import (
    InvalidDefinitionError,
    NotAllowedError,
    NotFoundError,
    SchedulerError,
)
from common.masking import mask_value
from common.model.rights import DATABASE, Principal
from common.store.connect import Engine, is_transient
from common.store.people.rights import Thing
from operations.errors import ForbiddenError, NameTakenError, NoGrantError, UsageError
from operations.log_ins import principal_of_session
from operations.session import Session
from operations.tokens import principal_of

log = logging.getLogger(__name__)

BASE: Final = "/dolphinscheduler"
ROWS: Final[tuple[Row, ...]] = (
    *log_ins.ROWS,
    *projects.ROWS,
    *definitions.ROWS,
    *versions.ROWS,
    *runs.ROWS,
    *instances.ROWS,
    *tasks.ROWS,
    *schedules.ROWS,
    *lists.ROWS,
    *environments.ROWS,
)
_MISSING: Final = {
    Thing.PROJECT: Status.NO_PROJECT,
    Thing.DEFINITION: Status.NO_DEFINITION,
    Thing.INSTANCE: Status.NO_INSTANCE,
    Thing.TASK: Status.NO_TASK,
    Thing.SCHEDULE: Status.NO_SCHEDULE,
}
_BEGINNINGS: Final = {
    "project": Thing.PROJECT,
    "process definition": Thing.DEFINITION,
    "definition": Thing.DEFINITION,
    "process instance": Thing.INSTANCE,
    "instance": Thing.INSTANCE,
    "task": Thing.TASK,
    "schedule": Thing.SCHEDULE,
    "command": Thing.COMMAND,
    "complement": Thing.COMPLEMENT,
}
_NAMED_BY: Final = {"environment": "environmentCode", "worker group": "workerGroup"}
"""The parameters that name what is no object of a path."""
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH")
_BEARER: Final = "bearer "
_OF_CLASSIC: Final = frozenset({"processDefinitionId", "taskInstId"})
"""Parameters that 1.x alone has, on paths that it shares with later releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A route in one dialect."""

    method: str
    path: str
    dialect: Dialect
    row: Row


def served() -> Iterator[Served]:
    """Yield every route in every dialect that has it."""
    for row in ROWS:
        if row.classic is not None:
            method, path = row.classic
            yield Served(method=method, path=path, dialect=CLASSIC, row=row)
        if row.later is None:
            continue
        method, path = row.later
        if "{word}" not in path:
            yield Served(method=method, path=path, dialect=LATER, row=row)
            continue
        for dialect in (PROCESS, WORKFLOW):
            (word,) = dialect.words
            yield Served(method=method, path=path.replace("{word}", word), dialect=dialect, row=row)


def add_to(app: FastAPI) -> None:
    """Add all routes to the application; what is none of them is answered with a sentence."""
    routes: dict[str, dict[str, Served]] = {}
    for each in served():
        # The first dialect of a path that two have is the later one's, which has the more words.
        by_method = routes.setdefault(_shape(each.path), {})
        kept = by_method.get(each.method)
        if kept is None or kept.dialect.is_classic:
            by_method[each.method] = each
    ordered = sorted(routes.values(), key=lambda found: _order(_any(found).path))
    app.router.routes.append(
        Mount(
            BASE,
            app=Router(
                [
                    *(
                        Route(f"/{each.path}", _endpoint(each), methods=[each.method])
                        for found in ordered
                        for each in found.values()
                    ),
                    Route("/{path:path}", _unknown, methods=list(_METHODS)),
                ],
                redirect_slashes=False,
            ),
        )
    )


def _any(found: dict[str, Served]) -> Served:
    return next(iter(found.values()))


def _shape(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))


def _order(path: str) -> list[tuple[bool, str]]:
    """Sort a word before what stands for any."""
    return [(part.startswith("{"), part) for part in path.split("/")]


def _endpoint(each: Served) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        session: Session | None = None

        def admit() -> None:
            nonlocal session
            if each.row.takes is Who.ANYONE:
                raise UsageError("body", "is too large for a log-in")
            session = _session(request, each.row.takes)

        try:
            # Proxies drop the body of a GET, so no route reads it.
            body = b"" if each.method == "GET" else await body_of(request, admit)
        except Exception as error:  # noqa: BLE001  # The client reads only the envelope.
            return _answered(error, each, request)

        def authenticate() -> Session:
            nonlocal session
            if session is None:
                session = _session(request, each.row.takes)
            return session

        serve_once = partial(_serve, each, request, body, authenticate)
        try:
            return await in_turns(request, partial(run_in_threadpool, serve_once))
        except TooManyError as error:
            return _answered(error, each, request)

    return serve


async def _unknown(request: Request) -> Response:
    return await run_in_threadpool(partial(_serve_unknown, request))


def _serve(
    each: Served, request: Request, body: bytes, authenticate: Callable[[], Session]
) -> Response:
    try:
        session = authenticate()
        is_large = len(body) > SMALL_BODY
        user_id = session.principal.user_id
        has_user = each.row.takes is not Who.ANYONE
        with (
            turn_of(request, user_id) if has_user else nullcontext(),
            heavy_place(request, user_id) if is_large else nullcontext(),
        ):
            found = each.row.serve(_call(each, request, session, body))
            if isinstance(found, Response):
                return found
            return JSONResponse(answer(mask_value(found)))
    except Exception as error:  # noqa: BLE001  # The client reads nothing but the envelope.
        return _answered(error, each, request)


def _answered(error: Exception, each: Served, request: Request) -> Response:
    if isinstance(error, UnauthenticatedError | TooManyError):
        return _without_body(error)
    return JSONResponse(mask_value(_refused(error, each, request)))


def _call(each: Served, request: Request, session: Session, body: bytes) -> Call:
    parameters, files = read_parameters(
        request.url.query, body, request.headers.get("content-type", "")
    )
    return Call(
        session=session,
        dialect=_spoken(each, parameters, request.path_params),
        path={name: str(value) for name, value in request.path_params.items()},
        parameters=parameters,
        files=files,
        address=_address(request),
        session_text=_session_text(request),
        is_encrypted=is_encrypted(request),
    )


def _serve_unknown(request: Request) -> Response:
    try:
        _session(request, Who.USER)
    except (UnauthenticatedError, TooManyError) as error:
        return _without_body(error)
    except Exception as error:  # noqa: BLE001
        return JSONResponse(_of_database(error, request))
    sentence = (
        f"{request.method} {request.url.path[:200]} is not served here; see"
        " docs/dolphinscheduler.md for the calls that are, and /api/v1/openapi.json for others"
    )
    return JSONResponse(refusal(Status.INTERNAL, Status.INTERNAL.sentence(sentence)))


def _without_body(error: UnauthenticatedError | TooManyError) -> Response:
    """Answer by the status of HTTP alone, as the original does before its controllers."""
    if isinstance(error, TooManyError):
        return Response(status_code=429, headers={"Retry-After": str(error.retry_after)})
    return Response(status_code=401)


def _spoken(each: Served, parameters: Mapping[str, str], path: Mapping[str, object]) -> Dialect:
    """Tell the dialect of a path that several have: by its parameters, else by the project.

    1.x names a project, where later releases have its code.
    """
    row, dialect = each.row, each.dialect
    if row.classic is not None and row.later is not None and not dialect.is_classic:
        is_shared = row.classic == row.later
        project = str(path.get("project", "0"))
        if is_shared and (_OF_CLASSIC & parameters.keys() or not project.isdigit()):
            return CLASSIC
    if dialect is LATER:
        for known in (WORKFLOW, PROCESS):
            if any(name.startswith(known.words) for name in parameters):
                return known
    return dialect


def _session(request: Request, takes: object) -> Session:
    app = request.app.state
    engine: Engine = app.engine
    principal: Principal | None = None
    if takes is Who.ANYONE:
        check_origin(request)
        # Nobody's: the route asks for a password, and calls no operation that asks for rights.
        return RequestSession(app.config, engine, DATABASE)
    token = request.headers.get("token", "")
    bearer = request.headers.get("authorization", "")
    if not token and bearer[: len(_BEARER)].lower() == _BEARER:
        token = bearer[len(_BEARER) :]
    address, name = _address(request), request_id(request)
    if token:
        principal = principal_of(engine, token.strip(), address=address, request=name)
    elif text := _session_text(request):
        check_origin(request)
        principal = principal_of_session(engine, text, address=address, request=name)
    if principal is None:
        raise UnauthenticatedError("the request has no valid token and no valid session")
    app.pace.take(principal.user_id)
    return RequestSession(app.config, engine, principal)


def _session_text(request: Request) -> str | None:
    name = log_ins.SESSION
    return request.headers.get(name) or request.cookies.get(name)


def _address(request: Request) -> str | None:
    return None if request.client is None else request.client.host


def _refused(error: Exception, each: Served, request: Request) -> dict[str, Any]:
    row = each.row
    match error:
        case RefusedError():
            return refusal(error.status, str(error))
        case UsageError():
            status = Status.WRONG_CRON if error.field == "cron" else Status.PARAMETER
            subject = error.message if error.field == "cron" else error.field or "?"
            more = "" if error.field == "cron" else f": {error.message}"
            return refusal(status, f"{status.sentence(subject)}{more}")
        case InvalidDefinitionError():
            shown = "; ".join(error.mistakes[:5])
            return refusal(
                Status.INVALID_DATA, f"{Status.INVALID_DATA.sentence('')}: {shown:.2000}"
            )
        case ForbiddenError():
            return refusal(Status.FORBIDDEN, f"{Status.FORBIDDEN.sentence()}: {error}")
        case NotFoundError() if (parameter := _missing_parameter(error)) is not None:
            return refusal(Status.PARAMETER, f"{Status.PARAMETER.sentence(parameter)}: {error}")
        case NotFoundError():
            thing = _thing_in(str(error)) or row.thing
            status = Status.INTERNAL if thing is None else _MISSING.get(thing, Status.INTERNAL)
            given = request.path_params.get("project") if thing is Thing.PROJECT else None
            return refusal(status, status.sentence(given or _named(request) or error))
        case NameTakenError() | NotAllowedError():
            status = row.refused
            if status is Status.INTERNAL:
                return refusal(status, status.sentence(error))
            return refusal(status, f"{status.sentence('')}: {error}")
        case _:
            return _of_database(error, request)


def _thing_in(text: str) -> Thing | None:
    """Return the kind of what is missing, as the text of the error begins with it."""
    for beginning, thing in _BEGINNINGS.items():
        if text.startswith(f"there is no {beginning}"):
            return thing
    return None


def _missing_parameter(error: NotFoundError) -> str | None:
    """Return the parameter that names a missing object, by the start of the error's text."""
    if isinstance(error, NoGrantError):
        return _NAMED_BY.get(error.kind.title)
    for beginning, parameter in _NAMED_BY.items():
        if str(error).startswith(f"there is no {beginning}"):
            return parameter
    return None


def _named(request: Request) -> str | None:
    """Return the number of the object that a path names last."""
    for name in ("code", "id"):
        if name in request.path_params:
            return str(request.path_params[name])
    return None


def _of_database(error: Exception, request: Request) -> dict[str, Any]:
    if is_transient(error) or "57014" in str(error):
        said = "the database did not answer in time; send the request again"
    elif isinstance(error, SchedulerError):
        said = str(error)
    else:
        name = request_id(request)
        log.error("request failed", extra={"request_id": name}, exc_info=error)
        said = f"the request could not be carried out; the log has the cause under {name}"
    return refusal(Status.INTERNAL, Status.INTERNAL.sentence(said))
