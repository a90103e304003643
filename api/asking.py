"""The principal and the session of a request: told by its token, or by a cookie."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends, Header, Request

from api import cookies
from api.heavy import LONG_SECONDS, HeavyWork
from api.known_tokens import KnownTokens
from api.problems import UnauthenticatedError, UnconditionalError, request_id
from api.shared_registry import SharedRegistry
from api.turns import turn_of
from common.config import Config
from common.model.rights import NOTHING, Principal
from common.registry.protocol import Registry
from common.store.connect import Engine
from operations.errors import UsageError
from operations.log_ins import principal_of_session
from operations.naming import id_in
from operations.session import Session
from operations.tokens import principal_of

REGISTRY: Final = SharedRegistry()
PROJECT_HEADER: Final = "orcaflow-project"
"""The header that limits a request to a project: the project's id."""
_SCHEME: Final = "bearer "
_NOBODY: Final = Principal(user_id=0, user_name="nobody", scope=NOTHING)


class RequestSession(Session):
    """The session of one request, on the connections of the server."""

    def __init__(self, config: Config, engine: Engine, principal: Principal) -> None:
        super().__init__(principal=principal)
        # In the place of what the base would read and open.
        self.__dict__["config"] = config
        self.__dict__["engine"] = engine

    def registry(self, *, patience: timedelta | None) -> AbstractContextManager[Registry]:
        """Lend the session of ZooKeeper that all requests share."""
        return REGISTRY.lent(self.config, patience=patience)


class AskedSession(RequestSession):
    """The session of a request whose principal is not known before `tell`; until then it is nobody.

    It is told in the thread that then works with it, since it takes a statement.
    """

    def __init__(
        self, request: Request, *, engine: Engine | None = None, may_be_known: bool = False
    ) -> None:
        """With `may_be_known` a token that was good a moment ago is (`api.known_tokens`).

        `engine` is another than the application's.
        """
        state = request.app.state
        super().__init__(state.config, engine or state.engine, _NOBODY)
        self._request = request
        self._may_be_known = may_be_known

    def tell(self) -> None:
        """Tell who asks, by the token or the cookie, and count the request.

        `UnauthenticatedError` without one, `TooManyError` for a user who asks too often. Later
        calls do nothing.
        """
        if self.principal is _NOBODY:
            self.principal = _principal_of(
                self._request, self.engine, may_be_known=self._may_be_known
            )
            chosen = self._request.headers.get(PROJECT_HEADER)
            if chosen is not None:
                self.principal = self.principal.within(_project_id(chosen))
            self._request.app.state.pace.take(self.principal.user_id)

    def is_over(self) -> bool:
        """Return True if the client has disconnected or the request has timed out."""
        return bool(self._request.scope["state"].get("is_over"))

    def turn(self) -> AbstractContextManager[None]:
        """Hold a turn of the user; `NoTurnError` if the request has to wait for one."""
        # Plain reads of the lane have few rows, and its thread can't wait.
        if self._may_be_known:
            return nullcontext()
        return turn_of(self._request, self.principal.user_id)

    def heavy_place(self) -> AbstractContextManager[None]:
        """Hold a place for long work; `TooManyError` if none is free."""
        return heavy_place(self._request, self.principal.user_id)


def heavy_place(request: Request, user_id: int) -> AbstractContextManager[None]:
    """Hold a place for the long work of a user, and extend the timeout of the request."""
    request.scope["state"]["more_seconds"] = LONG_SECONDS
    heavy: HeavyWork = request.app.state.heavy
    return heavy.place(user_id)


def _project_id(chosen: str) -> int:
    number = id_in(chosen)
    if number is None:
        raise UsageError(PROJECT_HEADER, f"{chosen!r:.40} is not the id of a project")
    return number


async def session_of(request: Request) -> AskedSession:
    """Return the session of the request; `api.handling` sets its user."""
    state: dict[str, Any] = request.scope["state"]
    session: AskedSession | None = state.get("session")
    if session is None:
        session = state["session"] = AskedSession(request)
    return session


def _principal_of(request: Request, engine: Engine, *, may_be_known: bool) -> Principal:
    """Read the principal of the request's token or cookie; `UnauthenticatedError` without one.

    A token goes before a cookie. What a cookie changes takes proof that a page of ours sends it.
    """
    app = request.app.state
    given = request.headers.get("authorization")
    cookie = cookies.session_text(request)
    if given is None and cookie is not None:
        principal = principal_of_session(
            engine, cookie, address=address_of(request), request=request_id(request)
        )
        if principal is None:
            raise UnauthenticatedError("the session has ended; log in again")
        cookies.check_change(request, cookie)
        return principal
    given = given or ""
    if given[: len(_SCHEME)].lower() != _SCHEME:
        raise UnauthenticatedError(
            "the request has no `Authorization: Bearer` token, and no cookie of a session"
        )
    token, address, name = given[len(_SCHEME) :].strip(), address_of(request), request_id(request)

    def find() -> Principal | None:
        return principal_of(engine, token, address=address, request=name)

    known: KnownTokens = app.known_tokens
    principal = (
        known.principal_of(token, find, address=address, request=name) if may_be_known else find()
    )
    if principal is None:
        raise UnauthenticatedError("the token is unknown, expired or revoked")
    return principal


def check_origin(request: Request) -> None:
    """Refuse what a page of another origin makes a browser send, along with its cookie."""
    if cookies.is_foreign(request):
        raise UnauthenticatedError("the request comes from a page of another origin")


def address_of(request: Request) -> str | None:
    return None if request.client is None else request.client.host


async def check_parameters(request: Request) -> None:
    """Refuse parameters that the route does not have: a misspelt filter would filter nothing."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    known = set() if dependant is None else {each.alias for each in dependant.query_params}
    for name in request.query_params:
        if name not in known:
            options = ", ".join(sorted(known)) or "none"
            raise UsageError(f"{name!r:.100}", f"is no parameter here; known are: {options}")
        if any("\0" in value for value in request.query_params.getlist(name)):
            raise UsageError(name, "it holds a NUL, which no text of the database has")


async def content_of(request: Request) -> bytes:
    return await request.body()


def needed(condition: str | None) -> str:
    """Return the tags of `If-Match`; `UnconditionalError` without one."""
    if condition is None or not condition.strip():
        raise UnconditionalError(
            "say by If-Match what you have read; its ETag is in the answer to GET"
        )
    return condition


Content: TypeAlias = Annotated[bytes, Depends(content_of)]
"""The body of a request, as it is."""
Condition: TypeAlias = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1000,
        description="The `ETag` of what was read, which it needs; or `*`.",
    ),
]
Asked: TypeAlias = Annotated[Session, Depends(session_of)]
AskedRequest: TypeAlias = Annotated[AskedSession, Depends(session_of)]
"""The session for routes that end their work with the request."""
