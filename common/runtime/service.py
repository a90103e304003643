"""Runs a daemon's loops: their threads, their rests, its signals, and its end.

A *loop* has one public step and knows nothing of threads, so tests and the simulator call the same
step. Here each gets a thread that runs the step, rests as long as it says, and can be woken early.
A step that raises ends the daemon with exit code 1: a loop catches what it can act on, and half a
daemon is worse than none. At the end the loops and their resources are stopped in reverse order, by
a deadline. Nothing polls: an idle daemon sleeps.

`common.runtime.health` serves the health of the daemon over HTTP.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Protocol, TypeVar

from common.clock import Clock, SystemClock
from common.errors import SchedulerError, ServiceUnreachableError
from common.registry.protocol import AddressInUseError
from common.runtime.health import Problem
from common.runtime.metrics import loop_lag_seconds, loop_passes

log = logging.getLogger(__name__)

Result = TypeVar("Result")

AWAITED = "servers"
"""The part in a daemon's health that names the server which its start waits for."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_REACH_INTERVAL = timedelta(seconds=0.5)


class Loop(Protocol):
    """Something to be done over and over."""

    @property
    def name(self) -> str:
        """Names its thread, its metrics and its part in the daemon's health."""

    def run_once(self) -> timedelta:
        """One pass; how long to rest then. Nothing or less: go again at once."""


class LoopThread:
    """One loop in its thread. `wake` cuts a rest short, or has a running pass followed at once."""

    def __init__(
        self, loop: Loop, *, clock: Clock, on_death: Callable[[str, BaseException], None]
    ) -> None:
        self.name = loop.name
        self._loop = loop
        self._clock = clock
        self._on_death = on_death
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._due_at = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name=loop.name, daemon=True)
        self.last_pass_at: float | None = None
        """Time at which the last pass was completed, by the monotonic clock."""

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Have a pass made as soon as possible; may be called from anywhere, at any time."""
        self._woken.set()

    def ask_to_stop(self) -> None:
        """No pass begins after the present one."""
        self._stopping.set()
        self._woken.set()

    def join(self, within: timedelta) -> bool:
        """Wait for the thread; True if it has ended in time."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, within.total_seconds()))
        return not self._thread.is_alive()

    def overdue(self) -> timedelta:
        """Return the loop's delay: of a pass that does not end, or one that does not begin."""
        return timedelta(seconds=max(0.0, self._clock.monotonic() - self._due_at))

    def _run(self) -> None:
        lag = loop_lag_seconds.labels(loop=self.name)
        passes = loop_passes.labels(loop=self.name)
        try:
            while not self._stopping.is_set():
                # Cleared before the pass: what happens during it is looked at by the next one.
                self._woken.clear()
                lag.set(self.overdue().total_seconds())
                self._due_at = self._clock.monotonic()
                rest = self._loop.run_once()
                passes.inc()
                self.last_pass_at = self._clock.monotonic()
                self._due_at = self.last_pass_at + max(0.0, rest.total_seconds())
                if rest > timedelta():
                    self._woken.wait(rest.total_seconds())
        # Whatever it is, SystemExit included: the thread is gone, and with it the daemon.
        except BaseException as error:  # noqa: BLE001  # Told to the owner, which logs it.
            self._on_death(self.name, error)


class StopRequestedError(SchedulerError):
    """The daemon was told to stop before it had begun. End it; nothing is wrong."""

    exit_code = 0


class Service:
    """A daemon's parts from start to end.

    Add loops and closers in the order of their start; they are stopped the other way round.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        stop_within: timedelta = timedelta(seconds=20),
        stuck_after: timedelta = timedelta(seconds=30),
    ) -> None:
        self._clock = clock or SystemClock()
        self._stop_within = stop_within
        self._stuck_after = stuck_after
        self._parts: list[LoopThread | _Closer] = []
        self._checks: list[tuple[str, Callable[[], str | None]]] = []
        self._started = False
        self._stopping = False
        self._failure: Problem | None = None
        self._awaited: str | None = None
        # Not a threading.Event: a signal handler that sets the very event its thread is waiting for
        # can find that event's lock taken, by itself.
        self._stop_asked = False
        self._to_read, self._to_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._to_write, False)

    def add(self, loop: Loop) -> LoopThread:
        """Give the loop its thread, which begins with `start`; keep the result to wake it."""
        thread = LoopThread(loop, clock=self._clock, on_death=self._loop_died)
        self._parts.append(thread)
        return thread

    def on_stop(self, name: str, close: Callable[[], None]) -> None:
        """Close something when all loops that were added after it have stopped."""
        self._parts.append(_Closer(name, close))

    def ready_if(self, part: str, why_not: Callable[[], str | None]) -> None:
        """Ready only while `why_not` gives None, else for the reason that it gives."""
        self._checks.append((part, why_not))

    def reach(self, what: Callable[[], Result]) -> Result:
        """Do what the start needs of PostgreSQL and ZooKeeper, again while one of them is away.

        Meanwhile the daemon is not ready and tells why. Raises `StopRequestedError` if it is told
        to stop. To be called by the main thread.
        """
        before = {number: signal.signal(number, self._on_signal) for number in _STOPPING}
        try:
            while True:
                try:
                    return what()
                except AddressInUseError:
                    raise
                except ServiceUnreachableError as error:
                    if self._awaited is None:
                        log.warning("waiting for a server", extra={"cause": str(error)})
                    self._awaited = str(error)
                select.select([self._to_read], [], [], _REACH_INTERVAL.total_seconds())
                if self._stop_asked:
                    raise StopRequestedError("told to stop while it waited for a server")
        finally:
            self._awaited = None
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self) -> None:
        for part in self._parts:
            if isinstance(part, LoopThread):
                part.start()
        self._started = True

    def run(self) -> int:
        """Start, wait for SIGTERM, SIGINT, `request_stop` or a failure, stop; the exit code.

        To be called by the main thread, to which alone Python delivers signals.
        """
        before = {number: signal.signal(number, self._on_signal) for number in _STOPPING}
        # A signal that comes between the interpreter's last look and the wait, or that the system
        # gives to another thread, interrupts no wait; but it is written into the pipe at once.
        wakeup_before = signal.set_wakeup_fd(self._to_write, warn_on_full_buffer=False)
        try:
            self.start()
            log.info("daemon started")
            self._wait_for_the_end()
            stopped_in_time = self.stop()
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, handler)
        log.info("daemon stopped", extra={"failure": self._failure and self._failure.why})
        return 0 if self._failure is None and stopped_in_time else 1

    def _wait_for_the_end(self) -> None:
        while not self._stop_asked:
            os.read(self._to_read, 1)

    def request_stop(self) -> None:
        """Make `run` end; returns at once, may be called from any thread and any signal handler."""
        self._stop_asked = True
        with contextlib.suppress(BlockingIOError):  # Full: then there is enough to wake up by.
            os.write(self._to_write, b"\0")

    def fail(self, part: str, why: str) -> None:
        """End the daemon with exit code 1; the first failure is the one that is reported."""
        if self._failure is None:
            self._failure = Problem(part=part, why=why)
        self.request_stop()

    def stop(self) -> bool:
        """Stop everything in reverse order; return True if done before the deadline.

        Each part has what is left of the time. A thread that does not end is left behind: it is
        a daemon thread, and what it might still write is fenced like any late write.
        """
        self._stopping = True
        deadline = self._clock.monotonic() + self._stop_within.total_seconds()
        in_time = True
        for part in reversed(self._parts):
            left = timedelta(seconds=deadline - self._clock.monotonic())
            if isinstance(part, LoopThread):
                part.ask_to_stop()
                if not part.join(left):
                    log.warning("loop did not stop in time", extra={"loop": part.name})
                    in_time = False
            else:
                try:
                    part.close()
                except Exception:
                    log.exception("part could not be closed", extra={"part": part.name})
                    in_time = False
        return in_time

    def problems(self) -> list[Problem]:
        """Return the reasons why the daemon is not ready; empty if it is."""
        if self._failure is not None:
            return [self._failure]
        if self._stopping:
            return [Problem(part="daemon", why="stopping")]
        if self._awaited is not None:
            return [Problem(part=AWAITED, why=self._awaited)]
        if not self._started:
            return [Problem(part="daemon", why="starting")]
        found = []
        for part in self._parts:
            if isinstance(part, LoopThread):
                if part.last_pass_at is None:
                    found.append(Problem(part=part.name, why="has not completed a pass yet"))
                elif part.overdue() > self._stuck_after:
                    seconds = part.overdue().total_seconds()
                    found.append(Problem(part=part.name, why=f"stuck for {seconds:.0f} s"))
        for name, why_not in self._checks:
            why = why_not()
            if why is not None:
                found.append(Problem(part=name, why=why))
        return found

    def _loop_died(self, name: str, error: BaseException) -> None:
        log.critical("loop died", extra={"loop": name}, exc_info=error)
        self.fail(name, f"died of {type(error).__name__}")

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.request_stop()


@dataclass(frozen=True, slots=True)
class _Closer:
    name: str
    close: Callable[[], None]
