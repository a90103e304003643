"""Checks an ID token: who signed it, with what, for whom, when, and for which log-in.

It asks nobody and keeps nothing: keys and the time are arguments, the arithmetic is joserfc's.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry

from operations.identities import LONGEST_SUBJECT

ALGORITHMS: Final[Mapping[str, str]] = {
    **{f"{family}{bits}": "RSA" for family in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"ES{bits}": "EC" for bits in (256, 384, 512)},
}
"""The algorithms that are taken, with the kind of their keys: none of them has a shared secret."""
LEEWAY_SECONDS: Final = 60
LONGEST_SECONDS: Final = 600
"""An ID token is new: it was made for the log-in that is about to end."""
_LEAST_RSA_BITS: Final = 2048
_LARGEST: Final = 100_000
_LARGEST_HEADER: Final = 8_000
_MOST_GROUPS: Final = 1_000


class UntrustworthyError(Exception):
    """The token is none of this log-in's; the text says why, and repeats no claim of it."""


class UnknownKeyError(UntrustworthyError):
    """It names a key that is not among these: perhaps there is a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a token that was checked."""

    subject: str
    every: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        value = self.every.get(name)
        return value if isinstance(value, str) else None

    def texts(self, name: str) -> tuple[str, ...]:
        """A claim that is a text or a list of them; others are left out."""
        value = self.every.get(name)
        found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        return tuple(each for each in found[:_MOST_GROUPS] if isinstance(each, str))


def checked(
    token: str,
    keys: Sequence[Mapping[str, Any]],
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    now: datetime,
) -> Claims:
    """Return the claims of a token that is right in everything; else `UntrustworthyError`."""
    if len(token) > _LARGEST:
        raise UntrustworthyError("it is too large")
    try:
        registry = _registry()
        header = jws.extract_compact(token.encode("ascii"), registry=registry).headers()
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise UntrustworthyError(
                f"it is signed by {algorithm!r:.20}, and not by one of {', '.join(ALGORITHMS)}"
            )
        key = _key_of(header, algorithm, keys)
        claims = jwt.decode(token, key, registry=registry).claims
    except (JoseError, ValueError, TypeError, KeyError) as error:
        # Their texts may repeat parts of the token.
        raise UntrustworthyError(
            f"its signature or its form is wrong ({type(error).__name__})"
        ) from error
    _check_parties(claims, issuer=issuer, client_id=client_id)
    _check_times(claims, now.timestamp())
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(
        given.encode("utf-8", "replace"), nonce.encode()
    ):
        raise UntrustworthyError("it was made for another log-in (nonce)")
    subject = claims.get("sub")
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= LONGEST_SUBJECT
        or not subject.isprintable()
    ):
        raise UntrustworthyError("it names nobody (sub)")
    return Claims(subject=subject, every=claims)


def _check_parties(claims: Mapping[str, Any], *, issuer: str, client_id: str) -> None:
    if claims.get("iss") != issuer:
        raise UntrustworthyError("another provider has issued it (iss)")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or client_id not in audiences:
        raise UntrustworthyError("it is for another client (aud)")
    authorized = claims.get("azp")
    if authorized != client_id and (authorized is not None or len(audiences) > 1):
        raise UntrustworthyError("another client has asked for it (azp)")


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    if _seconds(claims, "exp") <= now - LEEWAY_SECONDS:
        raise UntrustworthyError("it has expired (exp)")
    made = _seconds(claims, "iat")
    if not now - LONGEST_SECONDS <= made <= now + LEEWAY_SECONDS:
        raise UntrustworthyError("it was not made just now (iat); compare both computers' clocks")
    if "nbf" in claims and _seconds(claims, "nbf") > now + LEEWAY_SECONDS:
        raise UntrustworthyError("it is not good yet (nbf)")


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UntrustworthyError(f"it has no moment ({name})")
    return float(value)


def _key_of(header: Mapping[str, Any], algorithm: str, keys: Sequence[Mapping[str, Any]]) -> Any:
    """Choose the provider's key for a signature, never one that the token itself brings."""
    kind, name = ALGORITHMS[algorithm], header.get("kid")
    fitting = [
        each
        for each in keys
        if each.get("kty") == kind
        and each.get("use", "sig") == "sig"
        and each.get("alg", algorithm) == algorithm
        and (name is None or each.get("kid") == name)
    ]
    if not fitting:
        raise UnknownKeyError("it is signed with a key that the provider does not have")
    if len(fitting) > 1:
        raise UntrustworthyError("it does not say with which of the provider's keys it is signed")
    # The public parts alone, and no limits of use, which were looked at.
    parts = ("kty", "n", "e") if kind == "RSA" else ("kty", "crv", "x", "y")
    key: Any = JWKRegistry.import_key({part: fitting[0][part] for part in parts})
    if kind == "RSA" and key.raw_value.key_size < _LEAST_RSA_BITS:
        raise UntrustworthyError("the provider's key is too short")
    return key


def _registry() -> jws.JWSRegistry:
    # Parts of the header that nobody knows are no mistakes; those that `crit` names are.
    made = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
    made.max_header_length = _LARGEST_HEADER  # Some providers put certificates there.
    return made
