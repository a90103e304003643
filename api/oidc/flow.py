"""The secret of one log-in at a provider, which its browser alone has, in a cookie.

State, nonce and the verifier of PKCE are derived from it, so that the server keeps nothing and any
api-server may end a log-in that another has begun. A page of another origin can't know the secret,
nor put a cookie with this name's prefix there, so it can't have its own log-in ended here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

GOOD_FOR_SECONDS: Final = 600
_RANDOM_BYTES: Final = 32
_WORD: Final = re.compile(r"[a-z_ ]{1,50}")
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Flow:
    """A log-in that has begun and not ended."""

    secret: str = field(repr=False)

    @property
    def state(self) -> str:
        return self._derived("state")

    @property
    def nonce(self) -> str:
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        return _text(hashlib.sha256(self.verifier.encode()).digest())

    def is_of(self, state: str) -> bool:
        """Return True for the state of this log-in."""
        return hmac.compare_digest(self.state.encode(), state.encode("utf-8", "replace"))

    def _derived(self, purpose: str) -> str:
        return _text(
            hmac.new(self.secret.encode(), f"oidc {purpose}".encode(), hashlib.sha256).digest()
        )


def new_flow() -> Flow:
    return Flow(secrets.token_urlsafe(_RANDOM_BYTES))


def flow_of(cookie: str | None) -> Flow | None:
    """Return the log-in of a cookie; None if it is none."""
    return Flow(cookie) if cookie is not None and _FORM.fullmatch(cookie) else None


def cookie_name(redirect_uri: str) -> str:
    """Return the cookie's name: with https, one that no neighbouring host can set."""
    return ("__Host-" if redirect_uri.startswith("https:") else "") + "orcaflow_oidc"


def plain(word: str) -> str:
    """Return a provider's word for what is wrong, if it is a plain one: anybody may have put it."""
    return word if _WORD.fullmatch(word) else "an error"


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
