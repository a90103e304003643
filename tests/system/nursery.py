"""Daemons of tests that are forked from a process which has imported them already, the *nursery*.

Most of a daemon's start is imports, and tests that kill daemons start many. The first daemon of a kind
is a process of its own, as an operator's is; from then on it is a fork, which differs in nothing but
its parent and the processor time that it takes. A nursery is started by the first who needs it, has
one thread, and ends with the tests' process. Run as a program, this module is the nursery.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import IO, Any, Final, cast

from operations import daemon_process
from operations.installation import packages_root

MODULES: Final = ("master.server", "worker.server")
"""The daemons that are forked; others are started seldom."""
_PATIENCE_SECONDS: Final = 300.0
"""Far more than the imports take on a busy machine."""
_REST_SECONDS: Final = 0.1
"""The time after which a thread looks whether another has heard what it waits for."""
_MOST_BYTES: Final = 1 << 20

_started: set[str] = set()
"""The modules that have been processes of their own."""
_lock = threading.Lock()


class Fork:
    """A daemon that was forked, with what `Popen` has of it."""

    def __init__(self, nursery: Nursery, pid: int, number: int, stdin: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None
        self._nursery = nursery
        self._number = number

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._nursery.code_of(self._number)
        return self.returncode

    def wait(self, timeout: float = _PATIENCE_SECONDS) -> int:
        """Return the exit code once it has ended."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("a forked daemon", timeout)
            self._nursery.listen(min(left, _REST_SECONDS))
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The tests' end of a nursery: asks for forks, and hears of their ends.

    Each fork has a number of its own: in a long run its pid was that of a former one, long ended.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._codes: dict[int, int] = {}
        """The exit codes of forks that have ended, by number."""
        self._lock = threading.RLock()

    def fork(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        files: tuple[int, int],
    ) -> tuple[int, int]:
        """Fork a daemon with these as its input and output; return its pid and its number."""
        told = {"module": module, "arguments": [*arguments], "environment": dict(environment)}
        with self._lock:
            socket.send_fds(self._link, [json.dumps(told).encode()], files)
            while True:
                # Ends of others may be told before it.
                made = self._heard(_PATIENCE_SECONDS)
                if made is not None:
                    return made

    def code_of(self, number: int) -> int | None:
        """Return the exit code of a fork that has ended."""
        with self._lock:
            while select.select([self._link], [], [], 0)[0]:
                self._heard(0)
            return self._codes.get(number)

    def listen(self, seconds: float) -> None:
        """Wait for news, for a while at most."""
        select.select([self._link], [], [], seconds)

    def _heard(self, seconds: float) -> tuple[int, int] | None:
        """Take one piece of news; pid and number if it is of a fork that was made."""
        ready, _, _ = select.select([self._link], [], [], seconds)
        assert ready, "the nursery does not answer"
        said = self._link.recv(_MOST_BYTES)
        assert said, "the nursery has ended"
        news = json.loads(said)
        if "code" not in news:
            return int(news["pid"]), int(news["number"])
        self._codes[news["number"]] = news["code"]
        return None


@cache
def _nursery() -> Nursery:
    link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        subprocess.Popen(
            (sys.executable, "-m", "tests.system.nursery", str(other.fileno())),
            cwd=packages_root(),
            stdin=subprocess.DEVNULL,
            pass_fds=(other.fileno(),),
            start_new_session=True,
        )
    return Nursery(link)


def spawned(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a daemon as `operations.daemon_process.spawned` does; all but the first are forks."""
    _python, _m, module, *arguments = command
    with _lock:
        if module not in _started or module not in MODULES:
            _started.add(module)
            return daemon_process.spawned(command, environment, output)
        made = _nursery()
    reading, writing = os.pipe()
    try:
        pid, number = made.fork(module, arguments, environment, (reading, output.fileno()))
    finally:
        os.close(reading)
    return cast("subprocess.Popen[bytes]", Fork(made, pid, number, os.fdopen(writing, "wb")))


# The nursery's own part.


def main() -> int:
    """Fork a daemon for each request, until nobody is left who could ask."""
    gc.disable()
    for module in MODULES:
        import_module(module)
    gc.freeze()
    assert threading.active_count() == 1, "a process with threads can't be forked"
    link = socket.socket(fileno=int(sys.argv[1]))
    wake, tell = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    numbers: dict[int, int] = {}
    made = 0
    while True:
        ready, _, _ = select.select([link, wake], [], [])
        if wake in ready:
            os.read(wake, _MOST_BYTES)
            _tell_of_ends(link, numbers)
        if link not in ready:
            continue
        request, files, _, _ = socket.recv_fds(link, _MOST_BYTES, 2)
        if not request:
            return 0
        told = json.loads(request)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            link.close()
            return _become(told, files, (wake, tell))
        for each in files:
            os.close(each)
        made += 1
        numbers[pid] = made
        link.send(json.dumps({"pid": pid, "number": made}).encode())


def _tell_of_ends(link: socket.socket, numbers: dict[int, int]) -> None:
    """Tell of the forks that have ended; `numbers` has those that run, by pid."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        news = {"number": numbers.pop(pid), "code": os.waitstatus_to_exitcode(status)}
        link.send(json.dumps(news).encode())


def _become(told: dict[str, Any], files: Sequence[int], others: Sequence[int]) -> int:
    """Be the daemon that was asked for, to its end."""
    os.setsid()
    stdin, output = files
    for file, number in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(file, number)
    for each in (*others, *files):
        os.close(each)
    os.environ.clear()
    os.environ.update(told["environment"])
    # As the daemon's program does when it has been imported.
    gc.freeze()
    gc.enable()
    module = sys.modules[told["module"]]
    sys.argv = [str(module.__file__), *told["arguments"]]
    code: int = module.main()
    return code


if __name__ == "__main__":
    sys.exit(main())
