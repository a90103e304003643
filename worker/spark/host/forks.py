"""The events that the Spark host waits for, and the processes that it has forked.

One epoll for everything: descriptors are watched with what is to be done when something is there.
A fork is known by its pid, which is nobody else's until `ended` was called, because only then it
has been reaped. A *probe* is a fork that does some short business of the host's own that would
have to wait, and brings back a few bytes; one that takes too long is killed and brings nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass

from worker.spark.host import forking
from worker.spark.host.forking import Circumstances
from worker.spark.host.proxy_protocol import Link, Request

log = logging.getLogger("orcaflow.spark.forks")

_VISIT_SECONDS = 20.0
_ANSWER_BYTES = 65_536


class Watch:
    """Descriptors, and what to do when there is something to read."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._acts: dict[int, Callable[[], None]] = {}

    def add(self, fd: int, act: Callable[[], None]) -> None:
        self._acts[fd] = act
        self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        """Watch it no more; close it after that, not before."""
        self._epoll.unregister(fd)
        del self._acts[fd]

    def wait(self, seconds: float) -> None:
        """Do what is to be done; return when that is done, or when nothing came for so long."""
        for fd, _ in self._epoll.poll(seconds):
            act = self._acts.get(fd)  # What was done first may have removed it.
            if act is None:
                continue
            try:
                act()
            except Exception:
                # The host must not end by it, and all its servers and tasks along with it.
                log.exception("event could not be dealt with")


@dataclass(slots=True, kw_only=True)
class _Probe:
    reading: int
    until: float
    done: Callable[[bytes | None], None]


class Forks:
    """Forks off the host; all of them end with it."""

    def __init__(self, watch: Watch, *, clock: Callable[[], float]) -> None:
        self._watch = watch
        self._clock = clock
        self._probes: dict[int, _Probe] = {}

    @property
    def are_probing(self) -> bool:
        return bool(self._probes)

    def fork(
        self,
        link: Link,
        request: Request,
        work: Callable[[], int],
        ended: Callable[[int], None],
        *,
        keep: tuple[int, ...] = (),
        session: bool = True,
        limited_as: int | None = None,
    ) -> int:
        """Do work in a process made as its task proxy is; the pid. Raises `OSError` if it can't be.

        `ended` is told the exit code, negative for a signal. `keep` and `session` are those of
        `worker.spark.host.forking`, and so is `limited_as`, the task proxy unless it is given.
        """
        circumstances = Circumstances(
            environment=request.environment,
            directory=request.directory,
            files=request.files,
            proxy=link.pid,
            session=session,
            limited_as=link.pid if limited_as is None else limited_as,
        )
        pid = forking.fork(circumstances, work, keep=keep)
        self._follow(pid, ended)
        return pid

    def probe(
        self,
        work: Callable[[], bytes],
        done: Callable[[bytes | None], None],
        *,
        within: float = _VISIT_SECONDS,
    ) -> bool:
        """Do some short business; `done` is told what `work` has returned, None if it failed.

        False if no process can be made for it now: then nothing was done, and nothing is told.
        """
        try:
            pid, reading = self._prober(work)
            try:
                self._follow(pid, lambda code: self._probed(pid, code))
            except OSError:
                os.close(reading)
                raise
        except OSError as error:
            log.warning("no probe could be made", extra={"cause": error.strerror})
            return False
        self._probes[pid] = _Probe(reading=reading, until=self._clock() + within, done=done)
        return True

    def _prober(self, work: Callable[[], bytes]) -> tuple[int, int]:
        """A process that does some work; its pid, and where the answer is to be read."""
        with contextlib.ExitStack() as open_files:
            reading, writing = pipe()
            open_files.callback(os.close, writing)
            devnull = os.open(os.devnull, os.O_RDWR)
            open_files.callback(os.close, devnull)

            def write() -> int:
                os.write(writing, work())
                return 0

            own = Circumstances(
                environment=dict(os.environ),
                directory="/",
                files=(devnull, 1, 2),
            )
            try:
                return forking.fork(own, write, keep=(writing,)), reading
            except OSError:
                os.close(reading)
                raise

    def end_late_probes(self) -> None:
        """Kill the probes that take too long."""
        now = self._clock()
        for pid, probe in self._probes.items():
            if now >= probe.until:
                signal_fork(pid, signal.SIGKILL)

    def _probed(self, pid: int, code: int) -> None:
        probe = self._probes.pop(pid)
        answer = take_all(probe.reading)
        os.close(probe.reading)
        probe.done(answer if code == 0 else None)

    def _follow(self, pid: int, ended: Callable[[int], None]) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            # Whose end nobody would hear of must not run.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

        def reap() -> None:
            self._watch.remove(pidfd)
            os.close(pidfd)
            # What it left behind in its group; the unreaped leader keeps the group's number.
            signal_fork(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            ended(os.waitstatus_to_exitcode(status))

        self._watch.add(pidfd, reap)


def pipe() -> tuple[int, int]:
    """The end that the host reads, which never has it wait, and the end that a fork writes to."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return reading, writing


def take_all(reading: int) -> bytes:
    """Return the bytes that have come through a pipe so far."""
    try:
        return os.read(reading, _ANSWER_BYTES)
    except BlockingIOError:
        return b""  # The fork, or a process that it has left behind, could write yet.


def signal_fork(pid: int, number: int) -> None:
    """Signal a fork that has not been reaped, and its group; 0 is none."""
    if not pid:
        return
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            # It has just been forked, and has no group of its own yet.
            os.kill(pid, number)
