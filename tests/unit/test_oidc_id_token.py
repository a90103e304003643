"""ID tokens: one that is right in everything is taken, and no other, whatever is wrong with it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, RSAKey

from api.oidc.id_token import Claims, UnknownKeyError, UntrustworthyError, checked

NOW = datetime(2013, 1, 1, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
ISSUER, CLIENT, NONCE = "https://login.example", "orcaflow", "n" * 43
CLAIMS: Mapping[str, Any] = {
    "iss": ISSUER,
    "sub": "s-1",
    "aud": CLIENT,
    "iat": SECONDS,
    "exp": SECONDS + 300,
    "nonce": NONCE,
    "preferred_username": "ada",
    "groups": ["data", 7, "ops"],
}


@cache
def rsa(number: int, bits: int = 2048) -> RSAKey:
    return RSAKey.generate_key(bits)


@cache
def ec() -> ECKey:
    return ECKey.generate_key("P-256")


def published(key: RSAKey | ECKey, kid: str | None = "k", **parts: Any) -> dict[str, Any]:
    named = {} if kid is None else {"kid": kid}
    return {**key.as_dict(private=False), "use": "sig", **named, **parts}


def a_token(key: Any = None, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
    """A token; a claim or a part of the header that is None is left out."""
    head = {"alg": "RS256", "kid": "k", **(header or {})}
    roomy = jws.JWSRegistry(algorithms=[head["alg"]], strict_check_header=False)
    roomy.max_header_length = 10_000
    return jwt.encode(
        {name: value for name, value in head.items() if value is not None},
        {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None},
        key or rsa(0),
        registry=roomy,
    )


def look(token: str, *keys: Mapping[str, Any]) -> Claims:
    return checked(
        token,
        keys or (published(rsa(0)),),
        issuer=ISSUER,
        client_id=CLIENT,
        nonce=NONCE,
        now=NOW,
    )


def by_hand(header: Mapping[str, Any], signature: str = "") -> str:
    parts = [json.dumps(each).encode() for each in (header, CLAIMS)]
    encoded = [base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts]
    return ".".join([*encoded, signature])


def signed_by_the_public_key() -> str:
    """The classic confusion: the public key is taken for a shared secret."""
    token = by_hand({"alg": "HS256", "kid": "k"})
    secret = rsa(0).as_pem(private=False)
    digest = hmac.new(secret, token.rstrip(".").encode(), hashlib.sha256).digest()
    return token + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def test_a_token_that_is_right_in_everything_is_taken() -> None:
    found = look(a_token())
    assert (found.subject, found.text("preferred_username")) == ("s-1", "ada")
    assert found.texts("groups") == ("data", "ops")
    assert (found.text("groups"), found.texts("sub"), found.texts("none")) == (None, ("s-1",), ())


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (lambda: a_token(header={"alg": "PS384"}), lambda: (published(rsa(0)),)),
        (
            lambda: a_token(ec(), {"alg": "ES256"}),
            lambda: (published(rsa(0)), published(ec())),
        ),
        (lambda: a_token(header={"kid": None}), lambda: (published(rsa(0), None),)),
        (lambda: a_token(header={"x-more": "y" * 600}), lambda: (published(rsa(0)),)),
        (lambda: a_token(aud=[CLIENT, "other"], azp=CLIENT), lambda: (published(rsa(0)),)),
        (lambda: a_token(exp=SECONDS - 59), lambda: (published(rsa(0)),)),
        (
            lambda: a_token(rsa(1)),
            lambda: (published(rsa(0), use="enc"), published(rsa(0), alg="RS512"),
                     published(rsa(1))),
        ),
    ],
    ids=["PS384", "ES256", "no-kid", "more-header", "two-audiences", "leeway", "key-for-signing"],
)  # fmt: skip
def test_so_is_one_of_other_providers(
    make: Callable[[], str], keys: Callable[[], tuple[dict[str, Any], ...]]
) -> None:
    assert look(make(), *keys()).subject == "s-1"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://evil.example"}, "iss"),
        ({"iss": ISSUER + "/"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "aud"),
        ({"aud": ["other"]}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": {CLIENT: 1}}, "aud"),
        ({"aud": [CLIENT, "other"]}, "azp"),
        ({"azp": "other"}, "azp"),
        ({"exp": SECONDS - 61}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": float("inf")}, "exp"),
        ({"iat": SECONDS - 601}, "iat"),
        ({"iat": SECONDS + 61}, "iat"),
        ({"iat": None}, "iat"),
        ({"nbf": SECONDS + 61}, "nbf"),
        ({"nonce": "m" * 43}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"nonce": [NONCE]}, "nonce"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "x" * 256}, "sub"),
        ({"sub": "a\nb"}, "sub"),
        ({"sub": 7}, "sub"),
    ],
)
def test_a_claim_that_is_wrong_is_named(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(UntrustworthyError, match=rf"\({reason}\)"):
        look(a_token(**claims))


@pytest.mark.parametrize(
    "make",
    [
        lambda: by_hand({"alg": "none"}),
        lambda: by_hand({"alg": "None", "kid": "k"}),
        lambda: by_hand({"kid": "k"}),
        lambda: by_hand({"alg": ["RS256"], "kid": "k"}),
        lambda: by_hand({"alg": "RS256", "kid": "k"}),
        lambda: by_hand({"alg": "RS256", "kid": "k"}, "AAAA"),
        signed_by_the_public_key,
        lambda: a_token(rsa(1)),
        lambda: a_token(rsa(1), {"jwk": rsa(1).as_dict(private=False)}),
        lambda: a_token(ec(), {"alg": "ES256"}),
        lambda: a_token()[:-4] + "AAAA",
        lambda: a_token().rpartition(".")[0],
        lambda: a_token() + ".x",
        lambda: "x" * 200_000,
        lambda: "ä.ö.ü",
        lambda: "",
    ],
)
def test_a_token_that_the_providers_key_has_not_signed_is_refused(make: Callable[[], str]) -> None:
    with pytest.raises(UntrustworthyError):
        look(make())


def test_a_part_of_the_header_that_must_be_understood_is_refused() -> None:
    token = by_hand({"alg": "RS256", "kid": "k", "crit": ["exp"], "exp": 1}, "AAAA")
    with pytest.raises(UntrustworthyError, match=r"Crit|Header"):
        look(token)


@pytest.mark.filterwarnings("ignore:Key size should be")
def test_a_key_that_is_not_known_is_told_from_a_lie_and_none_is_guessed() -> None:
    with pytest.raises(UnknownKeyError):
        look(a_token(header={"kid": "newer"}))
    two = (published(rsa(0), "a"), published(rsa(1), "b"))
    with pytest.raises(UntrustworthyError, match="with which"):
        look(a_token(header={"kid": None}), *two)
    with pytest.raises(UntrustworthyError, match="too short"):
        look(a_token(rsa(0, 1024)), published(rsa(0, 1024)))
    broken = {"kty": "RSA", "kid": "k"}
    with pytest.raises(UntrustworthyError, match="KeyError"):
        look(a_token(), broken)
