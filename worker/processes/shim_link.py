"""Has attempts started by a shim, in place of a wrapper for each of them.

The *shim* (`worker/processes/shim.py`) is a process of this daemon's own, started when the first
attempt asks for it, which gets a wrapper meanwhile. It starts what needs nothing that only a shell
can set before (an account, limits, niceness), notes exits in the records, and outlives this daemon
as long as its children live. While it lives, this daemon knows their exits from it; when it is
gone, they are this daemon's own children, since orphans come to it (`orphans`). So nothing is lost
unless both are killed at once. Used by the supervisor's thread alone.
"""

from __future__ import annotations

import array
import logging
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from common.clock import Clock
from worker.processes import spawning
from worker.processes.marks import HELPER
from worker.processes.shim import (
    ALIVE,
    ANSWER,
    ASK,
    ENDED,
    HEAD,
    MOST_BYTES,
    REAP,
    START,
    STARTED,
)

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
"""The longest that the supervisor waits for a shim, before it takes that for stuck."""
AGAIN_SECONDS: Final = 60.0
"""The time without a shim after one that has started nothing."""
_MOST_UNANSWERED: Final = 8
_ROOT: Final = Path(__file__).resolve().parents[2]


class ShimLostError(Exception):
    """The shim has died, and nobody knows whether it had started the attempt."""


class ShimLeader:
    """The leader of an attempt that a shim has started: its child, or ours after its death."""

    def __init__(self, pid: int, shim: Shim) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.told: int | None = None
        """The exit code as the shim has told it, negative for a signal."""
        self._shim = shim

    def wait(self) -> int:
        """Have it reaped; the exit code, negative for a signal."""
        if self.returncode is None:
            self.returncode = self._shim.end(self)
        return self.returncode


Answer: TypeAlias = ShimLeader | ShimLostError | None
"""None if the shim has started nothing, so that the attempt gets a wrapper."""


class Shim:
    """The shim of this daemon, and another one in its place if it dies."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        clock: Clock,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`environment` is the shim's own; its children get theirs alone."""
        self._environment = environment
        self._clock = clock
        self._patience = patience_seconds
        self._process: spawning.SpawnedLeader | None = None
        self._link: socket.socket | None = None
        self._is_ready = False
        self._has_started_any = False
        self._not_before = 0.0
        self._unanswered = 0
        self._silent_since: float | None = None
        """The time of the first word of ours after the last one that was heard."""
        self._answers: deque[Answer] = deque()
        self._leaders: dict[int, ShimLeader] = {}
        """Those whose exit is not known."""
        self._ended: deque[ShimLeader] = deque()
        self._orphaned: deque[ShimLeader] = deque()
        self._to_reap = array.array("i")
        self._poll = select.epoll()

    @property
    def pid(self) -> int | None:
        """The pid of the shim; None if there is none."""
        return None if self._process is None else self._process.pid

    def fileno(self) -> int:
        """Return a file that is readable while `hear` has something to hear."""
        return self._poll.fileno()

    def ask(
        self,
        argv: Sequence[str],
        *,
        record: int,
        output: int,
        directory: str,
        environment: Mapping[str, str],
        mark: int | None,
    ) -> bool:
        """Ask for the start of a program, by its absolute path; False if nothing was asked.

        `record` and `output` are its open files. The answers come in the order of what was asked
        (`answers`). Raises `ValueError` for what no program can be given.
        """
        arguments, variables = spawning.encoded(argv, environment)
        frame = HEAD.pack(START, mark or 0, len(arguments))
        frame += b"\0".join((os.fsencode(directory), *arguments, *variables))
        if len(frame) > MOST_BYTES or not self.is_there(mark) or self._link is None:
            return False
        while self._unanswered >= _MOST_UNANSWERED:
            self.await_answer()
        if self._link is None:
            return False
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (record, output)))]
        try:
            self._link.sendmsg([frame], rights)
        except OSError as error:
            self._lose(str(error))
            return False
        self._unanswered += 1
        self._await_word()
        return True

    def await_answer(self) -> None:
        """Wait for something that the shim says, or its end."""
        if self._link is None:
            return
        try:
            self._take(self._link, within=self._patience)
        except OSError as error:
            self._lose(str(error))

    def answers(self) -> Iterator[Answer]:
        """Yield the answers that have come, in the order of what was asked, each once."""
        while self._answers:
            yield self._answers.popleft()

    def hear(self) -> None:
        """Hear what the shim says, without waiting."""
        while self._link is not None:
            try:
                self._take(self._link, within=0.0)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(str(error))

    def has_news(self) -> bool:
        """Return whether something was heard that nobody has asked for yet."""
        return bool(self._answers or self._ended or self._orphaned)

    def ended(self) -> Iterator[ShimLeader]:
        """Yield the leaders whose exits have become known, each once."""
        while self._ended:
            yield self._ended.popleft()

    def orphaned(self) -> Iterator[ShimLeader]:
        """Yield the leaders that this process has to watch itself from now on, each once."""
        while self._orphaned:
            yield self._orphaned.popleft()

    def end(self, leader: ShimLeader) -> int:
        """Wait for the end of a leader, and have it reaped soon; its exit code."""
        while leader.told is None and self._link is not None:
            self.await_answer()
        if leader.told is not None:
            self._to_reap.append(leader.pid)
            return leader.told
        _, status = os.waitpid(leader.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def flush(self) -> None:
        """Have those reaped that have been waited for."""
        if not self._to_reap:
            return
        pids, self._to_reap = self._to_reap, array.array("i")
        if self._link is not None:
            try:
                self._link.send(REAP + pids.tobytes())
                return
            except OSError as error:
                self._lose(str(error))
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def tend(self) -> None:
        """Give up a shim that is silent though it is asked; call it about once a second.

        One that is stopped, as a process of a task may do, would keep the ends of its children.
        """
        if self._link is None or not (self._leaders or self._unanswered):
            return
        if self._silent_since is None:
            try:
                self._link.send(ASK)
            except OSError as error:
                self._lose(str(error))
            else:
                self._await_word()
        elif self._clock.monotonic() - self._silent_since >= self._patience:
            self._lose(f"it has not answered within {self._patience:g} s")

    def close(self) -> None:
        """Leave the shim to its children."""
        self.flush()
        if self._link is not None:
            self._link.close()
            self._link = None
        self._poll.close()

    def is_there(self, mark: int | None) -> bool:
        """Return whether there is a shim that is ready; start one if there is none."""
        if self._link is None:
            if not spawning.is_native() or self._clock.monotonic() < self._not_before:
                return False
            self._begin(HELPER if mark else 0)
        elif not self._is_ready:
            self.hear()
        return self._is_ready and self._link is not None

    def _await_word(self) -> None:
        if self._silent_since is None:
            self._silent_since = self._clock.monotonic()

    def _begin(self, mark: int) -> None:
        link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing = os.open(os.devnull, os.O_RDWR)
        program = (sys.executable, "-S", "-E", "-m", "worker.processes.shim", str(mark))
        try:
            arguments, variables = spawning.encoded(program, self._environment)
            pid = spawning.spawn(
                arguments,
                variables,
                files=(theirs.fileno(), nothing, nothing),
                directory=os.fsencode(_ROOT),
            )
        except OSError as error:
            link.close()
            self._not_before = self._clock.monotonic() + AGAIN_SECONDS
            log.warning("shim could not be started", extra={"error": str(error)})
            return
        finally:
            theirs.close()
            os.close(nothing)
        link.setblocking(False)
        self._process = spawning.SpawnedLeader(pid)
        self._link, self._is_ready, self._has_started_any = link, False, False
        self._silent_since = None
        self._poll.register(link, select.EPOLLIN)

    def _take(self, link: socket.socket, *, within: float) -> None:
        """Take what the shim says next. `OSError` at the end of the link.

        `BlockingIOError` or `TimeoutError` if it says nothing within so many seconds.
        """
        if within and not self._poll.poll(within):
            raise TimeoutError(f"it has not answered within {within:g} s")
        answer = link.recv(ANSWER.size)
        if not answer:
            raise ConnectionResetError("it has ended")
        word, pid, number = ANSWER.unpack(answer)
        self._silent_since = None
        if word == ENDED:
            leader = self._leaders.pop(pid)
            leader.told = number
            self._ended.append(leader)
        elif word == ALIVE:
            self._is_ready = True
        else:
            self._unanswered -= 1
            if word == STARTED:
                self._has_started_any = True
                leader = self._leaders[pid] = ShimLeader(pid, self)
                self._answers.append(leader)
            else:
                self._answers.append(None)

    def _lose(self, why: str) -> None:
        """Take over the children of a shim that is of no use any more."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            # Its children are ours once it is seen to have ended.
            self._process.wait()
            told = {"pid": self._process.pid, "why": why, "children": len(self._leaders)}
            log.warning("shim was lost", extra=told)
            self._process = None
        if not self._has_started_any:
            self._not_before = self._clock.monotonic() + AGAIN_SECONDS
        for _ in range(self._unanswered):
            self._answers.append(ShimLostError(f"its shim was lost as it was started: {why}"))
        self._unanswered = 0
        self._orphaned.extend(self._leaders.values())
        self._leaders.clear()
