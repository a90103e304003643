"""Asks a manager's REST API, briefly and with suspicion; the only door to the network here.

Several addresses of one manager are tried in turn, the one that answered last before the others. A
redirect is never followed. One to another of these addresses selects that one as the next, and
`look` returns the target of any other to a caller that can check it. An answer that is cut off, too
slow, too long or of the wrong kind is an error. Errors repeat only the host of an address.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from common.runtime.spared_imports import absent
from worker.spark.managers.base import ManagerRefusedError, ManagerUnreachableError
from worker.spark.managers.line import Line

with absent("click"):  # Its own command line would take a third of a task's start.
    import httpx

_LARGEST_BYTES: Final = 64 * 1024 * 1024
_MISSING: Final = 404
_MOVED: Final = frozenset({302, 303, 307, 308})
_TOO_LONG: Final = "takes too long to answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The time that an answer may take, and the number of tries."""

    connect_seconds: float = 3.0
    read_seconds: float = 5.0
    whole_seconds: float = 10.0
    """Of one request: else a server that sends a byte now and then would hold us for ever."""
    tries: int = 3


PATIENT: Final = Limits()
HASTY: Final = Limits(connect_seconds=1.0, read_seconds=2.0, whole_seconds=3.0, tries=1)
"""For who is about to be killed, and asks again anyway."""
PAGE: Final = Limits(connect_seconds=1.0, read_seconds=8.0, whole_seconds=10.0, tries=1)
"""For a driver's own page: a driver complains in its log about whoever hangs up on it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer, found or not."""

    is_missing: bool
    body: bytes
    document: Any = None
    """The value of the JSON, if that was asked for and something was found."""
    location: str = ""
    """The target of a redirect, not checked; "" for other answers."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] | None = None
    form: Mapping[str, str] | None = None
    tail_bytes: int = 0
    """The bytes to keep of the end of a longer answer; with 0, one that is too long is none."""
    taken: frozenset[int] = frozenset()
    """Statuses that mean yes besides those from 200 to 299."""
    wants_json: bool = False


class _NoAnswerError(Exception):
    """One address gave none; the text says why, without the address."""


class Rest:
    """One manager's API at any of its addresses."""

    def __init__(
        self,
        bases: Sequence[str],
        *,
        limits: Limits = PATIENT,
        headers: Callable[[], Mapping[str, str]] = dict,
        ca_file: str = "",
        check: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """`headers` is asked before each request; `ca_file` replaces the system's certificates.

        `check` raises `OSError` for a new connection over which nothing may be sent.
        """
        self._bases = list(bases)
        self._limits = limits
        self._headers = headers
        self._ca_file = ca_file
        self._made: httpx.Client | None = None
        self._lines: defaultdict[str, Line] = defaultdict(lambda: Line(check))

    def json(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """Read JSON; tried again after a pause if nobody answers. What isn't there is no answer."""
        request = _Request(method="GET", path=path, params=params or {}, wants_json=True)
        return self._patiently(request).document

    def text(
        self, path: str, params: Mapping[str, str] | None = None, *, tail_bytes: int = 0
    ) -> str:
        """Read text, or the end of it; "" if there is none."""
        request = _Request(method="GET", path=path, params=params or {}, tail_bytes=tail_bytes)
        answer = self._patiently(request)
        return "" if answer.is_missing else answer.text

    def look(self, path: str, params: Mapping[str, str], tail_bytes: int) -> Answer:
        """Read the end of a text, or the target of a redirect."""
        return self._patiently(
            _Request(method="GET", path=path, params=params, tail_bytes=tail_bytes, taken=_MOVED)
        )

    def put(self, path: str, document: Mapping[str, Any], params: Mapping[str, str]) -> Answer:
        """Write JSON."""
        return self._patiently(_Request(method="PUT", path=path, document=document, params=params))

    def delete(self, path: str, document: Mapping[str, Any]) -> Answer:
        return self._patiently(_Request(method="DELETE", path=path, document=document))

    def post_form(self, path: str, form: Mapping[str, str]) -> Answer:
        """Send a form, as a page does; pages answer with a redirect to themselves."""
        taken = frozenset({302, 303})
        return self._patiently(_Request(method="POST", path=path, form=form, taken=taken))

    def _patiently(self, request: _Request) -> Answer:
        # Everything that is asked here may be asked twice.
        for attempt in Retrying(
            stop=stop_after_attempt(self._limits.tries)
            | stop_after_delay(self._limits.read_seconds),
            wait=wait_random_exponential(multiplier=0.1, max=1.0),
            retry=retry_if_exception_type(ManagerUnreachableError),
            reraise=True,
        ):
            with attempt:
                return self._anywhere(request)
        raise AssertionError

    def _anywhere(self, request: _Request) -> Answer:
        wrong: list[str] = []
        refused: list[str] = []
        waiting = list(self._bases)
        while waiting:
            base = waiting.pop(0)
            try:
                answer = self._send(base, request, waiting)
            except _NoAnswerError as error:
                wrong.append(f"{host_of(base)} {error}")
                continue
            except ManagerRefusedError as error:
                refused.append(str(error))
                continue
            self._bases.remove(base)
            self._bases.insert(0, base)
            return answer
        if refused:
            raise ManagerRefusedError("; ".join(refused))
        raise ManagerUnreachableError("; ".join(wrong) or "no address is known")

    def _send(self, base: str, request: _Request, waiting: list[str]) -> Answer:
        """Ask one address; a redirect to one that waits moves that one to the front."""
        line = self._lines[base]
        try:
            with (
                line.held_for(self._limits.whole_seconds),
                self._client().stream(
                    request.method,
                    base + request.path,
                    params=dict(request.params),
                    json=request.document,
                    data=request.form,
                    # A small answer could be unpacked to one that fills the memory.
                    headers={"Accept-Encoding": "identity", **self._headers()},
                    extensions={"trace": line.hear},
                ) as response,
            ):
                status = response.status_code
                if not (response.is_success or status in request.taken or status == _MISSING):
                    _complain(base, response, waiting)
                body = _body(response, request.tail_bytes)
        except httpx.TimeoutException:
            raise _NoAnswerError("does not answer") from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
            why = _TOO_LONG if line.was_cut else f"can't be asked: {_cause(error)}"
            raise _NoAnswerError(why) from None
        if line.was_cut:
            # An answer of unknown length looks whole when its connection ends.
            raise _NoAnswerError(_TOO_LONG)
        if status == _MISSING and request.wants_json:
            raise _NoAnswerError("does not have what was asked for")
        if not request.wants_json:
            location = str(response.headers.get("location", "")) if status in _MOVED else ""
            return Answer(is_missing=status == _MISSING, body=body, location=location)
        try:
            return Answer(is_missing=False, body=body, document=json.loads(body))
        except (ValueError, RecursionError):
            # A standby may well say in words that there is no active one.
            raise _NoAnswerError("answered something else than JSON") from None

    def _client(self) -> httpx.Client:
        if self._made is None:
            limits = self._limits
            self._made = httpx.Client(
                verify=_trusted(self._ca_file, self._bases),
                timeout=httpx.Timeout(limits.read_seconds, connect=limits.connect_seconds),
                # Proxies and the like of whoever started this are not the operator's word.
                trust_env=False,
                follow_redirects=False,
            )
        return self._made


def host_of(url: str) -> str:
    """The host and port of an address, for people."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _trusted(ca_file: str, bases: Sequence[str]) -> ssl.SSLContext | bool:
    if not any(base.startswith("https://") for base in bases):
        return False
    if ca_file:
        return ssl.create_default_context(cafile=ca_file)
    trusted = ssl.create_default_context()
    if trusted.get_ca_certs():
        return trusted
    return True  # Not every system has certificates of its own; httpx brings some.


def _complain(base: str, response: httpx.Response, waiting: list[str]) -> None:
    """Raise what a status means that isn't yes."""
    status = response.status_code
    if status in (401, 403):
        raise ManagerRefusedError(f"{host_of(base)} refuses to answer: status {status}")
    if not response.is_redirect:
        raise _NoAnswerError(f"answered with status {status}")
    target = str(response.headers.get("location", ""))
    for other in waiting:
        if host_of(other) == host_of(target):
            waiting.remove(other)
            waiting.insert(0, other)
            raise _NoAnswerError("is not the active one")
    raise _NoAnswerError(
        f"redirects to {host_of(target)[:80] or 'nowhere'}, which isn't configured"
    )


def _body(response: httpx.Response, tail_bytes: int) -> bytes:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _NoAnswerError("answered in an encoding that was not asked for")
    kept = bytearray()
    for chunk in response.iter_raw():
        kept += chunk
        if tail_bytes:
            del kept[:-tail_bytes]
        elif len(kept) > _LARGEST_BYTES:
            raise _NoAnswerError(f"answered with more than {_LARGEST_BYTES:,} bytes")
    return bytes(kept)


def _cause(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
