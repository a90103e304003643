"""Requests to the port of a worker, which is not believed: answers are bounded in size and time."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.clock import SystemClock
from common.errors import SchedulerError

_MOST_OF_REFUSAL: Final = 1000


class WorkerCallError(SchedulerError):
    """A worker does not answer as it should; the text names the worker and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer of a worker. The body has at most one byte more than was requested."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def reason(self) -> str:
        """The reason of a refusal."""
        try:
            return str(json.loads(self.body)["error"])[:300]
        except (ValueError, RecursionError, KeyError, TypeError):
            return f"HTTP {self.status}"


def call(
    address: str,
    target: str,
    *,
    allowed: str,
    most: int,
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> Answered:
    """Send a GET to a worker; `WorkerCallError` without an answer of HTTP in time.

    `allowed` is the token, and `most` the size of the largest body. `tls` verifies the worker's
    certificate and name; without it the port speaks no TLS.
    """
    until = SystemClock().monotonic() + seconds
    host, _, port = address.rpartition(":")
    try:
        connection = _connection(host.strip("[]"), int(port), seconds, tls)
        try:
            connection.request("GET", target, headers={"Authorization": allowed})
            with _in_time(connection.sock, until) as answering:
                response = http.client.HTTPResponse(answering, method="GET")
                response.begin()
                limit = most if response.status == http.client.OK else _MOST_OF_REFUSAL
                body = b""
                while len(body) <= limit and (piece := response.read1(limit + 1 - len(body))):
                    body += piece
                response.close()
        finally:
            connection.close()
    except TimeoutError as error:
        raise WorkerCallError(f"worker {address} answers too slowly") from error
    except ssl.SSLCertVerificationError as error:
        raise WorkerCallError(
            f"worker {address} has no certificate that is trusted here: {error.verify_message};"
            " see worker.tls_ca_file"
        ) from error
    except ssl.SSLError as error:
        raise WorkerCallError(
            f"worker {address} speaks no TLS ({error.reason}), and worker.tls is set here"
        ) from error
    except (http.client.BadStatusLine, ConnectionResetError) as error:
        hint = "" if tls is not None else "; if it speaks TLS, set worker.tls here too"
        raise WorkerCallError(
            f"worker {address} does not answer ({type(error).__name__}){hint}"
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise WorkerCallError(
            f"worker {address} does not answer ({type(error).__name__})"
        ) from error
    return Answered(status=response.status, headers=dict(response.headers.items()), body=body)


def _connection(
    host: str, port: int, seconds: float, tls: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    if tls is None:
        return http.client.HTTPConnection(host, port, timeout=seconds)
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=tls)


class _InTime(socket.socket):
    """A socket with a deadline for the whole answer, however slowly its bytes come."""

    def __init__(self, taken: socket.socket, until: float) -> None:
        super().__init__(fileno=os.dup(taken.fileno()))
        self._until = until

    def recv_into(self, *given: Any) -> int:
        self.settimeout(_left(self._until))
        return super().recv_into(*given)


class _InTimeTls(io.RawIOBase):
    """The same of a socket with TLS, which can't be taken over by another one."""

    def __init__(self, taken: ssl.SSLSocket, until: float) -> None:
        super().__init__()
        self._taken = taken
        self._until = until

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the reader for the parser of answers."""
        assert mode == "rb"
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._taken.settimeout(_left(self._until))
        return self._taken.recv_into(buffer)


def _in_time(taken: socket.socket, until: float) -> Any:
    return _InTimeTls(taken, until) if isinstance(taken, ssl.SSLSocket) else _InTime(taken, until)


def _left(until: float) -> float:
    left = until - SystemClock().monotonic()
    if left <= 0:
        raise TimeoutError
    return left
