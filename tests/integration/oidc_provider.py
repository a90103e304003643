"""An OpenID provider on loopback for tests: real keys, real codes, and lies where a test wants some."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "orcaflow", "s3cret of the client+"


@dataclass
class Person:
    """The one who sits before the browser."""

    subject: str = "s-1"
    name: str | None = "ada"
    groups: list[str] | None = None


@dataclass
class Lies:
    """Differences from an honest provider; what is not set is honest."""

    description: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    returned: dict[str, str] = field(default_factory=dict)
    """Parameters with which it sends the browser back."""
    token: Callable[[str], str] | None = None
    codes_are_good_again: bool = False
    bodies: dict[str, bytes] = field(default_factory=dict)
    """Whole answers by path."""


class Provider:
    """It logs in whoever comes, as `person`, and gives what the protocol says for it."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.person = Person()
        self.lies = Lies()
        self.key: RSAKey = key(0)
        self.key_id = "first"
        self.client_secret: str | None = SECRET
        self.asked: list[str] = []
        self.silent = threading.Event()
        """While it is set, nothing is answered."""
        self._spoken = threading.Event()
        self._codes: dict[str, dict[str, str]] = {}
        self._now = now
        provider = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length).decode()
                provider.asked.append(self.path)
                if provider.silent.is_set():
                    provider._spoken.wait()
                    self.close_connection = True
                    return
                status, content = provider._answer(self.path, body, dict(self.headers.items()))
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if status == 302:
                    self.send_header("Location", provider.url + "/jwks")
                self.end_headers()
                try:
                    self.wfile.write(content)
                except OSError:
                    return

            def log_message(self, *_: object) -> None:
                return

        for method in ("GET", "POST"):
            setattr(Answers, f"do_{method}", Answers.answer)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._spoken.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def rotate(self) -> None:
        """Sign with another key from now on, and forget the one of before."""
        self.key, self.key_id = key(1), "second"

    def visited(self, location: str) -> str:
        """A browser is sent here and logs in: the query with which it is sent back."""
        given = dict(parse_qsl(urlsplit(location).query))
        assert given["response_type"] == "code"
        assert given["client_id"] == CLIENT
        assert given["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = given
        return urlencode({"code": code, "state": given["state"]} | self.lies.returned)

    def _answer(self, path: str, body: str, headers: dict[str, str]) -> tuple[int, bytes]:
        if (content := self.lies.bodies.get(path)) is not None:
            return (302, b"") if content == b"elsewhere" else (200, content)
        match path:
            case "/.well-known/openid-configuration":
                found: dict[str, Any] = {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize?kind=person",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/jwks",
                } | self.lies.description
            case "/jwks":
                public = self.key.as_dict(private=False) | {"kid": self.key_id, "use": "sig"}
                found = {"keys": [{"kty": "oct", "k": "AAAA", "kid": "first"}, public]}
            case "/token":
                return self._exchanged(dict(parse_qsl(body)), headers)
            case _:
                return 404, b"nothing here"
        return 200, json.dumps(found).encode()

    def _exchanged(self, form: dict[str, str], headers: dict[str, str]) -> tuple[int, bytes]:
        if self.client_secret is None:
            known = "Authorization" not in headers and form.get("client_id") == CLIENT
        elif "client_secret" in form:
            known = (form["client_id"], form["client_secret"]) == (CLIENT, self.client_secret)
        else:
            given = headers.get("Authorization", "").removeprefix("Basic ")
            name, _, secret = base64.b64decode(given).decode().partition(":")
            known = (unquote_plus(name), unquote_plus(secret)) == (CLIENT, self.client_secret)
        if not known:
            return 401, b'{"error": "invalid_client"}'
        code = form.get("code", "")
        asked = self._codes.get(code)
        if not self.lies.codes_are_good_again:
            self._codes.pop(code, None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form["redirect_uri"]
        ):
            return 400, b'{"error": "invalid_grant", "error_description": "<b>x</b>"}'
        return 200, json.dumps({"access_token": "a", "id_token": self._token(asked)}).encode()

    def _token(self, asked: dict[str, str]) -> str:
        now = int(self._now().timestamp())
        claims: dict[str, Any] = {
            "iss": self.url,
            "sub": self.person.subject,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
        }
        if self.person.name is not None:
            claims["preferred_username"] = self.person.name
        if self.person.groups is not None:
            claims["groups"] = self.person.groups
        claims |= self.lies.claims
        header = {"alg": "RS256", "kid": self.key_id} | self.lies.header
        text = jwt.encode(
            {name: value for name, value in header.items() if value is not None},
            {name: value for name, value in claims.items() if value is not None},
            self.key,
            algorithms=[str(header["alg"])],
        )
        return text if self.lies.token is None else self.lies.token(text)


@cache
def key(number: int) -> RSAKey:
    """One of the keys of all tests, which take time to make."""
    return RSAKey.generate_key(2048)


@contextmanager
def provider(now: Callable[[], datetime]) -> Iterator[Provider]:
    made = Provider(now)
    try:
        yield made
    finally:
        made.close()
