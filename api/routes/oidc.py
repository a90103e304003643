"""Log-ins at an OpenID provider: the way there, and the way back with a code.

Neither takes an address to go on to: a log-in that ends well ends at the page of its user. A return
that this browser has not begun asks the provider nothing and counts as no try, so that no other
page can have an address blocked by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from api import cookies
from api.asking import address_of
from api.oidc import flow as flows
from api.oidc.client import CALLBACK, LOGIN, Client
from api.policy import BASE
from api.problems import ProviderError, UnauthenticatedError, request_id
from common.clock import SystemClock
from common.errors import NotAllowedError, ServiceUnreachableError
from operations import identities, log_ins

if TYPE_CHECKING:
    from api.oidc.flow import Flow
    from api.oidc.provider import Provider
    from operations.identities import Identity

_ONCE: Final = ("code", "state", "iss", "error")
_AGAIN: Final = f"begin again at {LOGIN}"
_Word = Annotated[str, Query(max_length=4096)]


async def begin(request: Request, here: Annotated[bool, Query()] = False) -> Response:
    """Send the browser to the provider, with the secret of the log-in in a cookie.

    A browser that came by another name of this server is sent to that which it will come back to,
    where its cookie is. It says `here` then, since a proxy may write another name into `Host`.
    """
    provider = await _provider(request)
    own = provider.client.redirect_uri.removesuffix(CALLBACK)
    if not here and request.headers.get("host", "").lower() != urlsplit(own).netloc.lower():
        return RedirectResponse(f"{own}{LOGIN}?here=1", status_code=303)
    flow = flows.new_flow()
    answer = RedirectResponse(await provider.authorization_url(flow), status_code=303)
    answer.headers["referrer-policy"] = "no-referrer"
    answer.set_cookie(
        _cookie(provider),
        flow.secret,
        max_age=flows.GOOD_FOR_SECONDS,
        path="/",
        httponly=True,
        samesite="lax",
        secure=True,
    )
    return answer


async def end(
    request: Request,
    *,
    state: _Word = "",
    code: _Word = "",
    iss: _Word | None = None,
    error: _Word | None = None,
) -> Response:
    """Begin the session of whom the provider has sent back, and go to the page of its user."""
    provider = await _provider(request)
    flow = _own_flow(request, provider, state)
    engine = request.app.state.engine
    asks = {"address": address_of(request), "request": request_id(request)}
    await run_in_threadpool(log_ins.count_try, engine, asks["address"])
    if error is not None or not code:
        reason = f"the provider let nobody in ({flows.plain(error or 'no code')})"
        await run_in_threadpool(identities.refuse, engine, reason, **asks)
        raise UnauthenticatedError(f"{reason}; {_AGAIN}")
    identity = await _identity(request, provider, flow, code, iss)
    text = await run_in_threadpool(
        identities.log_in, engine, identity, provider.client.admission, flow=flow.secret, **asks
    )
    answer = RedirectResponse(f"{BASE}/me", status_code=303)
    answer.headers["referrer-policy"] = "no-referrer"
    answer.delete_cookie(_cookie(provider), path="/", httponly=True, samesite="lax", secure=True)
    cookies.give(request, answer, text)
    return answer


async def _provider(request: Request) -> Provider:
    """Return the provider, which the first log-in makes."""
    state = request.app.state
    found: Provider | Client | None = state.oidc
    if found is None:
        raise NotAllowedError("this server has no login provider; set oidc.issuer in api.toml")
    if not isinstance(found, Client):
        return found
    made = await run_in_threadpool(_made, found)
    if state.oidc is found:  # Else another log-in was faster.
        state.oidc = made
    provider: Provider = state.oidc
    return provider


def _made(client: Client) -> Provider:
    # Here: it brings an eighth of the server's memory with it, of which no other route has any use.
    from api.oidc.provider import Provider

    return Provider(client, SystemClock())


def _cookie(provider: Provider) -> str:
    return flows.cookie_name(provider.client.redirect_uri)


def _own_flow(request: Request, provider: Provider, state: str) -> Flow:
    """Return the log-in that this browser has begun, and that the state is of."""
    for name in _ONCE:
        if len(request.query_params.getlist(name)) > 1:
            raise UnauthenticatedError(f"the answer has two of {name}; {_AGAIN}")
    flow = flows.flow_of(request.cookies.get(_cookie(provider)))
    if flow is None or not flow.is_of(state):
        raise UnauthenticatedError(
            "this browser has not begun this log-in, or has begun another since, or more than ten"
            f" minutes ago; {_AGAIN}"
        )
    return flow


async def _identity(
    request: Request, provider: Provider, flow: Flow, code: str, issuer: str | None
) -> Identity:
    """Ask the provider; an answer that is not trusted stands in the audit."""
    engine = request.app.state.engine
    asks = {"address": address_of(request), "request": request_id(request)}
    try:
        return await provider.identity(flow, code, issuer)
    except ProviderError as error:
        await run_in_threadpool(identities.refuse, engine, str(error), **asks)
        raise
    except ServiceUnreachableError:
        await run_in_threadpool(log_ins.take_back_try, engine, asks["address"])
        raise
