"""Has the leaders of PYTHON tasks forked by a fork server, in place of starting new interpreters.

A *fork server* (`worker/processes/fork_server.py`) serves one account with one interpreter. It is
started when the first task asks for it, which runs in a new interpreter meanwhile, and ends with
this daemon, or when nobody has asked for long. One leader is always forked ahead, for the task that
comes next. What it has forked is a child of the daemon, which
watches, limits and reaps it like any wrapper, and which outlives both. Every failure of a server
has the same answer: nothing of the attempt has run, and a new interpreter is started for it.

Of a server the daemon trusts nothing but the kernel's word who has answered, since other processes
of its account may have changed it. Used by the supervisor's thread alone.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.clock import Clock
from worker.processes.attempt_processes import MARKER
from worker.processes.marks import HELPER, mark_seen
from worker.processes.tenant_start import start_program
from worker.workspace import Account

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 2.0
"""The longest that the supervisor waits for a server, before it takes that for stuck."""
AGAIN_SECONDS: Final = 60.0
"""The time without a server after one that was of no use."""
IDLE_SECONDS: Final = 600.0

_NOW, _AHEAD = b"n", b"a"
_WAITING, _READY, _STALE, _REFUSED, _GO = b"w", b"+", b"s", b"-", b"+"
"""The words of `fork_server.py`; the first is also the server's own when it has started."""
_MARKER_BYTES: Final = 4096

_PROGRAM: Final = str(Path(__file__).with_name("fork_server.py"))
_ROOM_FOR_A_COMMAND: Final = 480 * " "
_CREDENTIALS: Final = struct.Struct("3i")
_HEAD: Final = 4
_WORDS_BYTES: Final = 16_384
_WORDS_CHARS: Final = 300
_READ_AT_START: Final = re.compile(
    r"(PYTHON|LC_|LD_|MALLOC_).*|GLIBC_TUNABLES|LANG|LANGUAGE|TZ|HOME"
)
"""Variables that an interpreter and its libraries read when they start, and never again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFork:
    """A PYTHON task: everything that its leader takes over. `argv` is PYTHON -u SCRIPT WORD…"""

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    account: Account | None
    niceness: int
    mark: int | None
    limits: Sequence[tuple[int, int]]
    """Resource limits, each by its number."""
    is_enclosed: bool = False
    """Its leader is moved into a cgroup, so that what it forks from then on is in there too."""

    def frame(self) -> bytes:
        """Return the document as the leader reads it, behind its length."""
        document = json.dumps(
            {
                "argv": self.argv,
                "environment": dict(self.environment),
                "directory": self.directory,
                "niceness": self.niceness,
                "mark": self.mark,
                "limits": self.limits,
                "is_enclosed": self.is_enclosed,
            }
        ).encode()
        return len(document).to_bytes(_HEAD, "big") + document


class ForkedLeader:
    """The leader of a forked attempt: a child of this process, which waits to be told to go on."""

    def __init__(self, pid: int, gate: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._gate = gate

    def wait(self) -> int:
        """Reap it; the exit code, negative for a signal."""
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def open(self) -> None:
        """Let it go on. It may have been killed; that is its end then, like any other."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._gate.send(_GO)

    def close(self) -> None:
        """Close the gate; a leader that was not let through ends."""
        self._gate.close()


class _UselessServerError(Exception):
    """The server can't be used any more."""


class _Ahead:
    """A leader that has no attempt yet, and never gets one if its gate is closed before."""

    def __init__(self, gate: socket.socket) -> None:
        self.gate = gate
        self.pid: int | None = None
        """None until it has told that it waits."""

    def is_there(self) -> bool:
        """Return whether it may still be given an attempt; reap it if it has ended."""
        if self.pid is None:
            try:
                self.gate.setblocking(False)
                answer, pid, _ = _answer(self.gate)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if answer != _WAITING:
                return False
            self.pid = pid
        return not self.has_ended()

    def kill(self) -> None:
        """Kill a leader without an attempt and its runner, also if a task has stopped them."""
        if self.is_there() and self.pid:
            # No other process gets the pid of a child before that child is reaped. The leader is
            # killed by its pid too, in case that it has not made a group yet.
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Reap it if it has ended; True then, and if it is not known or no child of ours."""
        try:
            return self.pid is None or os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


class _Server:
    """One server's process and the link to it."""

    def __init__(
        self, python: str, environment: Mapping[str, str], account: Account | None, *, marks: bool
    ) -> None:
        self.ahead: _Ahead | None = None
        self._words = os.memfd_create("fork-server", os.MFD_CLOEXEC)
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.link.setblocking(False)
        self.is_ready = False
        self.has_served = False
        self.used_at = 0.0
        mark = str(HELPER if marks else 0)
        try:
            with theirs:
                self.process = start_program(
                    (python, "-u", _PROGRAM, str(theirs.fileno()), mark, _ROOM_FOR_A_COMMAND),
                    account=account,
                    files=(subprocess.DEVNULL, subprocess.DEVNULL, self._words),
                    directory="/",
                    environment={**environment, MARKER: "/" * _MARKER_BYTES},
                    inherited=(theirs.fileno(),),
                )
        except BaseException:
            self.link.close()
            os.close(self._words)
            raise

    def lacks_a_leader(self) -> bool:
        """Return whether it has been of use and has nobody forked ahead."""
        return self.has_served and self.ahead is None

    def take(self) -> _Ahead:
        """Return the leader that was forked ahead, or have one forked now."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None and ahead.is_there():
            return ahead
        if ahead is not None:
            ahead.gate.close()
        return self.order(_NOW)

    def order(self, word: bytes = _AHEAD) -> _Ahead:
        """Have a leader forked: for an attempt that waits, or ahead."""
        gate, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            gate.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            with theirs:
                _send(self.link, word, (theirs.fileno(),))
        except BaseException:
            gate.close()
            raise
        return _Ahead(gate)

    def last_words(self) -> str:
        """Return the last line that it has written."""
        size = os.fstat(self._words).st_size
        said = os.pread(self._words, _WORDS_BYTES, max(0, size - _WORDS_BYTES))
        lines = said.decode("utf-8", "replace").splitlines()
        return lines[-1][:_WORDS_CHARS] if lines else ""

    def end(self) -> None:
        """End it; what it has forked goes on."""
        self.process.kill()
        self.process.wait()
        self.link.close()
        if self.ahead is not None:
            self.ahead.kill()
            self.ahead.gate.close()
        os.close(self._words)


class ForkServers:
    """The fork servers of a worker, by account and interpreter."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        clock: Clock,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`environment` is the part of the daemon's that every task gets."""
        self._environment = environment
        self._patience = patience_seconds
        self._clock = clock
        self._servers: dict[tuple[int, str], _Server] = {}
        self._not_before: dict[tuple[int, str], float] = {}
        self._strays: dict[int, float] = {}
        """Marks of attempts whose server was given up before it had answered, with a time limit."""
        self._dismissed: list[_Ahead] = []
        """Leaders that end without an attempt."""

    def fork(
        self, asked: ToFork, *, record: int, output: int, known: Collection[int]
    ) -> ForkedLeader | None:
        """Return a leader that waits for its gate; None if a new interpreter has to be started.

        `record` and `output` are its open files, `known` the leaders that were forked before.
        """
        key = _key(asked)
        variables = asked.account.variables() if asked.account is not None else {}
        environment = {**self._environment, **variables}
        if _read_at_start(asked.environment) != _read_at_start(environment):
            return None
        server = self._servers.get(key) or self._start(key, environment, asked)
        if server is None or not self._is_ready(key, server):
            return None
        if server.process.poll() is not None:
            self._give_up(key, "it has ended")
            return None
        server.used_at = self._clock.monotonic()
        ahead: _Ahead | None = None
        leader: ForkedLeader | None = None
        try:
            ahead = server.take()
            leader = _handed_over(
                ahead,
                asked,
                record=record,
                output=output,
                known={*known, *self._pids()},
                within=self._patience,
            )
        except (_UselessServerError, OSError) as error:
            if asked.mark is not None:
                self._strays[asked.mark] = self._clock.monotonic() + AGAIN_SECONDS
            self._give_up(key, str(error), is_stuck=isinstance(error, TimeoutError))
        if leader is not None:
            server.has_served = True
        elif ahead is not None:
            ahead.kill()
            self._dismissed.append(ahead)
        return leader

    def lack_a_leader(self) -> bool:
        """Return whether `prepare` would have one forked."""
        return any(server.lacks_a_leader() for server in self._servers.values())

    def prepare(self) -> None:
        """Have a leader forked ahead in the place of one that was taken."""
        for server in self._servers.values():
            if server.lacks_a_leader():
                with suppress(OSError):  # What has become of the server shows when it is asked.
                    server.ahead = server.order()

    def tend(self, known: Collection[int]) -> None:
        """End the servers that nobody has asked for long, and reap what was given up."""
        now = self._clock.monotonic()
        for key, server in list(self._servers.items()):
            if server.process.poll() is not None:
                self._give_up(key, "it has ended")
            elif now - server.used_at >= IDLE_SECONDS:
                del self._servers[key]
                self._end(server)
            elif server.ahead is not None and not server.ahead.is_there():
                server.ahead.gate.close()
                server.ahead = None
        self._dismissed = [each for each in self._dismissed if not each.has_ended()]
        self._reap_strays(known)

    def close(self) -> None:
        """End all servers, and nothing that they have forked."""
        for server in self._servers.values():
            server.end()
        self._servers.clear()

    def _start(
        self, key: tuple[int, str], environment: Mapping[str, str], asked: ToFork
    ) -> _Server | None:
        account, marks = asked.account, asked.mark is not None
        now = self._clock.monotonic()
        if now < self._not_before.get(key, now):
            return None
        try:
            server = self._servers[key] = _Server(key[1], environment, account, marks=marks)
        except OSError as error:
            self._not_before[key] = now + AGAIN_SECONDS
            log.warning("fork server could not be started", extra={"error": str(error)})
            return None
        server.used_at = now
        told = {"pid": server.process.pid, "account": account.name if account else None}
        log.info("fork server started", extra=told)
        return server

    def _is_ready(self, key: tuple[int, str], server: _Server) -> bool:
        if not server.is_ready:
            try:
                server.is_ready = server.link.recv(1) == _READY
            except BlockingIOError:
                return False
            except OSError:
                server.is_ready = False
            if not server.is_ready:
                self._give_up(key, "it did not start")
        return server.is_ready

    def _pids(self) -> Iterator[int]:
        for server in self._servers.values():
            yield server.process.pid
            if server.ahead is not None and server.ahead.pid is not None:
                yield server.ahead.pid

    def _end(self, server: _Server) -> None:
        if server.ahead is not None:
            self._dismissed.append(server.ahead)
        server.end()

    def _give_up(self, key: tuple[int, str], why: str, *, is_stuck: bool = False) -> None:
        """End a server; the next one is started at once only if this one was of use."""
        server = self._servers.pop(key)
        told = {"pid": server.process.pid, "why": why, "said": server.last_words()}
        self._end(server)
        if is_stuck or not server.has_served:
            self._not_before[key] = self._clock.monotonic() + AGAIN_SECONDS
        log.warning("fork server was given up", extra=told)

    def _reap_strays(self, known: Collection[int]) -> None:
        """Reap the leaders that were forked for nobody: each ends when its gate is closed."""
        now = self._clock.monotonic()
        self._strays = {mark: until for mark, until in self._strays.items() if now < until}
        for children in Path("/proc/self/task").glob("*/children") if self._strays else ():
            for pid in map(int, children.read_bytes().split()):
                if pid not in known and mark_seen(pid) in self._strays:
                    with suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)


def _handed_over(
    ahead: _Ahead,
    asked: ToFork,
    *,
    record: int,
    output: int,
    known: Collection[int],
    within: float,
) -> ForkedLeader | None:
    """Give an attempt to a leader; None if that can't take over what is asked.

    Raises `_UselessServerError` or `OSError` if the server is to be given up.
    """
    gate = ahead.gate
    leader = None
    try:
        gate.settimeout(within)
        frame = asked.frame()
        with suppress(BrokenPipeError, ConnectionResetError):  # What is to be read says more.
            sent = _send(gate, frame, (record, output))
            gate.sendall(frame[sent:])
        answer, pid, uid = _answer(gate)
        if answer == _WAITING:
            ahead.pid = pid
            answer, pid, uid = _answer(gate)
        if answer == _READY:
            _check(pid, uid, asked.account, known)
            leader = ForkedLeader(pid, gate)
        elif answer == _STALE:
            raise _UselessServerError("its interpreter or the packages have changed")
        elif answer != _REFUSED:
            raise _UselessServerError("it has died")
    finally:
        if leader is None:
            gate.close()
    return leader


def _answer(gate: socket.socket) -> tuple[bytes, int, int]:
    """Return the next word, with the pid and the account of who has sent it; b"" at the end."""
    answer, rights, _, _ = gate.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
    pid, uid, _ = _CREDENTIALS.unpack(rights[0][2]) if rights else (0, -1, -1)
    return answer, pid, uid


def _send(link: socket.socket, content: bytes, files: Sequence[int]) -> int:
    rights = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    return link.sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def _check(pid: int, uid: int, account: Account | None, known: Collection[int]) -> None:
    """Raise `_UselessServerError` unless this is a new child of ours with the right account.

    The kernel has told who has answered; whoever that is may be signalled as an attempt's leader.
    """
    own = os.geteuid() if account is None else account.uid
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        raise _UselessServerError("what it has forked is no child of this worker") from None
    if uid != own or pid in known:
        raise _UselessServerError(f"process {pid} of account {uid} has answered for it")


def _key(asked: ToFork) -> tuple[int, str]:
    return os.geteuid() if asked.account is None else asked.account.uid, asked.argv[0]


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if _READ_AT_START.fullmatch(name)}
