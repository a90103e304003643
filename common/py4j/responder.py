"""A server for py4j clients, a thread for each connection.

It knows three commands: `A` (the token), `c` (a call of the entry point, or of a thing that it
answered with) and `m` (a client forgets a thing, which costs nothing). Anything else, and all that
reflects, constructs or steers a virtual machine, is an error, after which the connection ends.
Commands have limits of time and size; the entry point is asked for by the token alone.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol

from common.clock import Clock
from common.errors import SchedulerError
from common.py4j.wire import (
    END,
    ENTRY_POINT,
    VOID,
    Value,
    WireError,
    answer,
    argument,
    failure,
    member,
    read_thing,
)

log = logging.getLogger(__name__)

LONGEST_LINE: Final = 1_000_000
_MOST_PARTS: Final = 40
_LARGEST_COMMAND: Final = 4_000_000
_MOST_DISCARDED: Final = 20_000_000
_MOST_CONNECTIONS: Final = 32
_SECONDS_OF_A_COMMAND: Final = 30.0
_IDLE_SECONDS: Final = 600.0
_LONGEST_ERROR: Final = 10_000
_CHUNK: Final = 65_536
_BACKLOG: Final = 128
_STOP_SECONDS: Final = 2.0


class EntryPoint(Protocol):
    """The object whose methods clients call."""

    def call(self, method: str, arguments: list[str | int | bool | float | None]) -> Value:
        """Carry a method out; a `SchedulerError` becomes the client's error."""
        ...


class _ClosedError(Exception):
    """The client is gone, or too slow."""


class Responder:
    """Listens on a port, from `start` to `stop`. Any thread may call either, each once."""

    def __init__(
        self,
        taken: socket.socket,
        enter: Callable[[str, str], EntryPoint | None],
        *,
        clock: Clock,
    ) -> None:
        """Takes over a listening socket; `enter` gives a token's entry point, or None.

        The token comes first, then the address of the client.
        """
        self._taken = taken
        self._enter = enter
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[_Conversation, None] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._accept, name="py4j", daemon=True)

    def start(self) -> None:
        self._taken.listen(_BACKLOG)
        self._thread.start()

    def stop(self) -> None:
        """End all connections; a call that is being carried out goes on without its client."""
        with self._lock:
            self._stopped = True
            still = [each.connection for each in self._open]
        for each in (self._taken, *still):
            _shut(each)
        self._thread.join(_STOP_SECONDS)

    def _accept(self) -> None:
        while not self._stopped:
            try:
                connection, address = self._taken.accept()
            except OSError:
                if self._stopped:
                    return
                log.warning("py4j connection not accepted", exc_info=True)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made = _Conversation(connection, str(address[0]), self._enter, self._clock)
            if not self._add(made):
                _shut(connection)
                continue
            threading.Thread(target=self._serve, args=(made,), name="py4j", daemon=True).start()

    def _add(self, made: _Conversation) -> bool:
        """Add a conversation; if there are too many, drop the oldest one without a valid token."""
        with self._lock:
            if self._stopped:
                return False
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest = next((each for each in self._open if not each.is_known), None)
                if oldest is None:
                    return False
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.connection.shutdown(socket.SHUT_RDWR)
            self._open[made] = None
        return True

    def _serve(self, made: _Conversation) -> None:
        try:
            made.hold()
        except (OSError, _ClosedError):
            pass
        except Exception:
            log.exception("py4j connection failed")
        finally:
            with self._lock:
                self._open.pop(made, None)
            _shut(made.connection)


class _Conversation:
    """One connection, from the token to the end."""

    def __init__(
        self,
        connection: socket.socket,
        address: str,
        enter: Callable[[str, str], EntryPoint | None],
        clock: Clock,
    ) -> None:
        self.connection = connection
        self._address = address
        self._enter = enter
        self._clock = clock
        self._read = b""
        self._deadline = 0.0
        self._token: str | None = None

    @property
    def is_known(self) -> bool:
        """True once the client has sent a valid token."""
        return self._token is not None

    def hold(self) -> None:
        """Answer commands until one is refused, or the client is gone."""
        while True:
            self._begin(_SECONDS_OF_A_COMMAND if self._token is None else _IDLE_SECONDS)
            try:
                letter = self._line()
                self._begin(_SECONDS_OF_A_COMMAND)
                said = self._answered(letter)
            except SchedulerError as error:
                self._send(failure(str(error)))
                return
            self._send(said)

    def _answered(self, letter: str) -> str:
        if letter == "A":
            return self._log_in(self._line())
        if self._token is None:
            raise WireError(
                "the first command has to be the token: set PYDS_JAVA_GATEWAY_AUTH_TOKEN to one of"
                " `orcaflow token create` (apache-dolphinscheduler before 4.0 sends none)"
            )
        if letter not in ("c", "m"):
            raise WireError(
                f"the command {letter!r:.20} is not served: there is no Java virtual machine here"
            )
        parts = self._parts()
        if letter == "m":
            return VOID
        if len(parts) < 2:
            raise WireError("a call names an object and a method")
        return self._called(parts[0], parts[1], parts[2:])

    def _log_in(self, token: str) -> str:
        if self._enter(token, self._address) is None:
            raise WireError("the token is unknown, expired or revoked")
        self._token = token
        return VOID

    def _called(self, target: str, method: str, parts: list[str]) -> str:
        try:
            given = [argument(each) for each in parts]
            if target != ENTRY_POINT:
                return answer(member(read_thing(target), method, given))
            # A token may have been revoked since the last call.
            entry = self._enter(self._token or "", self._address)
            if entry is None:
                raise WireError("the token is unknown, expired or revoked")
            return answer(entry.call(method, given))
        except SchedulerError as error:
            return failure(str(error)[:_LONGEST_ERROR])

    def _parts(self) -> list[str]:
        parts: list[str] = []
        size = 0
        while (line := self._line()) != END:
            size += len(line)
            if len(parts) >= _MOST_PARTS or size > _LARGEST_COMMAND:
                raise WireError("the command is too long")
            parts.append(line)
        return parts

    def _begin(self, seconds: float) -> None:
        self._deadline = self._clock.monotonic() + seconds

    def _line(self) -> str:
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) > LONGEST_LINE:
                self._discard()
                raise WireError(f"a line has more than {LONGEST_LINE // 1_000_000} MB")
            self._read += self._received()
        line, self._read = self._read[:end], self._read[end + 1 :]
        if len(line) > LONGEST_LINE:
            raise WireError(f"a line has more than {LONGEST_LINE // 1_000_000} MB")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise WireError("a line is not UTF-8") from error

    def _discard(self) -> None:
        """Pass over the rest of a line, so that a client that still sends gets its answer."""
        for _ in range(_MOST_DISCARDED // _CHUNK):
            if b"\n" in self._received():
                return
        raise _ClosedError

    def _received(self) -> bytes:
        left = self._deadline - self._clock.monotonic()
        if left <= 0:
            raise _ClosedError
        self.connection.settimeout(left)
        found = self.connection.recv(_CHUNK)
        if not found:
            raise _ClosedError
        return found

    def _send(self, text: str) -> None:
        self.connection.settimeout(_SECONDS_OF_A_COMMAND)
        self.connection.sendall(text.encode("utf-8", "replace"))


def _shut(connection: socket.socket) -> None:
    # It may never have been connected, or the other end was first.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
