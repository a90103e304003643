"""Starts and calls the process that queries brokers for offsets (`master.broker_program`).

It is started at the first query, and restarted after it has ended. Each query has a separate socket
and a separate fork of that process, so a slow broker delays no other query. Any thread may call it.
Answers are checked, because they contain data from brokers.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Final

from common.clock import Clock
from common.model.streams.consumer import ClientProperties
from common.model.streams.tasks import offsets_of
from master.loops.streams import StreamUnreachableError
from master.supervisors.view import StreamSnapshot

log = logging.getLogger(__name__)

_START_SECONDS: Final = 30.0
_PROGRAM: Final = Path(__file__).resolve().parents[1] / "broker_program.py"
"""A path, because an import would load the Kafka client into the master."""
_MORE_SECONDS: Final = 5.0
"""The time to wait for an answer after the kernel should have killed the fork."""
_MOST_AT_ONCE: Final = 256
_MOST_ANSWER_BYTES: Final = 8 * 1024 * 1024
_MOST_TEXT: Final = 2_000
_AWAY: Final = "the process that asks brokers"


class BrokerProcess:
    """The process and its queries."""

    def __init__(self, *, clock: Clock, question_seconds: int = 60) -> None:
        """`question_seconds` is the time limit of a query, even if the client hangs."""
        self._clock = clock
        self._question_seconds = question_seconds
        self._lock = Lock()
        self._places = BoundedSemaphore(_MOST_AT_ONCE)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_closed = False
        self._has_warned = False

    @property
    def pid(self) -> int | None:
        """The pid of the process; None before the first question."""
        process = self._process
        return None if process is None else process.pid

    def ask(
        self, topic: str, properties: ClientProperties, *, has_pattern: bool = False
    ) -> StreamSnapshot:
        """Return the offsets of a topic; `StreamUnreachableError` with the reason for a failure.

        With `has_pattern`, `topic` is a pattern of topics. The process matches it, so a hostile
        pattern costs this process nothing.
        """
        request = json.dumps(
            {"topic": topic, "pattern": has_pattern, "properties": properties.document()}
        ).encode()
        if not self._places.acquire(timeout=self._question_seconds):
            raise StreamUnreachableError(f"{_AWAY} is busy with {_MOST_AT_ONCE} others")
        deadline = self._clock.monotonic() + self._question_seconds + _MORE_SECONDS
        try:
            # A process that was killed, or reached its maximum age, may leave a query unanswered.
            answer = self._asked(request, deadline) or self._asked(request, deadline)
        except TimeoutError:
            raise StreamUnreachableError(
                f"the brokers have not answered for {self._question_seconds} s"
            ) from None
        except OSError as error:
            raise StreamUnreachableError(f"{_AWAY} has failed: {error.strerror}") from error
        finally:
            self._places.release()
        return read_answer(answer)

    def close(self) -> None:
        """Kill the process without waiting for open queries."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _asked(self, request: bytes, deadline: float) -> bytes:
        """Send a query once; return nothing if the process ended before it answered."""
        with self._begun() as asking:
            try:
                self._set_limit(asking, deadline)
                asking.sendall(request)
                asking.shutdown(socket.SHUT_WR)
                return self._received(asking, deadline)
            except (BrokenPipeError, ConnectionResetError):
                return b""

    def _begun(self) -> socket.socket:
        """Hand a socket for one query to the process; return its other end."""
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                if self._is_closed:
                    raise StreamUnreachableError("the master stops")
                try:
                    self._hand_over(theirs)
                except OSError:
                    # It has ended, perhaps because of its age.
                    self._end()
                    self._hand_over(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def _hand_over(self, theirs: socket.socket) -> None:
        if self._process is None or self._process.poll() is not None:
            self._end()
        if self._control is None:
            self._control = self._started()
        socket.send_fds(self._control, [b"?"], [theirs.fileno()])

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_PROGRAM), str(self._question_seconds)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        ours.settimeout(_START_SECONDS)
        try:
            done = json.loads(ours.recv(1024) or b"{}")
            uid, landlock = int(done["uid"]), int(done["landlock"])
        except (OSError, ValueError, KeyError, TypeError):
            ours.close()
            self._end()
            raise StreamUnreachableError(f"{_AWAY} did not start") from None
        log.info("broker process started", extra={"uid": uid, "landlock": landlock})
        if not landlock and uid == os.geteuid() and not self._has_warned:
            self._has_warned = True
            log.warning("broker process can read files of this account: no Landlock, not root")
        return ours

    def _end(self) -> None:
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.wait()

    def _received(self, asking: socket.socket, deadline: float) -> bytes:
        found = bytearray()
        while len(found) <= _MOST_ANSWER_BYTES:
            self._set_limit(asking, deadline)
            piece = asking.recv(65_536)
            if not piece:
                return bytes(found)
            found += piece
        return b""

    def _set_limit(self, asking: socket.socket, deadline: float) -> None:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        asking.settimeout(left)


def read_answer(answer: bytes) -> StreamSnapshot:
    """Read an answer; `StreamUnreachableError` if it reports a failure or is invalid."""
    try:
        read: dict[str, Any] = json.loads(answer)
        if "refused" in read:
            raise StreamUnreachableError(_text(read["refused"]))
        return StreamSnapshot(
            earliest=offsets_of(read["earliest"]),
            latest=offsets_of(read["latest"]),
            troubles={_text(topic): _text(why) for topic, why in read.get("troubles", {}).items()},
        )
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        raise StreamUnreachableError(f"{_AWAY} ended without an answer") from None


def _text(given: object) -> str:
    return "".join(each if each.isprintable() else " " for each in str(given))[:_MOST_TEXT]
