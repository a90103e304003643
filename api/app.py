"""Builds the application: every route with its policy, or no application at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from http import HTTPStatus
from importlib.util import find_spec
from typing import Any, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from api.answers import Problem
from api.asking import check_parameters, session_of
from api.browsers import reads_page
from api.console import serving as console
from api.cookies import COOKIE, CSRF_HEADER
from api.dolphinscheduler import serving as dolphinscheduler
from api.druid import serving as druid
from api.gate import Application, Gate, Receive, Scope, Send
from api.handling import HandledRoute, handler, keep_apart
from api.heavy import LONG_SECONDS, HeavyWork
from api.known_tokens import KnownTokens
from api.lane import Lane, greenlets_of
from api.live.log_stream import threads
from api.live.streams import Streams
from api.oidc.client import CALLBACK, LOGIN, Client, client_of
from api.pace import Pace
from api.patience import MORE_SECONDS, Patience
from api.policy import BASE, POLICIES, Policy, Who
from api.problems import (
    KINDS,
    MEDIA_TYPE,
    on_any_error,
    on_http_error,
    on_invalid_request,
    on_scheduler_error,
)
from api.reach import reach_of
from api.route import Route
from api.routes import (
    alerts,
    audit,
    cluster,
    commands,
    complements,
    datasets,
    datasources,
    definition_versions,
    definitions,
    environments,
    events,
    grants,
    instances,
    locks,
    log_ins,
    logs,
    oidc,
    overview,
    pools,
    projects,
    reviews,
    schedules,
    shares,
    streams,
    tasks,
    tenants,
    tokens,
    topologies,
    users,
    worker_groups,
    workers,
)
from api.turns import Turns
from common.clock import SystemClock
from common.config import Config
from common.errors import ConfigurationError, NotFoundError, SchedulerError
from common.runtime.health import Problem as NotReady
from common.runtime.metrics import page as metrics_page
from common.store.connect import Engine

ROUTES: Final[tuple[Route, ...]] = (
    *definitions.ROUTES,
    *definition_versions.ROUTES,
    *reviews.ROUTES,
    *shares.ROUTES,
    *instances.ROUTES,
    *tasks.ROUTES,
    *logs.ROUTES,
    *schedules.ROUTES,
    *complements.ROUTES,
    *datasources.ROUTES,
    *commands.ROUTES,
    *cluster.ROUTES,
    *events.ROUTES,
    *log_ins.ROUTES,
    *users.ROUTES,
    *tokens.ROUTES,
    *projects.ROUTES,
    *tenants.ROUTES,
    *worker_groups.ROUTES,
    *workers.ROUTES,
    *environments.ROUTES,
    *pools.ROUTES,
    *grants.ROUTES,
    *alerts.ROUTES,
    *overview.ROUTES,
    *audit.ROUTES,
    *locks.ROUTES,
    *datasets.ROUTES,
    *streams.ROUTES,
    *topologies.ROUTES,
)
_PLAIN: Final[Mapping[str, Any]] = {
    "title": "Orcaflow",
    "openapi_url": None,
    "docs_url": None,
    "redoc_url": None,
    "redirect_slashes": False,
}
_HEALTH_THREADS: Final = 4
_OF_READING: Final = ("invalid", "unavailable", "internal")


def build(
    config: Config,
    engine: Engine,
    *,
    version: str,
    problems: Callable[[], list[NotReady]] = list,
    policies: Mapping[str, Policy] = POLICIES,
) -> FastAPI:
    """Build the application; `ConfigurationError` if a route has no policy, or a policy no route.

    `problems` are the reasons why the daemon is not ready. Its state's `reading_engine` is set by
    whoever has one (`api.lane`).
    """
    _check(policies)
    app = _Application(version=version, **_PLAIN)
    app.state.document = cache(partial(_document, version, policies))
    app.state.config = config
    app.state.engine = engine
    app.state.reading_engine = None
    app.state.reach = reach_of(config.api)
    app.state.oidc = _provider(config)
    app.state.streams = Streams()
    app.state.log_threads = threads()
    app.state.patience_seconds = config.api.statement_timeout_seconds + MORE_SECONDS
    app.state.pace = Pace(per_second=config.api.requests_per_second, clock=SystemClock())
    app.state.heavy = HeavyWork()
    app.state.turns = Turns(clock=SystemClock())
    app.state.known_tokens = KnownTokens(clock=SystemClock())
    quick = []
    for route, policy, handle in _handlers(policies):
        if route.is_quick:
            quick.append((route, handle))
        # What it answers is told by its document alone: the framework would build a check for each.
        app.router.add_api_route(
            f"{BASE}{route.path}",
            handle,
            methods=[route.method],
            response_model=None,
            status_code=route.status,
            route_class_override=HandledRoute,
            dependencies=_dependencies(policy),
        )
    keep_apart(app.routes)
    _add_base(app, problems)
    dolphinscheduler.add_to(app)
    druid.add_to(app)
    console.add_to(app)
    app.add_exception_handler(SchedulerError, _readable(on_scheduler_error))
    app.add_exception_handler(RequestValidationError, _readable(on_invalid_request))
    app.add_exception_handler(HTTPException, _readable(on_http_error))
    app.add_exception_handler(Exception, _readable(on_any_error))
    app.add_middleware(Patience, page_of=console.bare_page_of)
    greenlets = greenlets_of(config.api.pool_size)
    lane = Lane(app.framework, routes=quick, greenlets=greenlets)
    app.front = Gate(lane, page_of=console.bare_page_of)
    return app


def _readable(
    answer: Callable[[Request, Exception], Response],
) -> Callable[[Request, Exception], Response]:
    """Return the handler of an error that answers a browser with a page, outside of the APIs."""

    def handle(request: Request, error: Exception) -> Response:
        made = answer(request, error)
        if not reads_page(request.url.path, request.headers):
            return made
        return console.page_of(request, made)

    return handle


class _Application(FastAPI):
    """The framework behind a gate and a lane.

    As its middlewares they would have four of its own before them, which take a tenth of the time
    of a plain read.
    """

    front: Application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the server."""
        scope["app"] = self
        await self.front(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what the lane does not."""
        await super().__call__(scope, receive, send)


def _provider(config: Config) -> Client | None:
    """Return the client of the provider of log-ins, None if there is none.

    The first log-in imports the rest (`api.routes.oidc`): an idle server needs none of it.
    """
    client = client_of(config)
    if client is not None and find_spec("joserfc") is None:
        raise ConfigurationError(
            "oidc.issuer is set, and the extra oidc is not installed (joserfc is missing):"
            " pip install 'orcaflow[oidc]'"
        )
    return client


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the application; the first takes a second, and is kept."""
    document: dict[str, Any] = app.state.document()
    return document


def _document(version: str, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Describe the routes, by an application that serves nothing."""
    app = FastAPI(version=version, **_PLAIN)
    for route, policy, handle in _handlers(policies):
        app.router.add_api_route(
            f"{BASE}{route.path}",
            handle,
            methods=[route.method],
            response_model=route.answer,
            response_class=route.stream or JSONResponse,
            status_code=route.status,
            operation_id=route.serve.__name__ + "_" + _resource(route.path),
            tags=[_resource(route.path)],
            dependencies=_dependencies(policy),
            responses=_documented(policy, route),
            openapi_extra=_extra(policy, route),
        )
    document: dict[str, Any] = app.openapi()
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": COOKIE,
            "description": (
                f"For pages: a change needs the header {CSRF_HEADER} too. With https the name"
                f" is __Host-{COOKIE}."
            ),
        },
    }
    return document


def _handlers(
    policies: Mapping[str, Policy],
) -> Iterator[tuple[Route, Policy, Callable[..., Any]]]:
    """Yield the routes with their policies, and what serves each."""
    for route in ROUTES:
        policy = policies[f"{route.method} {BASE}{route.path}"]
        yield route, policy, handler(route, policy)


def _check(policies: Mapping[str, Policy]) -> None:
    known = {f"{each.method} {BASE}{each.path}" for each in ROUTES} | set(_BASE_ROUTES)
    for name in sorted(known - set(policies)):
        raise ConfigurationError(f"the route {name} has no policy: add it to api/policy.py")
    for name in sorted(set(policies) - known):
        raise ConfigurationError(f"the policy of {name} has no route: remove it from api/policy.py")


def _dependencies(policy: Policy) -> Sequence[Any]:
    if policy.takes is Who.ANYONE:
        return [Depends(check_parameters)]
    return [Depends(session_of), Depends(check_parameters)]


def _extra(policy: Policy, route: Route) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if policy.takes is not Who.ANYONE:
        made["security"] = [{"token": []}, {"session": []}]
    if route.body is not None:
        content = {"application/json": {"schema": dict(route.body)}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _documented(policy: Policy, route: Route) -> dict[int | str, dict[str, Any]]:
    other: dict[int | str, dict[str, Any]] = {}
    if route.other_status is not None:
        other[route.other_status] = (
            {"model": route.answer}
            if route.stream is None
            else {
                "description": HTTPStatus(route.other_status).phrase,
                "content": {route.stream.media_type or "": {}},
            }
        )
    if route.other_media is not None:
        other[route.status] = {"content": {route.other_media: {"schema": {"type": "object"}}}}
    # Of the server itself, before any route is looked for.
    other[HTTPStatus.BAD_REQUEST] = {
        "description": "This is no HTTP, or its first line and headers are too long",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    return other | {
        KINDS[kind].status: {
            "model": Problem,
            "description": KINDS[kind].title,
            "content": {MEDIA_TYPE: {}},
        }
        for kind in _kinds(policy, route)
    }


def _kinds(policy: Policy, route: Route) -> Iterator[str]:
    """The problems that a route may answer with."""
    yield "unauthenticated"
    # A list may be asked for what is not there by its name, and so may an order in its body.
    if policy.takes is not Who.ANYONE:
        yield "not-found"
    if route.is_conditional:
        yield from ("changed", "unconditional")
    if route.other_status == HTTPStatus.PARTIAL_CONTENT:
        yield "range"
    # A filter may ask for what is others', and a request may have gone around the proxy.
    yield "forbidden"
    if route.method != "GET":
        yield from ("conflict", "too-large")
    yield "too-many"
    yield from _OF_READING


def _resource(path: str) -> str:
    return path.split("/")[1]


_BASE_ROUTES: Final = (
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
    "GET /problems/{kind}",
    f"GET {BASE}/openapi.json",
    "GET /console",
    f"GET {LOGIN}",
    f"GET {CALLBACK}",
)


def _add_base(app: FastAPI, problems: Callable[[], list[NotReady]]) -> None:
    """Add the routes that ask for no token: health, and what describes the others."""

    # The loop or dedicated threads serve health and metrics, so busy request threads don't delay
    # them.
    limiter = CapacityLimiter(_HEALTH_THREADS)
    describing = CapacityLimiter(1)

    async def livez() -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz() -> Response:
        found = await run_sync(problems, limiter=limiter)
        if not found:
            return JSONResponse({"status": "ok"})
        reasons = [{"part": each.part, "why": each.why} for each in found]
        return JSONResponse({"status": "not ready", "problems": reasons}, status_code=503)

    async def metrics() -> Response:
        body, media_type = await run_sync(metrics_page, limiter=limiter)
        return Response(body, media_type=media_type)

    def show_problem(kind: str) -> Response:
        known = KINDS.get(kind)
        if known is None:
            raise NotFoundError(f"there is no kind of problem {kind!r:.50}")
        return PlainTextResponse(f"{known.status} {known.title}\n\n{known.text}\n")

    text = cache(lambda: JSONResponse(openapi(app)).body)
    described: list[Any] = []

    async def show_openapi(request: Request) -> Response:
        if not described:
            # The first request builds the document in a second or more; other requests wait.
            request.scope["state"]["more_seconds"] = LONG_SECONDS
            described.append(await run_sync(text, limiter=describing))
        return Response(described[0], media_type="application/json")

    served: tuple[Callable[..., Any], ...] = (
        *(livez, readyz, metrics),
        *(show_problem, show_openapi),
        log_ins.open_link,
        *(oidc.begin, oidc.end),
    )
    for name, serve in zip(_BASE_ROUTES, served, strict=True):
        app.add_api_route(
            name.removeprefix("GET "), serve, methods=["GET"], include_in_schema=False
        )
