"""The OpenID provider over HTTP: its description, its keys, and the exchange of a code.

Whatever is asked for one request takes four seconds at most, all of it together, and an answer is
cut off where it gets too large. Description and keys are kept for an hour; a key that is not among
them is looked for anew, every ten seconds at most. No redirect is followed, and no proxy or
credential of the environment is used.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus

from api.oidc.client import Client, is_safe_address
from api.oidc.flow import Flow, plain
from api.oidc.id_token import UnknownKeyError, UntrustworthyError, checked
from api.problems import ProviderError, TooManyError
from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.runtime.spared_imports import absent
from operations.identities import Identity

with absent("rich"):  # Its own command line would take a third of its memory.
    import httpx

LIMIT_SECONDS: Final = 4.0
_KEPT_SECONDS: Final = 3600.0
_SOONEST_SECONDS: Final = 10.0
_LARGEST: Final = 500_000
_MOST_AT_ONCE: Final = 8
_MOST_KEYS: Final = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    authorization: str
    token: str
    keys: str
    secret_in_header: bool
    names_itself: bool
    """It puts its name into each answer that browsers bring (RFC 9207)."""


class Provider:
    """The provider of one server. Its methods belong to the server's event loop."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client: Final = client
        self.limit_seconds = LIMIT_SECONDS
        self._clock = clock
        self._description: _Description | None = None
        self._described_at = 0.0
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._keys_at: float | None = None
        self._busy = 0

    async def authorization_url(self, flow: Flow) -> str:
        """Return the address at the provider by which a browser begins this log-in."""
        async with self._limited():
            described = await self._described()
        return str(
            httpx.URL(described.authorization).copy_merge_params(
                {
                    "response_type": "code",
                    "client_id": self.client.client_id,
                    "redirect_uri": self.client.redirect_uri,
                    "scope": self.client.scopes,
                    "state": flow.state,
                    "nonce": flow.nonce,
                    "code_challenge": flow.challenge,
                    "code_challenge_method": "S256",
                }
            )
        )

    async def identity(self, flow: Flow, code: str, issuer: str | None) -> Identity:
        """Exchange the code of a log-in, and return whom the ID token names.

        `issuer` is the provider's name in the browser's answer, if it has one. `ProviderError` for
        what is not as it has to be, `ServiceUnreachableError` for a provider that does not answer.
        """
        async with self._limited():
            described = await self._described()
            if issuer != self.client.issuer and (issuer is not None or described.names_itself):
                # Its code must not be shown to ours.
                raise self._untrusted("the answer is another provider's (iss)")
            token = await self._exchanged(described, flow, code)
            try:
                claims = await self._checked(described, flow, token)
            except UntrustworthyError as error:
                raise self._untrusted(f"its ID token is not to be trusted: {error}") from error
        return Identity(
            issuer=self.client.issuer,
            subject=claims.subject,
            name=claims.text(self.client.name_claim),
            groups=claims.texts(self.client.groups_claim),
        )

    async def _checked(self, described: _Description, flow: Flow, token: str) -> Any:
        given = {
            "issuer": self.client.issuer,
            "client_id": self.client.client_id,
            "nonce": flow.nonce,
        }
        now = self._clock.now()
        keys = await self._known_keys(described, older_than=_KEPT_SECONDS)
        try:
            return checked(token, keys, now=now, **given)
        except UnknownKeyError:
            keys = await self._known_keys(described, older_than=_SOONEST_SECONDS)
            return checked(token, keys, now=now, **given)

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        if self._busy >= _MOST_AT_ONCE:
            raise TooManyError("many log in at this moment; try again in a second", retry_after=1)
        self._busy += 1
        try:
            async with asyncio.timeout(self.limit_seconds):
                yield
        except (TimeoutError, httpx.TransportError, httpx.InvalidURL) as error:
            # Its own text may hold addresses with parameters.
            cause = (
                f"within {self.limit_seconds:g} s"
                if isinstance(error, TimeoutError | httpx.TimeoutException)
                else f"({type(error).__name__})"
            )
            log.warning("login provider is away", extra={"cause": cause})
            raise ServiceUnreachableError(
                f"the login provider {self.client.issuer} does not answer {cause}; try again"
            ) from error
        finally:
            self._busy -= 1

    async def _described(self) -> _Description:
        now = self._clock.monotonic()
        if self._description is not None and now - self._described_at < _KEPT_SECONDS:
            return self._description
        issuer = self.client.issuer
        found = await self._asked(
            "GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration", "its description"
        )
        if found.get("issuer") != issuer:
            raise self._untrusted(
                f"it calls itself {found.get('issuer')!r:.200}, and oidc.issuer has to be exactly"
                " that"
            )
        ways = found.get("token_endpoint_auth_methods_supported")
        self._description = _Description(
            authorization=self._address(found, "authorization_endpoint"),
            token=self._address(found, "token_endpoint"),
            keys=self._address(found, "jwks_uri"),
            # Without a list it is in the header: OpenID Connect Discovery, section 3.
            secret_in_header=not isinstance(ways, list) or "client_secret_basic" in ways,
            names_itself=found.get("authorization_response_iss_parameter_supported") is True,
        )
        self._described_at = now
        return self._description

    def _address(self, found: Mapping[str, Any], name: str) -> str:
        url = found.get(name)
        # One on loopback is for a provider that is there itself.
        or_loopback = self.client.issuer.startswith("http:")
        if not isinstance(url, str) or not is_safe_address(url, or_loopback=or_loopback):
            raise self._untrusted(f"its description has no https address as {name}")
        return url

    async def _known_keys(
        self, described: _Description, *, older_than: float
    ) -> Sequence[Mapping[str, Any]]:
        """Return the provider's keys, asked for anew if those at hand are older than this."""
        now = self._clock.monotonic()
        if self._keys_at is None or now - self._keys_at >= older_than:
            found = (await self._asked("GET", described.keys, "its keys")).get("keys")
            if not isinstance(found, list):
                raise self._untrusted("its keys are no list")
            self._keys = [each for each in found[:_MOST_KEYS] if isinstance(each, dict)]
            self._keys_at = now
        return self._keys

    async def _exchanged(self, described: _Description, flow: Flow, code: str) -> str:
        """Return the ID token for a code; it is not checked yet."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.client.redirect_uri,
            "code_verifier": flow.verifier,
            "client_id": self.client.client_id,
        }
        auth: httpx.BasicAuth | None = None
        if self.client.client_secret is not None:
            if described.secret_in_header:
                # Both parts are form-encoded first: RFC 6749, section 2.3.1.
                auth = httpx.BasicAuth(
                    quote_plus(self.client.client_id), quote_plus(self.client.client_secret)
                )
                del form["client_id"]
            else:
                form["client_secret"] = self.client.client_secret
        found = await self._asked(
            "POST", described.token, "the exchange of the code", form=form, auth=auth
        )
        token = found.get("id_token")
        if not isinstance(token, str):
            raise self._untrusted("it gave no ID token")
        return token

    async def _asked(
        self,
        method: str,
        url: str,
        what: str,
        *,
        form: Mapping[str, str] | None = None,
        auth: httpx.BasicAuth | None = None,
    ) -> Mapping[str, Any]:
        """Return the JSON object that the provider answers with."""
        async with (
            httpx.AsyncClient(
                verify=self.client.tls,
                trust_env=False,
                follow_redirects=False,
                timeout=self.limit_seconds,
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            ) as http,
            http.stream(method, url, data=form, auth=auth) as answer,
        ):
            content = b""
            async for part in answer.aiter_raw():
                content += part
                if len(content) > _LARGEST:
                    raise self._untrusted(f"{what}: the answer is too large")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if answer.status_code != httpx.codes.OK:
            word = found.get("error") if isinstance(found, dict) else None
            known = f", {plain(word)}" if isinstance(word, str) else ""
            raise self._untrusted(f"{what}: it answered {answer.status_code}{known}")
        if not isinstance(found, dict):
            raise self._untrusted(f"{what}: the answer is no JSON object")
        return found

    def _untrusted(self, reason: str) -> ProviderError:
        log.warning("login provider was not trusted", extra={"cause": reason})
        return ProviderError(f"the login provider {self.client.issuer}: {reason}")
