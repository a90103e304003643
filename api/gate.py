"""The gate before all routes: an id for each request, its address, host's name and size."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from fastapi import Request, Response

from api.browsers import reads_page
from api.marking import marked
from api.peers import PEER, PeerAccount
from api.problems import TooManyError, on_scheduler_error, problem
from api.reach import NotThroughProxyError, Reach

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY: Final = 10_000_000
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Gate:
    """Lets a request to the application behind it, if its host and its size are right."""

    def __init__(
        self, app: Application, *, page_of: Callable[[Request, Response], Response]
    ) -> None:
        """`page_of` makes a page of a problem, for a browser."""
        self._app = app
        self._page_of = page_of
        self._of_proxies: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = os.urandom(16).hex()
        scope.setdefault("state", {})["request_id"] = name

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                named = {each for each, _ in own}  # A page says itself what it may load.
                message["headers"] = [
                    *own,
                    (b"x-request-id", name.encode()),
                    *(pair for pair in _HEADERS if pair[0] not in named),
                ]
            await send(message)

        fault = _fault(scope)
        if fault is not None:
            await self._refusal(scope, problem(Request(scope), *fault))(scope, receive, answer)
            return
        with self._counted(scope) as has_place:
            if has_place:
                await self._app(scope, _limited(receive), answer)
            else:
                refused = TooManyError(
                    marked("your address has too many open requests; try again later")
                )
                told = on_scheduler_error(Request(scope), refused)
                await self._refusal(scope, told)(scope, receive, answer)

    def _refusal(self, scope: Scope, told: Response) -> Response:
        request = Request(scope)
        if reads_page(request.url.path, request.headers):
            return self._page_of(request, told)
        return told

    @contextmanager
    def _counted(self, scope: Scope) -> Iterator[bool]:
        """Count a request in progress of a client behind a proxy; yield False at the limit.

        Clients behind a proxy share its connections, so `api.connections` can't count them.
        """
        client = scope.get("client")
        if client is None or "proxied" not in scope["state"]:
            yield True
            return
        most = scope["app"].state.config.api.connections_per_address
        has_place = not most or self._of_proxies[client[0]] < most
        self._of_proxies[client[0]] += has_place
        try:
            yield has_place
        finally:
            self._of_proxies[client[0]] -= has_place
            if not self._of_proxies[client[0]]:
                del self._of_proxies[client[0]]


def _fault(scope: Scope) -> tuple[str, str] | None:
    """Return the reason to refuse a request; set the address that it comes from."""
    reach: Reach = scope["app"].state.reach
    if not reach.is_own(_lines(scope, b"host")):
        return "host", marked("the name in the Host header is none of this server's")
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if not length.isdigit() or int(length[:20]) > LARGEST_BODY:
        return "too-large", marked("the body has more than 10 MB")
    if reach.proxies is not None:
        peer = scope.get("client")
        # Without these lines the request is one of a program on this computer.
        forwarded = _lines(scope, b"x-forwarded-for") if _may_forward(scope, reach) else []
        try:
            client = reach.client_of(
                None if peer is None else peer[0],
                forwarded,
                _lines(scope, b"x-forwarded-proto"),
            )
        except NotThroughProxyError as error:
            return "forbidden", str(error)
        if peer is not None and reach.is_proxy(peer[0]) and forwarded:
            scope["scheme"] = "https"  # `client_of` requires HTTPS to the proxy or to us.
            scope["state"]["proxied"] = True
        scope["client"] = None if client is None else (client, 0)
    return None


def _may_forward(scope: Scope, reach: Reach) -> bool:
    """Return False for a program on this computer with another account than a proxy."""
    peer, own = scope.get("client"), scope.get("server")
    if peer is None or own is None or not reach.is_proxy(peer[0]):
        return True  # `client_of` believes no headers of such a peer.
    known: PeerAccount = scope["state"].get(PEER) or PeerAccount(tuple(peer), tuple(own))
    return not known.is_local or known.uid in reach.proxy_uids


def _lines(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _limited(receive: Receive) -> Receive:
    """Cut off a body without a length where it gets too large; what is left is no JSON."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > LARGEST_BODY:
                return {"type": "http.request", "body": b"", "more_body": False}
        return message

    return limited
