"""Runs attempts as processes of this host and reports how each ended.

One thread drives all of them through `run_once`, which sleeps in epoll on a pidfd for every
attempt: there is no thread, no poll and no pipe per task. Other threads send it messages; it starts
(`starting`), ends (`ending`) and adopts (`adoption`) attempts, whose state is in `live_attempts`.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from common.clock import Clock
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, ClaimedTask
from worker import task_log
from worker.attempts import Ended, Started
from worker.processes.accepted import AcceptedAttempts
from worker.processes.adoption import Adoption
from worker.processes.clearing import Clearing, DirectoryPolicy
from worker.processes.ending import Ending
from worker.processes.fork_servers import ForkServers
from worker.processes.limits import NO_LIMITS, Limits
from worker.processes.live_attempts import Blame, LiveAttempt, LiveAttempts, SettledLog
from worker.processes.log_cutting import LogCutter
from worker.processes.marks import can_mark
from worker.processes.orphans import Orphans
from worker.processes.records import Records
from worker.processes.results import LOST_SESSION
from worker.processes.shim_link import Shim
from worker.processes.starting import Prepare, Starter
from worker.task_log import Cut

_LONGEST_REST = 1.0
_MASKED_HERE_BYTES = 64 * 1024
_LOG_CHECK_SECONDS = 1.0
_SOON_SECONDS = 0.1
_REAP_SECONDS = 1.0
_UNDISTURBED_SECONDS = 0.004
"""The time for which a start has the processors, before the next one is prepared."""
_LOGGED_AFTER_SECONDS = 0.001
"""An end is logged once its report is on its way."""
_MOST_UNLOGGED = 100
_REMEMBERED_KILLS = 10_000


@dataclass(frozen=True, slots=True)
class _Start:
    task: ClaimedTask


@dataclass(frozen=True, slots=True)
class _Kill:
    task_instance_id: int


@dataclass(frozen=True, slots=True)
class _Abandon:
    task_instance_id: int


@dataclass(frozen=True, slots=True)
class _Forget:
    task_instance_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _LogCut:
    task_instance_id: int
    cut: Cut | None


class Supervisor:
    """The real `LocalAttempts`, driven as a loop by one thread."""

    name = "supervise"

    def __init__(
        self,
        *,
        prepare: Prepare,
        records: Path,
        ended: Ended,
        started: Started,
        clock: Clock,
        kill_grace: timedelta,
        cutter: LogCutter,
        directory_policy: DirectoryPolicy,
        remove_directory: Callable[[Path], None],
        complement_niceness: int = 0,
        adopts_orphans: bool = False,
        limits: Limits = NO_LIMITS,
        blame: Blame = lambda _: None,
        fork_servers: ForkServers | None = None,
        shim: Shim | None = None,
        settled: Callable[[Mapping[int, SettledLog]], None] | None = None,
        asks_by: Callable[[int], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """`blame` is told of starts that fail for the worker's own reasons.

        `settled` is told about once a second which parts of running logs stay as they are.

        `fork_servers` fork PYTHON tasks, and are closed with this; without them none is forked.
        `shim` starts programs that need no wrapper, and is closed too; it is of use only where
        orphans come to this process.

        `asks_by` returns the variables by which an attempt reaches this worker. Their values are
        also masked in the logs of adopted attempts.

        `adopts_orphans`: this process becomes the parent of what its attempts leave behind.

        That makes ends cheaper; without it, every end looks at all processes of the host.
        """
        bears_marks = can_mark()
        self._orphans = Orphans(adopts=adopts_orphans and bears_marks)
        self._clock = clock
        self._cutter = cutter
        self._records = Records(records)
        self._shim = shim
        used_shim = shim if self._orphans.adopts else None
        self._live = LiveAttempts(started=started, clock=clock, shim=used_shim)
        self._accepted = AcceptedAttempts(ended=ended, clock=clock)
        self._clearing = Clearing(
            records=self._records, policy=directory_policy, remove_directory=remove_directory
        )
        self._starter = Starter(
            prepare=prepare,
            live=self._live,
            accepted=self._accepted,
            records=self._records,
            clearing=self._clearing,
            clock=clock,
            complement_niceness=complement_niceness,
            marks=bears_marks,
            limits=limits,
            blame=blame,
            fork_servers=fork_servers,
            shim=used_shim,
            sweep=self._sweep,
        )
        self._fork_servers = fork_servers
        self._tell_settled = settled
        self._ending = Ending(
            live=self._live,
            accepted=self._accepted,
            records=self._records,
            clearing=self._clearing,
            orphans=self._orphans,
            bears_marks=bears_marks,
            limits=limits,
            blame=blame,
            clock=clock,
            grace_seconds=kill_grace.total_seconds(),
            cut_log=self._cut_log,
        )
        self._adoption = Adoption(
            live=self._live,
            accepted=self._accepted,
            records=self._records,
            clearing=self._clearing,
            ending=self._ending,
            clock=clock,
            log_limit_bytes=cutter.limit_bytes,
            asks_by=asks_by,
        )
        self._messages: deque[_Start | _Kill | _Abandon | _Forget | _LogCut] = deque()
        self._put_off: deque[_Start] = deque()
        self._kill_all_asked = False
        self._kills_before_start: OrderedDict[int, None] = OrderedDict()
        self._check_logs_at = 0.0
        self._reap_at = 0.0
        self._prepare_at = math.inf
        self._log_ends_at = math.inf

    # The port, for any thread.

    def start(self, task: ClaimedTask) -> None:
        self._accepted.add(
            task.id,
            task_type=task.task_type,
            complement=task.complement,
            execute_path=task.execute_path,
        )
        self._send(_Start(task))

    def kill(self, task_instance_id: int) -> None:
        self._send(_Kill(task_instance_id))

    def abandon(self, task_instance_id: int) -> None:
        self._send(_Abandon(task_instance_id))

    def kill_all(self) -> None:
        self._kill_all_asked = True
        self.wake()

    def running(self) -> frozenset[int]:
        return self._accepted.running()

    def uid_of(self, task_instance_id: int) -> int | None:
        """Return the uid of a running attempt; None if it is unknown."""
        return self._accepted.uid_of(task_instance_id)

    def uids(self) -> frozenset[int]:
        """Return the uids of the running attempts."""
        found = map(self._accepted.uid_of, self._accepted.running())
        return frozenset(each for each in found if each is not None)

    def yielding(self) -> frozenset[int]:
        return self._accepted.yielding()

    def waiting(self) -> int:
        # Those of complements wait for all others, so that nothing waits for them.
        return max(0, len(self._accepted) - len(self._live) - len(self._put_off))

    def facts_files(self) -> Mapping[int, Path]:
        return self._accepted.facts_files()

    def forget(self, ends: Iterable[AttemptEnd]) -> None:
        """Clear away the files of attempts whose ends are in the tables, or wanted by nobody."""
        self._send(_Forget(tuple(end.task_instance_id for end in ends)))

    def wake(self) -> None:
        """Make a `run_once` that is waiting return soon."""
        self._live.wake()

    def _send(self, message: _Start | _Kill | _Abandon | _Forget | _LogCut) -> None:
        self._messages.append(message)
        self.wake()

    # The worker's start, before any claim is taken.

    def leftovers(self) -> tuple[int, ...]:
        """Return the attempts of which a former incarnation at this address has left a record."""
        return self._records.ids()

    def adopt(self, adopted: Collection[int]) -> None:
        """Go on with these attempts, and end every other that was left here before this returns.

        Call it before anything else and before any claim is taken. Processes that can't be killed
        in time are only logged.
        """
        self._adoption.adopt(adopted, step=self.run_once)

    # The loop.

    def run_once(self) -> timedelta:
        """Wait for something to do, for a second at most, and do it. Never asks to be rested."""
        for attempt in self._live.wait(self._rest()):
            self._ending.on_leader_exit(attempt)
        self._starter.take_answers()
        for attempt in self._live.told():
            self._ending.on_leader_exit(attempt)
        if self._kill_all_asked:
            self._starter.settle()
            self._kill_everything()
        self._take_messages()
        self._ending.step_reading()
        now = self._clock.monotonic()
        self._live.report_starts(now)
        self._ending.end_overdue(now)
        self._ending.step(now)
        if self._live and now >= self._check_logs_at:
            if self._tell_settled is not None:
                self._tell_settled(
                    {
                        each.id: each.settled_log(self._cutter.limit_bytes)
                        for each in self._live
                        if not (each.is_being_cut or each.stale)
                    }
                )
            # All are looked at, one that was cut a moment ago soon again.
            cut = [self._cut_log(attempt) for attempt in self._live if attempt.reading is None]
            self._check_logs_at = now + (_SOON_SECONDS if any(cut) else _LOG_CHECK_SECONDS)
        if now >= self._reap_at:
            self._reap_at = now + _REAP_SECONDS
            self._orphans.reap(self._live)
            if self._shim is not None:
                self._shim.tend()
            if self._fork_servers is not None:
                self._fork_servers.tend(self._live.leaders())
        self._log_ends(now)
        if now >= self._prepare_at and self._fork_servers is not None and not self._messages:
            self._prepare_at = math.inf
            self._fork_servers.prepare()
        return timedelta()

    def close(self) -> None:
        """Close everything and leave what runs running; nothing can be asked after that."""
        if self._fork_servers is not None:
            self._fork_servers.close()
        self._starter.settle()
        self._accepted.log_ends()
        self._live.close()
        if self._shim is not None:
            self._shim.close()
        self._orphans.close()

    def _log_ends(self, now: float) -> None:
        number = self._accepted.number_unlogged
        if number and self._log_ends_at == math.inf:
            self._log_ends_at = now + _LOGGED_AFTER_SECONDS
        elif now >= self._log_ends_at and (number >= _MOST_UNLOGGED or not self._messages):
            self._accepted.log_ends()
            self._log_ends_at = math.inf

    def _rest(self) -> float:
        if self._messages or self._put_off or self._kill_all_asked or self._ending.is_reading:
            return 0.0
        now = self._clock.monotonic()
        due = [*self._live.due(), self._prepare_at, self._log_ends_at]
        if self._live:
            due.append(self._check_logs_at)
        return min(max(0.0, min(due, default=now + _LONGEST_REST) - now), _LONGEST_REST)

    def _take_messages(self) -> None:
        """Take what was asked for, but start one attempt only: ends come before further starts.

        Those of complements come last of all, so that many at once keep nobody else waiting.
        """
        while self._messages:
            match self._messages.popleft():
                case _Start(task) if task.complement:
                    self._put_off.append(_Start(task))
                case _Start(task):
                    self._start(task)
                    return
                case _Kill(task_instance_id):
                    self._kill(task_instance_id)
                case _LogCut(task_instance_id, cut):
                    self._take_cut(task_instance_id, cut)
                case _Abandon(task_instance_id):
                    self._abandon(task_instance_id)
                case _Forget(task_instance_ids):
                    for each in task_instance_ids:
                        self._kills_before_start.pop(each, None)
                        self._clearing.forget(each)
        if self._put_off:
            self._start(self._put_off.popleft().task)

    def _sweep(self, attempt: LiveAttempt) -> None:
        self._ending.end_without_leader(attempt)

    def _start(self, task: ClaimedTask) -> None:
        if task.id in self._kills_before_start:
            del self._kills_before_start[task.id]
            self._starter.refuse(task, TaskState.KILL, "killed before it was started")
        else:
            self._starter.start(task)
            if self._fork_servers is not None and self._fork_servers.lack_a_leader():
                self._prepare_at = self._clock.monotonic() + _UNDISTURBED_SECONDS

    def _kill(self, task_instance_id: int) -> None:
        self._starter.settle()
        attempt = self._live.get(task_instance_id)
        if attempt is not None:
            self._ending.kill(attempt)
        elif task_instance_id not in self._clearing:
            self._kills_before_start[task_instance_id] = None
            while len(self._kills_before_start) > _REMEMBERED_KILLS:
                self._kills_before_start.popitem(last=False)

    def _cut_log(self, attempt: LiveAttempt) -> bool:
        """Have a log cut that is too long, and masked; return whether that is under way."""
        mask = attempt.log_mask
        if attempt.is_being_cut:
            return True
        is_too_long = task_log.is_too_long(attempt.log, self._cutter.limit_bytes)
        left_bytes = 0 if mask is None else mask.left_bytes(attempt.log)
        is_small = 0 < left_bytes <= _MASKED_HERE_BYTES and not is_too_long
        if mask is not None and is_small and mask.is_quick:
            # The cutter's thread would take longer to answer than this takes.
            mask.mask(attempt.log)
        elif is_too_long or left_bytes:
            attempt.is_being_cut = True
            done = partial(self._log_cut, attempt.id)
            self._cutter.cut(attempt.id, attempt.log, before=attempt.cut, mask=mask, done=done)
        return attempt.is_being_cut

    def _log_cut(self, task_instance_id: int, cut: Cut | None) -> None:
        self._send(_LogCut(task_instance_id, cut))

    def _take_cut(self, task_instance_id: int, cut: Cut | None) -> None:
        attempt = self._live.get(task_instance_id)
        if attempt is not None:
            attempt.take_cut(cut)
            self._ending.on_log_cut(attempt)

    def _abandon(self, task_instance_id: int) -> None:
        self._starter.settle()
        attempt = self._live.get(task_instance_id)
        if attempt is not None:
            self._ending.abandon(attempt)
            return
        # Messages are taken in order: a start that came before this was made, or put off.
        for waiting in [each for each in self._put_off if each.task.id == task_instance_id]:
            self._put_off.remove(waiting)
            self._starter.refuse(waiting.task, TaskState.NEED_FAULT_TOLERANCE, LOST_SESSION)

    def _kill_everything(self) -> None:
        self._kill_all_asked = False
        waiting, self._messages = self._messages, deque()
        waiting.extend(self._put_off)
        self._put_off.clear()
        while waiting:
            message = waiting.popleft()
            if isinstance(message, _Start):
                self._starter.refuse(message.task, TaskState.NEED_FAULT_TOLERANCE, LOST_SESSION)
            else:
                self._messages.append(message)
        self._ending.abandon_all()
