"""The program behind HTTP tasks: one request, its redirects, and the check of the answer.

TERM simply ends it: the operating system closes its connections at once. Certificates are always
verified. On every hop a host's name is resolved once, all of its addresses are judged
(`common.destinations`), and the connection goes to one of them, so that neither a redirect nor a
name server can lead where tasks may not go.
"""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import certifi
import httpcore

from common.destinations import Destinations, destinations
from common.masking import MASK, is_secret, mask_text
from common.runtime.spared_imports import absent
from worker.runners.job import Job, JobError, done, read_job

with absent("click"):  # Its own command line would take a third of a task's start.
    import httpx

_KEPT_BYTES = 10 * 1024 * 1024
_LOGGED_BYTES = 64 * 1024
_MOST_REDIRECTS = 5


class _Answer:
    """An answer, with as much of its body as is kept."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.phrase = response.reason_phrase
        self.headers = response.headers
        self.is_whole = True
        kept = bytearray()
        for chunk in response.iter_bytes(64 * 1024):
            kept += chunk
            if len(kept) > _KEPT_BYTES:
                self.is_whole = False
                del kept[_KEPT_BYTES:]
                break
        self.body_bytes = len(kept)
        try:
            self.body = kept.decode(response.charset_encoding or "utf-8", "replace")
        except LookupError:
            self.body = kept.decode("utf-8", "replace")


def main() -> int:
    return done(read_job(), work)


def work(job: Job) -> None:
    document = job.document
    started = time.monotonic()
    try:
        answer = _answer(job)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise JobError(f"{document['method']} {_shown(document['url'])}: {_cause(error)}") from None
    milliseconds = 1000 * (time.monotonic() - started)
    size = f"{answer.body_bytes:,} bytes" + ("" if answer.is_whole else " and more")
    job.say(f"{answer.status} {answer.phrase}, {milliseconds:.0f} ms, {size}")
    for name, value in answer.headers.items():
        job.say(f"  {name}: {MASK if is_secret(name) else value}")
    if answer.body:
        job.say(answer.body[:_LOGGED_BYTES])
        if len(answer.body) > _LOGGED_BYTES:
            job.say(f"… the first {_LOGGED_BYTES:,} characters of the body")
    _check(document["check"], document["condition"], answer)
    values = {"response": answer.body, "status": str(answer.status)}
    values[document["response_name"]] = answer.body
    job.put_out({name: value for name, value in values.items() if name in job.outputs})


def _answer(job: Job) -> _Answer:
    document = job.document
    timeout = httpx.Timeout(
        document["socket_timeout_ms"] / 1000, connect=document["connect_timeout_ms"] / 1000
    )
    headers = [tuple(each) for each in document["headers"]]
    content = document.get("content")
    if content is not None:
        content = content.encode("utf-8", "replace")
        if all(name.lower() != "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/json"))
    # Proxies and the like of whoever started the daemon are not the task's.
    with httpx.Client(transport=_transport(document), timeout=timeout, trust_env=False) as client:
        request = client.build_request(
            document["method"],
            document["url"],
            headers=headers,
            json=document["body"],
            content=content,
        )
        if document["query"]:
            request.url = request.url.copy_merge_params(
                httpx.QueryParams([tuple(each) for each in document["query"]])
            )
        own = {name.lower() for name, _ in document["headers"]}
        for _ in range(_MOST_REDIRECTS + 1):
            job.say(f"{request.method} {_shown(str(request.url))}")
            response = client.send(request, stream=True)
            try:
                following = response.next_request
                if following is None:
                    return _Answer(response)
            finally:
                response.close()
            request = _redirected(request, following, own)
        raise JobError(f"more than {_MOST_REDIRECTS} redirects")


def _redirected(before: httpx.Request, request: httpx.Request, own: Iterable[str]) -> httpx.Request:
    if request.url.scheme not in ("http", "https"):
        raise JobError(f"redirected to {request.url.scheme[:20]}://, which is not followed")
    if before.url.scheme == "https" and request.url.scheme == "http":
        raise JobError("redirected from https to http, which is not followed")
    if (before.url.scheme, before.url.host, before.url.port) != (
        request.url.scheme,
        request.url.host,
        request.url.port,
    ):
        # What was meant for one server may be a key, and is nobody else's.
        for name in own:
            request.headers.pop(name, None)
        request.headers["Host"] = request.url.netloc.decode("ascii")
    return request


def _transport(document: Mapping[str, Any]) -> httpx.HTTPTransport:
    trusted = ssl.create_default_context()
    if not trusted.get_ca_certs():
        # Not every system has certificates of its own.
        trusted.load_verify_locations(certifi.where())
    transport = httpx.HTTPTransport(verify=trusted)
    reachable = destinations(allowed=document["allowed"], denied=document["denied"])
    transport._pool = httpcore.ConnectionPool(  # noqa: SLF001  # httpx has no parameter for it.
        ssl_context=trusted, network_backend=GuardedNetwork(reachable)
    )
    return transport


class GuardedNetwork(httpcore.SyncBackend):
    """Connects to an address that was looked up and checked, never to a name."""

    def __init__(
        self, reachable: Destinations, *, resolve: Callable[..., Sequence[Any]] = socket.getaddrinfo
    ) -> None:
        self._reachable = reachable
        self._resolve = resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = self._resolve(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"{host}: {error.strerror}") from error
        addresses = tuple(dict.fromkeys(str(each[4][0]) for each in found))
        # All of them first: a name that also stands for a forbidden place is not to be trusted.
        for address in addresses:
            if refusal := self._reachable.refusal(host, address):
                named = "" if host == address else f", an address of {host}"
                raise JobError(f"HTTP tasks may not connect to {address}{named}: {refusal}")
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


def _check(check: str, condition: str, answer: _Answer) -> None:
    match check:
        case "STATUS_CODE_DEFAULT" if answer.status != 200:
            raise JobError(f"the status is {answer.status}, not 200")
        case "STATUS_CODE_CUSTOM" if answer.status != int(condition):
            raise JobError(f"the status is {answer.status}, not {int(condition)}")
        case "BODY_CONTAINS" if condition not in answer.body:
            part = "" if answer.is_whole else f" in its first {_KEPT_BYTES:,} bytes"
            raise JobError(f"the body does not have {condition[:80]!r}{part}")
        case "BODY_NOT_CONTAINS" if condition in answer.body:
            raise JobError(f"the body has {condition[:80]!r}")
        case "BODY_NOT_CONTAINS" if not answer.body:
            raise JobError("the body is empty")
        case "BODY_NOT_CONTAINS" if not answer.is_whole:
            raise JobError(f"the body has more than {_KEPT_BYTES:,} bytes: not all was looked at")


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    query = "&".join(
        f"{name}={MASK if is_secret(name) else value}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    where = parts.netloc.rpartition("@")[2]
    return mask_text(f"{parts.scheme}://{where}{parts.path}{'?' if query else ''}{query}")


def _cause(error: Exception) -> str:
    match error:
        case httpx.ConnectTimeout():
            return "it took too long to connect (connectTimeout)"
        case httpx.TimeoutException():
            return "it took too long to answer (socketTimeout)"
        case _:
            return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
