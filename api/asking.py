"""The principal and the session of a request: its token, and nothing else, says who asks."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from fastapi import Depends, Request

from api.problems import UnauthenticatedError, request_id
from common.config import Config
from common.model.rights import Principal
from common.store.connect import Engine
from operations.errors import UsageError
from operations.session import Session
from operations.tokens import principal_of

_SCHEME: Final = "bearer "


class RequestSession(Session):
    """The session of one request, on the connections of the server."""

    def __init__(self, config: Config, engine: Engine, principal: Principal) -> None:
        super().__init__(principal=principal)
        # In the place of what the base would read and open.
        self.__dict__["config"] = config
        self.__dict__["engine"] = engine


def session_of(request: Request) -> Session:
    """Return the session of the request's token; `UnauthenticatedError` without a valid one."""
    given = request.headers.get("authorization", "")
    if given[: len(_SCHEME)].lower() != _SCHEME:
        raise UnauthenticatedError("the request has no `Authorization: Bearer` token")
    app = request.app.state
    principal = principal_of(
        app.engine,
        given[len(_SCHEME) :].strip(),
        address=None if request.client is None else request.client.host,
        request=request_id(request),
    )
    if principal is None:
        raise UnauthenticatedError("the token is unknown, expired or revoked")
    return RequestSession(app.config, app.engine, principal)


def check_parameters(request: Request) -> None:
    """Refuse parameters that the route does not have: a misspelt filter would filter nothing."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    known = set() if dependant is None else {each.alias for each in dependant.query_params}
    for name in request.query_params:
        if name not in known:
            options = ", ".join(sorted(known)) or "none"
            raise UsageError(f"{name!r:.100}", f"is no parameter here; known are: {options}")


Asked: TypeAlias = Annotated[Session, Depends(session_of)]
