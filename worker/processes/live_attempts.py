"""The attempts that have processes here, and the epoll that reports the end of their leaders.

The *leader* of an attempt, its wrapper or the child of a shim, has the pid that names the session
and the process group. One thread owns all of this, the supervisor's; `LiveAttempts.wake` alone may
be called from another.
"""

from __future__ import annotations

import logging
import os
import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeAlias

from common.clock import Clock
from common.process_identity import process_start_time
from worker import task_log
from worker.attempts import Started
from worker.log_masking import LogMask
from worker.processes.attempt_processes import Seen
from worker.processes.outputs import Declared, OutputReader
from worker.processes.records import Record
from worker.processes.results import Result
from worker.processes.shim_link import Shim, ShimLeader

log = logging.getLogger(__name__)

Blame: TypeAlias = Callable[[BaseException], None]
"""Told of what kept attempts from running for the worker's own reasons. It must not wait."""

_LONG_LIVED_SECONDS = 0.2
_LINE_AT_A_CUT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SettledLog:
    """The part of a running attempt's log that stays as it is.

    `puts_out`: values that it puts out may be masked in it at its end.
    """

    end: int
    puts_out: bool


class Leader(Protocol):
    """The leader of an attempt, as a child of this process."""

    @property
    def pid(self) -> int:
        """Its pid, which is nobody else's before it was waited for."""
        ...

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None until it was waited for."""
        ...

    def wait(self) -> int:
        """Wait for its end, and reap it; return the exit code."""
        ...


@dataclass(slots=True, kw_only=True)
class LiveAttempt:
    """An attempt whose processes are not known to be gone."""

    id: int
    pid: int
    """The leader's; 0 if the leader had ended before its pid was noted."""
    pidfd: int | None
    """None if the leader had ended before anybody watched it."""
    log: int
    execute_path: str
    process: Leader | None
    """None for an adopted attempt, whose leader is somebody else's child."""
    by_shim: bool = False
    """A shim has started the leader, so that there is no wrapper."""
    noted_until: float | None = None
    """Set while the end of the leader waits for the shim of a former incarnation to note it."""
    stale: bool = False
    """It is an attempt of a former incarnation that is not this one's any more."""
    cut: task_log.Cut | None = None
    is_being_cut: bool = False
    """Another thread cuts or masks the log: nothing may be written to it, nor may it be closed."""
    held_notes: list[str] = field(default_factory=list)
    """Lines for the log that wait for that."""
    ends_after_cut: Callable[[], None] | None = None
    """The next step of its end, if that waits for it."""
    log_mask: LogMask | None = None
    """The masking of the log; None if the attempt knows no secret."""
    outputs: Declared | None = None
    job_file: Path | None = None
    facts_file: Path | None = None
    asks_host: bool = False
    may_be_lost: bool = False
    """Another attempt may take its place without being charged, as after the worker's own fault."""
    keeps_children: bool = False
    cgroup: Path | None = None
    """Its own, with limits; None if it has none."""
    memory_mb: int = 0
    """The memory that it may have; 0 is any."""
    quality_of: Path | None = None
    """The log beside which the attempt reports the results of rules on data."""
    timeout: timedelta | None = None
    times_out_at: float | None = None
    timed_out: bool = False
    reading: OutputReader | None = None
    result: Result | None = None
    """The end of the attempt, but for its outputs; set along with `reading`."""
    kill_wanted: bool = False
    is_ending: bool = False
    """It was told to end, because a kill was asked for or because its time is out."""
    abandoned: str = ""
    """The reason for which nobody wants the attempt's end any more, if there is one."""
    leader_ended: bool = False
    awaited_until: float | None = None
    """Set while the processes that a task has left behind may end by themselves."""
    awaited: tuple[Seen, ...] = ()
    """Those processes, once they have been told to end."""
    act_at: float | None = None
    """The time to go on: to KILL while the leader lives, to the next sweep after that."""
    sweep_rest: float = 0.0
    give_up_at: float = 0.0

    @property
    def was_told_to_end(self) -> bool:
        """True if this incarnation or a former one has told it to end."""
        return self.is_ending or self.kill_wanted or self.timed_out

    def describe(self, record: Record, clock: Clock) -> None:
        """Take over the facts that a started attempt and an adopted one have in common."""
        self.outputs = record.outputs
        self.job_file = record.job_file
        self.facts_file = record.facts_file
        self.keeps_children = record.keeps_children
        self.cgroup = record.cgroup
        self.memory_mb = record.memory_mb
        self.quality_of = record.quality_of
        self.kill_wanted = record.kill_wanted
        self.timed_out = record.timed_out
        if record.timeout is not None and record.times_out_at is not None:
            # From here on by the clock that never jumps; never more than the whole time-out.
            left = min(record.times_out_at - clock.now(), record.timeout)
            self.timeout = record.timeout
            self.times_out_at = clock.monotonic() + left.total_seconds()

    def close(self) -> None:
        """Close the attempt's descriptors."""
        if self.pidfd is not None:
            os.close(self.pidfd)
        os.close(self.log)

    def note(self, text: str) -> None:
        """Write a line of Orcaflow's into the attempt's log; a full disk costs that line only."""
        if self.is_being_cut:
            self.held_notes.append(text)
            return
        try:
            task_log.write_line(self.log, text)
        except OSError as error:
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": self.id, "error": str(error)},
            )

    def settled_log(self, limit_bytes: int) -> SettledLog:
        """Return what nothing is masked in any more, nor cut out of; not while it is being cut."""
        size = os.fstat(self.log).st_size
        end = size if self.log_mask is None else self.log_mask.settled
        puts_out = self.outputs is not None and self.outputs.log_from is not None
        return SettledLog(min(end, limit_bytes // 2 - _LINE_AT_A_CUT_BYTES), puts_out)

    def take_cut(self, cut: task_log.Cut | None) -> None:
        """Go on with a log that was cut."""
        self.cut, self.is_being_cut = cut, False
        held, self.held_notes = self.held_notes, []
        for text in held:
            self.note(text)


def mask_of_log(
    secrets: Sequence[str], outputs: Declared | None, *, begin: int = 0
) -> LogMask | None:
    """Return the masking of an attempt's log; None if the attempt has no secret.

    Masking starts at the offset `begin`.
    """
    if not secrets:
        return None
    spares = outputs is not None and outputs.log_from is not None
    return LogMask(secrets, spares_outputs=spares, begin=begin)


class LiveAttempts:
    """The table of live attempts, by id and by the pidfd of the leader."""

    def __init__(self, *, started: Started, clock: Clock, shim: Shim | None) -> None:
        self._shim = shim
        self._report_started = started
        self._clock = clock
        self._attempts: dict[int, LiveAttempt] = {}
        self._expected: dict[int, str] = {}
        """The directories of those that the shim has been asked to start."""
        self._by_pidfd: dict[int, LiveAttempt] = {}
        self._of_shim: dict[int, LiveAttempt] = {}
        """By pid: those whose ends the shim tells."""
        self._young: deque[tuple[float, int]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        if shim is not None:
            self._epoll.register(shim, select.EPOLLIN)

    def __iter__(self) -> Iterator[LiveAttempt]:
        """Iterate over a copy: whoever looks through the attempts may end some."""
        return iter(list(self._attempts.values()))

    def __contains__(self, task_instance_id: object) -> bool:
        return task_instance_id in self._attempts

    def __len__(self) -> int:
        return len(self._attempts)

    def get(self, task_instance_id: int) -> LiveAttempt | None:
        """Return the attempt; None if it has no process here."""
        return self._attempts.get(task_instance_id)

    def leaders(self) -> frozenset[int]:
        """Return the pids of unreaped leaders that are children of this process or of its shim.

        The shim's own is among them.
        """
        shim = None if self._shim is None else self._shim.pid
        return frozenset(
            each.pid
            for each in self._attempts.values()
            if each.process is not None and each.process.returncode is None
        ).union(() if shim is None else (shim,))

    def expect(self, task_instance_id: int, execute_path: str) -> None:
        """Know of an attempt that may have processes before it is added."""
        self._expected[task_instance_id] = execute_path

    def expect_no_more(self, task_instance_id: int) -> None:
        """Forget an attempt that was expected, and has no process."""
        self._expected.pop(task_instance_id, None)

    def paths(self) -> frozenset[str]:
        """Return the directories of all attempts that may have processes."""
        known = (each.execute_path for each in self._attempts.values())
        return frozenset((*known, *self._expected.values()))

    def add(self, attempt: LiveAttempt) -> None:
        """Watch an attempt, and report its start once it has lived for a while.

        The start of an adopted attempt is reported at once, that of a stale one never.
        """
        self._attempts[attempt.id] = attempt
        self._expected.pop(attempt.id, None)
        if isinstance(attempt.process, ShimLeader):
            self._of_shim[attempt.pid] = attempt
        else:
            self._watch(attempt)
        if not attempt.stale:
            delay = 0.0 if attempt.process is None else _LONG_LIVED_SECONDS
            self._young.append((self._clock.monotonic() + delay, attempt.id))

    def _watch(self, attempt: LiveAttempt) -> None:
        if attempt.pidfd is not None:
            self._by_pidfd[attempt.pidfd] = attempt
            self._epoll.register(attempt.pidfd, select.EPOLLIN)

    def unwatch(self, attempt: LiveAttempt) -> None:
        """Wait for the attempt's leader no more; harmless when repeated."""
        if self._of_shim.get(attempt.pid) is attempt:
            del self._of_shim[attempt.pid]
        if attempt.pidfd is not None and self._by_pidfd.pop(attempt.pidfd, None) is not None:
            self._epoll.unregister(attempt.pidfd)

    def remove(self, task_instance_id: int) -> LiveAttempt | None:
        """Take an attempt out of the table; None if it is not there any more."""
        return self._attempts.pop(task_instance_id, None)

    def wait(self, seconds: float) -> list[LiveAttempt]:
        """Sleep until something happens, or so long; return the attempts whose leader has ended."""
        ended = []
        shim = self._shim
        if shim is not None:
            shim.flush()
            if shim.has_news():
                seconds = 0.0
        for fd, _ in self._epoll.poll(seconds):
            if fd == self._wake:
                os.eventfd_read(self._wake)
            elif (attempt := self._by_pidfd.get(fd)) is not None:
                ended.append(attempt)
            elif shim is not None and fd == shim.fileno():
                shim.hear()
        return ended

    def told(self) -> Iterator[LiveAttempt]:
        """Yield the attempts of whose leader's end the shim has told; after its answers are taken.

        Those that the shim watches no more are watched here from then on.
        """
        if self._shim is None:
            return
        for leader in self._shim.ended():
            if (attempt := self._of_shim.get(leader.pid)) is not None:
                yield attempt
        for leader in self._shim.orphaned():
            if (attempt := self._of_shim.pop(leader.pid, None)) is not None:
                self._watch(attempt)

    def wake(self) -> None:
        """Make a `wait` return soon."""
        os.eventfd_write(self._wake, 1)

    def due(self) -> Iterator[float]:
        """Yield the times at which something is to be done for an attempt."""
        for attempt in self._attempts.values():
            if attempt.act_at is not None:
                yield attempt.act_at
            if attempt.times_out_at is not None:
                yield attempt.times_out_at
        if self._young:
            yield self._young[0][0]

    def report_starts(self, now: float) -> None:
        """Report the start of each attempt that has lived long enough to be worth it."""
        while self._young and self._young[0][0] <= now:
            _, task_instance_id = self._young.popleft()
            attempt = self._attempts.get(task_instance_id)
            if attempt is not None and not attempt.leader_ended:
                started = process_start_time(attempt.pid)
                if started is not None:
                    self._report_started(attempt.id, attempt.pid, started)

    def close(self) -> None:
        """Close every descriptor, and leave the processes running."""
        for attempt in self._attempts.values():
            attempt.close()
        self._attempts.clear()
        self._epoll.close()
        os.close(self._wake)
