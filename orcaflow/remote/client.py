"""Requests to an api-server, and its answers as values or as the errors that operations raise.

A request is sent once: an order whose answer is lost may have been carried out, and says so.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from common.errors import (
    ConfigurationError,
    InvalidSpecError,
    NotAllowedError,
    NotFoundError,
    SchedulerError,
    ServiceUnreachableError,
)
from operations.errors import ForbiddenError, UsageError
from orcaflow.remote.contexts import Server

BASE: Final = "/api/v1"
Body: TypeAlias = Mapping[str, Any] | Sequence[Any]
PROJECT_HEADER: Final = "Orcaflow-Project"
_PATIENCE_SECONDS: Final = 30.0
_PAGE: Final = 500
_MAX_ANSWER: Final = 200_000_000
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class RefusedDefinitionError(SchedulerError):
    """Definitions have mistakes; `rows` has each with its place, as the server tells it."""

    def __init__(self, detail: str, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(detail)
        self.rows: Final = rows


class Client:
    """Sends requests with one token to one server."""

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(
                "server", f"{server.url!r:.200} is no address, as http://127.0.0.1:12345 is"
            )
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise UsageError(
                "server",
                "a token is sent to other hosts encrypted alone: take the address of the proxy"
                " with TLS, https://…",
            )
        self.url = server.url.rstrip("/")
        self._parts = parts
        self._token = server.token()
        self._tls = _tls(server) if parts.scheme == "https" else None
        self.project_id: int | None = None
        """The id of the project that requests are limited to; None for no limit."""

    def everywhere(self) -> Client:
        """Return a client of the same server without the limit to a project."""
        made = copy(self)
        made.project_id = None
        return made

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the document at a path below `/api/v1`; parameters that are None are left out."""
        return self._ask("GET", f"{path}{_asked(query)}", None)

    def post(
        self, path: str, body: Body | None = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        """Give an order, and return its answer."""
        return self._ask("POST", f"{path}{_asked(query)}", {} if body is None else body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change an object, whatever it is by now, and return its answer."""
        return self._ask("PATCH", path, body)

    def delete(self, path: str) -> Any:
        """Delete an object, whatever it is by now, and return its answer."""
        return self._ask("DELETE", path, None)

    def pages(self, path: str, query: Mapping[str, Any] | None = None) -> list[Any]:
        """Return all items of a list, which comes a page at a time."""
        found: list[Any] = []
        after: str | None = None
        while True:
            answer = self.get(path, {**(query or {}), "limit": _PAGE, "after": after})
            found += answer["items"]
            after = answer["next"]
            if after is None:
                return found

    def get_bytes(
        self, path: str, query: Mapping[str, Any]
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Return the bytes at a path, with the headers of the answer."""
        place = f"{path}?{urlencode(query)}"
        status, answer, headers = self._exchange("GET", place, None, accept="*/*")
        if status < 400:
            return answer, headers
        raise _error(self._document(status, answer), status, self.url)

    def version(self) -> str:
        """The version that the server is of; `unknown` if it does not say."""
        try:
            return str(self.get("/openapi.json")["info"]["version"])
        except (SchedulerError, KeyError, TypeError):
            return "unknown"

    def _ask(self, method: str, path: str, body: Body | None) -> Any:
        status, answer, _ = self._exchange(method, path, body, accept="application/json")
        document = self._document(status, answer)
        if status < 400:
            return document
        raise _error(document, status, self.url)

    def _document(self, status: int, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise SchedulerError(
                f"what answers at {self.url} is no api-server (status {status}); look at --server"
            ) from None

    def _exchange(
        self, method: str, path: str, body: Body | None, *, accept: str
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        if self.project_id is not None:
            headers[PROJECT_HEADER] = str(self.project_id)
        sent = None
        if method in ("PATCH", "DELETE") or path.endswith("/restore"):
            headers["If-Match"] = "*"
        if body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(body).encode()
        place = f"{self._parts.path.rstrip('/')}{BASE}{path}"
        try:
            return self._send(method, place, sent, headers)
        except (OSError, http.client.HTTPException) as error:
            unsure = (
                "" if method == "GET" else "; it may have carried the order out: look before you"
            )
            raise ServiceUnreachableError(
                f"no api-server answers at {self.url}: {str(error) or type(error).__name__}"
                + (f"{unsure} give it again" if unsure else "; is it started there?")
            ) from None

    def _send(
        self, method: str, place: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        host, port = self._parts.hostname or "", self._parts.port
        connection = (
            http.client.HTTPSConnection(host, port, timeout=_PATIENCE_SECONDS, context=self._tls)
            if self._tls is not None
            else http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
        )
        try:
            connection.request(method, place, body=body, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_ANSWER), answer.headers
        finally:
            connection.close()


def path_of(kind: str, name: str) -> str:
    """Return the path of an object that is addressed by its name."""
    return f"/{kind}/{quote(name, safe='')}"


def _asked(query: Mapping[str, Any] | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _tls(server: Server) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=server.ca_file or None)
    except OSError as error:  # An error of TLS is one, too.
        raise ConfigurationError(
            f"{server.ca_file}: no certificates can be read from it"
            f" ({error.strerror or type(error).__name__}); it is a file in PEM"
        ) from None


def _error(document: Any, status: int, url: str) -> SchedulerError:
    """Build the error that the operation raised there, from its problem document."""
    known = document if isinstance(document, dict) else {}
    detail = str(known.get("detail") or f"status {status}")
    match str(known.get("type", "")).rpartition("/")[2]:
        case "unauthenticated":
            return NotAllowedError(
                f"{url} refuses the token: {detail}; `orcaflow token create` makes another"
            )
        case "forbidden":
            return ForbiddenError(detail)
        case "not-found":
            return NotFoundError(detail)
        case "conflict":
            return NotAllowedError(detail)
        case "definition":
            rows = known.get("mistakes")
            return RefusedDefinitionError(detail, rows if isinstance(rows, list) else ())
        case "specification":
            mistakes = [str(each.get("message")) for each in known.get("mistakes") or ()]
            return InvalidSpecError(tuple(mistakes) or (detail,))
        case "invalid":
            return _usage_error(known.get("mistakes"), detail)
        case "unavailable":
            return ServiceUnreachableError(detail)
        case "":
            return SchedulerError(
                f"what answers at {url} is no api-server (status {status}); look at --server"
            )
        case _:
            request = known.get("request_id")
            return SchedulerError(f"{url}: {detail} (request {request})")


def _usage_error(mistakes: Any, detail: str) -> UsageError:
    found: Sequence[Any] = mistakes if isinstance(mistakes, list) else ()
    if len(found) == 1 and isinstance(found[0], dict):
        return UsageError(str(found[0].get("place")) or None, str(found[0].get("message")))
    return UsageError(None, detail)


def other_version(client: Client, ours: str) -> ConfigurationError:
    """Build the error for an answer that this version can't read."""
    return ConfigurationError(
        f"the api-server at {client.url} is of version {client.version()}, and this command of"
        f" {ours}: it can't read the answer; take the same version"
    )
