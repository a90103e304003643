"""Runs attempts as processes of this host and tells how each ended.

One thread drives all of them through `run_once`, which sleeps in epoll on a pidfd for every
attempt: there is no thread, no poll and no pipe per task. An attempt runs below a tiny wrapper in
a session of its own; the wrapper notes its pid and the exit code in the attempt's record, so that
neither a task nor its result needs the daemon to be alive, and `adopt` can go on where a former
incarnation stopped.

Words: the *leader* is the wrapper, whose pid names the session and the process group. A *stranger*
is an attempt of a former incarnation that is not this one's any more. To *sweep* is to look
through all processes for those of an attempt and kill them; a killed attempt has ended when a
sweep finds none. The leader stays unreaped until then, so that its pid can't come to mean somebody
else. An attempt whose time is out is ended like a killed one, and fails; what an attempt has put
out is read after it has succeeded, a step at each pass.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import subprocess
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal, TypeAlias

from common.clock import Clock
from common.errors import SchedulerError
from common.host import process_start_time
from common.model.failures import FailureReason
from common.model.states import TaskState
from common.runtime import metrics
from common.store.worker.ports import AttemptEnd, ClaimedTask
from worker import task_log, workspace
from worker.attempts import Ended, Started
from worker.loops.track_loop import read_facts
from worker.processes import attempt_processes
from worker.processes.outputs import Declared, OutputReader
from worker.processes.quality_report import quality_log, read_quality
from worker.processes.records import Record, Records
from worker.processes.results import (
    REASON_CHARS,
    Result,
    explained,
    of_exit_code,
    read_outputs,
    timed_out,
    told_of_timeout,
    what_failed,
)
from worker.workspace import Account

DirectoryPolicy: TypeAlias = Literal["never", "on_success", "always"]

log = logging.getLogger(__name__)

_WRAPPER = """trap : TERM INT HUP
echo 300 2>/dev/null >/proc/self/oom_score_adj
echo "pid $$" >&0
"$@" </dev/null
status=$?
echo "exit $status" >&0
exit "$status"
"""
"""Standard input is the record. The traps keep the wrapper alive through a TERM to its group while
its children get the default; all it runs itself are builtins. The kernel is told to take a task
before a daemon when memory runs out."""

_NICE = shutil.which("nice", path=os.defpath)
_NICE_SESSION = "echo {niceness} 2>/dev/null >/proc/self/autogroup || :\n"  # Not on every kernel.
"""A complement gives way in computing too. Where the kernel groups processes by their session, a
process's own niceness counts within the session only; there the session has one too."""

_CUT_PUTS_OUT_NOTHING = "what was cut out of this log puts out no parameters"
_UNKNOWN = "unknown"
_LONGEST_REST = 1.0
_LOG_LOOK_SECONDS = 1.0
_LONG_LIVED_SECONDS = 0.2
_FIRST_SWEEP_REST = 0.005
_LONGEST_SWEEP_REST = 0.5
_LONGEST_LINGER_REST = 0.05
_SWEEPS_GIVE_UP_SECONDS = 30.0
_REMEMBERED_KILLS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An attempt that is ready to run: everything that its process is given."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    header: str
    account: Account | None = None
    outputs: Declared | None = None
    """What the attempt may put out; None if that is nothing. It prints from behind the header."""
    job_file: Path | None = None
    facts_file: Path | None = None
    """Where the attempt may say what it knows of its Spark application."""


Prepare: TypeAlias = Callable[[ClaimedTask], Prepared]


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """A live attempt; only the thread that runs the supervisor touches it."""

    id: int
    pid: int
    pidfd: int
    log: int
    execute_path: str
    process: subprocess.Popen[bytes] | None
    """None for an adopted attempt, whose leader is somebody else's child."""
    stranger: bool = False
    cut: task_log.Cut | None = None
    outputs: Declared | None = None
    job_file: Path | None = None
    facts_file: Path | None = None
    quality_of: Path | None = None
    """The log beside which the attempt reports the results of rules on data."""
    timeout: timedelta | None = None
    times_out_at: float | None = None
    timed_out: bool = False
    reading: OutputReader | None = None
    result: Result | None = None
    """Set along with `reading`: how it ended, but for what it puts out."""
    kill_wanted: bool = False
    is_ending: bool = False
    """It was told to end, because a kill was asked for or because its time is out."""
    abandoned: bool = False
    leader_ended: bool = False
    reaped: int | None = None
    """The leader's return code, once its pid has been given back."""
    lingers_until: float | None = None
    """Set while what a task left in its group may still end by itself."""
    act_at: float | None = None
    """When to go on: to KILL while the leader lives, to the next sweep after that."""
    sweep_rest: float = _FIRST_SWEEP_REST
    give_up_at: float = 0.0


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What is known of every attempt from its start to its end, whether or not it has come to run.

    The type is for the metrics.
    """

    task_type: str = _UNKNOWN
    complement: bool = False


@dataclass(frozen=True, slots=True)
class _Start:
    task: ClaimedTask


@dataclass(frozen=True, slots=True)
class _Kill:
    task_instance_id: int


@dataclass(frozen=True, slots=True)
class _Forget:
    task_instance_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Ended:
    """What is still to be cleared away once an end has been written to the tables."""

    execute_path: str
    succeeded: bool


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
        log_limit_bytes: int,
        directory_policy: DirectoryPolicy,
        remove_directory: Callable[[Path], None],
        complement_niceness: int = 0,
    ) -> None:
        self._prepare = prepare
        self._records = Records(records)
        self._tell_ended = ended
        self._tell_started = started
        self._clock = clock
        self._grace = kill_grace.total_seconds()
        self._log_limit = log_limit_bytes
        self._policy = directory_policy
        self._remove_directory = remove_directory
        self._complement_niceness = complement_niceness
        self._lock = Lock()
        self._accepted: dict[int, _Accepted] = {}
        self._facts_files: dict[int, Path] = {}
        self._messages: deque[_Start | _Kill | _Forget] = deque()
        self._put_off: deque[_Start] = deque()
        self._kill_all_asked = False
        self._attempts: dict[int, _Attempt] = {}
        self._by_pidfd: dict[int, _Attempt] = {}
        self._reading: dict[int, _Attempt] = {}
        self._young: deque[tuple[float, int]] = deque()
        self._kills_before_start: OrderedDict[int, None] = OrderedDict()
        self._ended: dict[int, _Ended] = {}
        self._look_at_logs = 0.0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)

    # What others ask for.

    def start(self, task: ClaimedTask) -> None:
        with self._lock:
            self._accepted[task.id] = _Accepted(task.task_type, task.complement)
        self._send(_Start(task))

    def kill(self, task_instance_id: int) -> None:
        self._send(_Kill(task_instance_id))

    def kill_all(self) -> None:
        self._kill_all_asked = True
        self.wake()

    def running(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._accepted)

    def yielding(self) -> frozenset[int]:
        with self._lock:
            return frozenset(key for key, each in self._accepted.items() if each.complement)

    def facts_files(self) -> Mapping[int, Path]:
        with self._lock:
            return dict(self._facts_files)

    def forget(self, ends: Iterable[AttemptEnd]) -> None:
        """The ends stand in the tables, or nobody wants them: clear away what was kept of them."""
        self._send(_Forget(tuple(end.task_instance_id for end in ends)))

    def wake(self) -> None:
        """Make a `run_once` that is waiting return soon."""
        os.eventfd_write(self._wake, 1)

    def _send(self, message: _Start | _Kill | _Forget) -> None:
        self._messages.append(message)
        self.wake()

    # The loop.

    def run_once(self) -> timedelta:
        """Wait for something to do, for a second at most, and do it. Never asks to be rested."""
        for fd, _ in self._epoll.poll(self._rest()):
            if fd == self._wake:
                os.eventfd_read(self._wake)
            elif (attempt := self._by_pidfd.get(fd)) is not None:
                self._guarded(attempt, self._leader_ended)
        if self._kill_all_asked:
            self._kill_everything()
        self._take_messages()
        for attempt in list(self._reading.values()):
            self._guarded(attempt, self._go_on_reading)
        now = self._clock.monotonic()
        self._tell_long_lived(now)
        self._end_what_is_overdue(now)
        self._go_on_killing(now)
        if self._attempts and now >= self._look_at_logs:
            self._look_at_logs = now + _LOG_LOOK_SECONDS
            for attempt in list(self._attempts.values()):
                if attempt.reading is None:
                    self._cut_log(attempt)
        return timedelta()

    def close(self) -> None:
        """Let go of everything and leave what runs running; nothing can be asked after that."""
        for attempt in self._attempts.values():
            os.close(attempt.pidfd)
            os.close(attempt.log)
        self._attempts.clear()
        self._epoll.close()
        os.close(self._wake)

    def _rest(self) -> float:
        if self._messages or self._put_off or self._kill_all_asked or self._reading:
            return 0.0
        now = self._clock.monotonic()
        due = [a.act_at for a in self._attempts.values() if a.act_at is not None]
        due += [a.times_out_at for a in self._attempts.values() if a.times_out_at is not None]
        if self._young:
            due.append(self._young[0][0])
        if self._attempts:
            due.append(self._look_at_logs)
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
                case _Forget(task_instance_ids):
                    for each in task_instance_ids:
                        self._forget(each)
        if self._put_off:
            self._start(self._put_off.popleft().task)

    # Starting.

    def _start(self, task: ClaimedTask) -> None:
        if task.id in self._kills_before_start:
            del self._kills_before_start[task.id]
            self._refuse(task, TaskState.KILL, "killed before it was started")
            return
        try:
            self._begin(task)
        except SchedulerError as error:
            self._refuse(task, TaskState.FAILURE, str(error), FailureReason.CONFIGURATION)
        except OSError as error:
            self._refuse(task, TaskState.FAILURE, what_failed(error))
        except Exception as error:
            log.exception("attempt could not be started", extra={"task_instance_id": task.id})
            self._refuse(task, TaskState.FAILURE, f"{type(error).__name__}: {error}")

    def _begin(self, task: ClaimedTask) -> None:
        output = workspace.open_log(Path(task.log_path))
        prepared: Prepared | None = None
        try:
            prepared = self._prepare(task)
            if prepared.account is not None:
                # Else a script that writes to /dev/stderr by name would be refused.
                os.fchown(output, prepared.account.uid, prepared.account.gid)
            task_log.write(output, prepared.header)
            record = _record(task, prepared, self._clock)
            process, pidfd = self._spawn(record, prepared, output)
        except BaseException:
            os.close(output)
            if prepared is not None:
                _remove_job(prepared.job_file)
            raise
        attempt = _Attempt(
            id=task.id,
            pid=process.pid,
            pidfd=pidfd,
            log=output,
            execute_path=prepared.directory,
            process=process,
        )
        self._take_from_record(attempt, record)
        self._watch(attempt)
        if task.submit_time is not None:
            latency = self._clock.now() - task.submit_time
            metrics.dispatch_latency_seconds.observe(latency.total_seconds())
        self._young.append((self._clock.monotonic() + _LONG_LIVED_SECONDS, task.id))

    def _spawn(
        self, record: Record, prepared: Prepared, output: int
    ) -> tuple[subprocess.Popen[bytes], int]:
        record_file = self._records.begin(record)
        account = prepared.account
        niceness = self._complement_niceness if record.complement else 0
        try:
            # No preexec_fn: with it, Python would copy the daemon's page tables for every task.
            process = subprocess.Popen(
                (*_wrapped(niceness), "orcaflow", *prepared.argv),
                stdin=record_file,
                stdout=output,
                stderr=output,
                cwd=prepared.directory,
                env={**prepared.environment, attempt_processes.MARKER: prepared.directory},
                start_new_session=True,
                user=None if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else account.groups,
            )
        except BaseException:
            self._records.remove(record.task_instance_id)
            raise
        finally:
            os.close(record_file)
        try:
            return process, os.pidfd_open(process.pid)
        except OSError:
            # Out of file descriptors: what can't be watched must not run.
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            self._records.remove(record.task_instance_id)
            raise

    def _take_from_record(self, attempt: _Attempt, record: Record) -> None:
        """What a new attempt and an adopted one know alike."""
        attempt.outputs = record.outputs
        attempt.job_file = record.job_file
        attempt.facts_file = record.facts_file
        attempt.quality_of = quality_log(record.task_type, record.log_path)
        if record.facts_file is not None:
            with self._lock:
                self._facts_files[attempt.id] = record.facts_file
        if record.timeout is not None and record.times_out_at is not None:
            # From here on by the clock that never jumps; never more than the whole time-out.
            left = min(record.times_out_at - self._clock.now(), record.timeout)
            attempt.timeout = record.timeout
            attempt.times_out_at = self._clock.monotonic() + left.total_seconds()

    def _watch(self, attempt: _Attempt) -> None:
        self._attempts[attempt.id] = attempt
        self._by_pidfd[attempt.pidfd] = attempt
        self._epoll.register(attempt.pidfd, select.EPOLLIN)

    def _refuse(
        self,
        task: ClaimedTask,
        state: TaskState,
        reason: str,
        failure: FailureReason | None = None,
    ) -> None:
        """An end without a process; its reason stands in the log too, if there can be one."""
        try:
            output = workspace.open_log(Path(task.log_path))
            try:
                task_log.write(output, task_log.line(f"not run: {reason}"))
            finally:
                os.close(output)
        except OSError as error:
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": task.id, "path": task.log_path, "error": str(error)},
            )
        self._ended[task.id] = _Ended(task.execute_path, False)
        self._tell(task.id, Result(None, state, reason, failure=failure), pid=None)

    # Killing.

    def _kill(self, task_instance_id: int) -> None:
        attempt = self._attempts.get(task_instance_id)
        if attempt is not None:
            self._kill_attempt(attempt, grace=self._grace)
        elif task_instance_id not in self._ended:
            self._kills_before_start[task_instance_id] = None
            while len(self._kills_before_start) > _REMEMBERED_KILLS:
                self._kills_before_start.popitem(last=False)

    def _kill_everything(self) -> None:
        self._kill_all_asked = False
        waiting, self._messages = self._messages, deque()
        waiting.extend(self._put_off)
        self._put_off.clear()
        while waiting:
            message = waiting.popleft()
            if isinstance(message, _Start):
                self._refuse(
                    message.task, TaskState.NEED_FAULT_TOLERANCE, "the worker lost its session"
                )
            else:
                self._messages.append(message)
        for attempt in list(self._attempts.values()):
            if not attempt.is_ending and not attempt.leader_ended:
                attempt.abandoned = True
            if not attempt.timed_out:
                self._kill_attempt(attempt, grace=0.0)
            elif not attempt.leader_ended:
                self._tell_to_end(attempt, grace=0.0)

    def _kill_attempt(self, attempt: _Attempt, *, grace: float) -> None:
        if attempt.leader_ended and not attempt.timed_out:
            # How it ended is settled; only what is left of it may be hurried.
            if attempt.lingers_until is not None:
                attempt.act_at = attempt.lingers_until = self._clock.monotonic()
            return
        if not attempt.kill_wanted:
            attempt.kill_wanted = True
            self._note(attempt, "a kill was asked for")
        if not attempt.leader_ended:
            self._tell_to_end(attempt, grace=grace)

    def _end_what_is_overdue(self, now: float) -> None:
        for attempt in self._attempts.values():
            if attempt.times_out_at is not None and attempt.times_out_at <= now:
                attempt.times_out_at = None
                if not attempt.leader_ended and not attempt.is_ending:
                    attempt.timed_out = True
                    self._note(attempt, told_of_timeout(attempt.timeout))
                    self._tell_to_end(attempt, grace=self._grace)

    def _tell_to_end(self, attempt: _Attempt, *, grace: float) -> None:
        """TERM at once, KILL when the grace is over; repeated, it can only become sooner."""
        kill_at = self._clock.monotonic() + grace
        if not attempt.is_ending:
            attempt.is_ending = True
            attempt.act_at = kill_at
            if grace:
                _signal_group(attempt.pid, signal.SIGTERM)
        elif attempt.act_at is not None:
            attempt.act_at = min(attempt.act_at, kill_at)

    def _go_on_killing(self, now: float) -> None:
        sweeping: list[_Attempt] = []
        for attempt in list(self._attempts.values()):
            if attempt.act_at is None or attempt.act_at > now:
                continue
            if attempt.lingers_until is not None:
                self._guarded(attempt, self._linger)
            elif attempt.leader_ended:
                sweeping.append(attempt)
            else:
                # Ended leaders are noticed by their pidfd; until then the pid is the group's.
                attempt.act_at = None
                _signal_group(attempt.pid, signal.SIGKILL)
        if sweeping:
            self._sweep(sweeping, now)

    def _sweep(self, attempts: list[_Attempt], now: float) -> None:
        """Kill what is left of attempts whose leader has ended; end those of which nothing is."""
        found = attempt_processes.belonging(
            attempt_processes.look(),
            paths={attempt.execute_path: attempt.id for attempt in attempts},
            # Only an unreaped leader keeps the session's id from meaning somebody else's.
            sessions={a.pid: a.id for a in attempts if a.process is not None and a.reaped is None},
        )
        for attempt in attempts:
            left = found.get(attempt.id, [])
            if left and now < attempt.give_up_at:
                for each in left:
                    _signal_process(each)
                attempt.act_at = now + attempt.sweep_rest
                attempt.sweep_rest = min(2 * attempt.sweep_rest, _LONGEST_SWEEP_REST)
            else:
                self._guarded(attempt, partial(self._finish, left=left))

    # Ending.

    def _leader_ended(self, attempt: _Attempt) -> None:
        self._epoll.unregister(attempt.pidfd)
        del self._by_pidfd[attempt.pidfd]
        attempt.leader_ended = True
        now = self._clock.monotonic()
        if attempt.is_ending or attempt.process is None:
            if attempt.process is not None:
                # The unreaped leader keeps the group's number.
                _signal_group(attempt.pid, signal.SIGKILL)
            self._begin_sweeps(attempt, now)
            return
        attempt.reaped = attempt.process.wait()
        if not attempt_processes.group_lives(attempt.pid):
            self._finish(attempt, left=[])
            return
        # What it has left behind may be a Java machine that is just going down in good order.
        _signal_group(attempt.pid, signal.SIGTERM)
        attempt.lingers_until = now + self._grace
        attempt.act_at = now + attempt.sweep_rest

    def _linger(self, attempt: _Attempt) -> None:
        now = self._clock.monotonic()
        if not attempt_processes.group_lives(attempt.pid):
            self._finish(attempt, left=[])
        elif attempt.lingers_until is not None and now < attempt.lingers_until:
            attempt.act_at = now + attempt.sweep_rest
            attempt.sweep_rest = min(2 * attempt.sweep_rest, _LONGEST_LINGER_REST)
        else:
            attempt.lingers_until = None
            self._note(attempt, "processes that the task had left behind were killed")
            self._begin_sweeps(attempt, now)

    def _begin_sweeps(self, attempt: _Attempt, now: float) -> None:
        attempt.give_up_at = now + _SWEEPS_GIVE_UP_SECONDS
        attempt.sweep_rest = _FIRST_SWEEP_REST
        attempt.act_at = now

    def _finish(self, attempt: _Attempt, *, left: list[attempt_processes.Seen]) -> None:
        result = self._result(attempt)
        if left:
            pids = ", ".join(str(each.pid) for each in left)
            result.reason = f"{result.reason or 'ended'}; these processes can't be killed: {pids}"
        if result.state is TaskState.SUCCESS and attempt.outputs is not None:
            # So that no more is to be read than a log may have.
            self._cut_log(attempt)
            if attempt.cut is not None and attempt.outputs.log_from is not None:
                self._note(attempt, _CUT_PUTS_OUT_NOTHING)
            attempt.act_at = None
            attempt.result = result
            attempt.reading = OutputReader(attempt.outputs, attempt.log)
            self._reading[attempt.id] = attempt
        else:
            self._end(attempt, result)

    def _go_on_reading(self, attempt: _Attempt) -> None:
        reader, result = attempt.reading, attempt.result
        if reader is None or result is None or not read_outputs(reader, result, reader.step):
            return
        if result.state is TaskState.SUCCESS and (told := reader.told()):
            self._note(attempt, told)
        del self._reading[attempt.id]
        self._end(attempt, result)

    def _result(self, attempt: _Attempt) -> Result:
        if attempt.process is not None:
            code = attempt.process.wait()
            exit_code: int | None = code if code >= 0 else 128 - code
        else:
            record = self._records.read(attempt.id)
            exit_code = None if record is None else record.exit_code
        if attempt.abandoned:
            return Result(exit_code, TaskState.NEED_FAULT_TOLERANCE, "the worker lost its session")
        if attempt.kill_wanted:
            return Result(exit_code, TaskState.KILL, "killed")
        if attempt.timed_out:
            return timed_out(exit_code, attempt.timeout)
        return of_exit_code(exit_code, attempt.job_file)

    def _end(self, attempt: _Attempt, result: Result) -> None:
        del self._attempts[attempt.id]
        _read_what_it_left(result, attempt.facts_file, attempt.quality_of)
        os.close(attempt.pidfd)
        _remove_job(attempt.job_file)
        self._cut_log(attempt)
        try:
            _write_line(attempt.log, explained(result))
        except OSError as error:
            if result.state is TaskState.FAILURE:
                result.reason = f"{explained(result)}; its log is cut off: {error.strerror}"
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": attempt.id, "error": str(error)},
            )
        os.close(attempt.log)
        self._ended[attempt.id] = _Ended(attempt.execute_path, result.state is TaskState.SUCCESS)
        if attempt.stranger:
            self._forget(attempt.id)
        else:
            self._tell(attempt.id, result, pid=attempt.pid)

    def _tell(self, task_instance_id: int, result: Result, *, pid: int | None) -> None:
        reason = result.reason
        if reason is not None:
            # PostgreSQL takes no NUL; a reason may quote what a task's author wrote.
            reason = reason.replace("\0", "\\0")[:REASON_CHARS]
        with self._lock:
            task_type = self._accepted.pop(task_instance_id, _Accepted()).task_type
            self._facts_files.pop(task_instance_id, None)
        self._tell_ended(
            AttemptEnd(
                task_instance_id=task_instance_id,
                state=result.state,
                end_time=self._clock.now(),
                exit_code=result.exit_code,
                pid=pid,
                reason=reason,
                var_pool=result.var_pool,
                facts=result.facts,
                quality=result.quality,
                failure=result.failure,
            )
        )
        metrics.task_attempts.labels(state=result.state.name, type=task_type).inc()
        log.info(
            "attempt ended",
            extra={
                "task_instance_id": task_instance_id,
                "state": result.state.name,
                "exit_code": result.exit_code,
                "reason": reason,
            },
        )

    def _forget(self, task_instance_id: int) -> None:
        ended = self._ended.pop(task_instance_id, None)
        self._kills_before_start.pop(task_instance_id, None)
        try:
            self._records.remove(task_instance_id)
            if ended is not None and self._is_to_go(ended):
                self._remove_directory(Path(ended.execute_path))
        except OSError as error:
            log.warning(
                "attempt could not be cleared away",
                extra={"task_instance_id": task_instance_id, "error": str(error)},
            )

    def _is_to_go(self, ended: _Ended) -> bool:
        return self._policy == "always" or (self._policy == "on_success" and ended.succeeded)

    # Going on where a former incarnation stopped.

    def leftovers(self) -> tuple[int, ...]:
        """Attempts that a former incarnation at this address has left a record of."""
        return self._records.ids()

    def adopt(self, adopted: Collection[int]) -> None:
        """Go on with these attempts, and end every other that was left here before this returns.

        Call it before anything else and before any claim is taken. Processes that can't be killed
        in time are only told about.
        """
        ours = frozenset(adopted)
        strangers: dict[int, None] = {}
        for task_instance_id in self._records.ids():
            record = self._records.read(task_instance_id)
            if task_instance_id in ours:
                self._adopt(task_instance_id, record)
            elif record is not None and self._take_over(record, stranger=True):
                strangers[task_instance_id] = None
            else:
                self._clear_stranger(task_instance_id, record)
        for task_instance_id in sorted(ours - frozenset(self._records.ids())):
            self._lost(task_instance_id, pid=None)
        limit = self._clock.monotonic() + _SWEEPS_GIVE_UP_SECONDS
        while any(each in self._attempts for each in strangers):
            if self._clock.monotonic() >= limit:
                log.error(
                    "processes of former attempts can't be killed",
                    extra={"attempts": list(strangers)},
                )
                return
            self.run_once()

    def _adopt(self, task_instance_id: int, record: Record | None) -> None:
        with self._lock:
            self._accepted[task_instance_id] = (
                _Accepted() if record is None else _Accepted(record.task_type, record.complement)
            )
        if record is None:
            self._lost(task_instance_id, pid=None)
        elif not self._take_over(record, stranger=False):
            _remove_job(record.job_file)
            result = None
            if record.exit_code is not None:
                result = of_exit_code(record.exit_code, record.job_file)
                _read_what_it_left(
                    result, record.facts_file, quality_log(record.task_type, record.log_path)
                )
                self._close_log(record, result)
            self._ended[record.task_instance_id] = _Ended(
                record.execute_path, result is not None and result.state is TaskState.SUCCESS
            )
            if result is None:
                self._lost(task_instance_id, pid=record.pid)
            else:
                self._tell(task_instance_id, result, pid=record.pid)

    def _take_over(self, record: Record, *, stranger: bool) -> bool:
        """Watch a process of a former incarnation; False if it is gone."""
        seen = None
        if record.pid is not None:
            seen = attempt_processes.seen_with_marker(record.pid, record.execute_path)
        if seen is None:
            paths = {record.execute_path: record.task_instance_id}
            left = attempt_processes.belonging(attempt_processes.look(), paths=paths, sessions={})
            for each in left.get(record.task_instance_id, []):
                _signal_process(each)
            return False
        pidfd = attempt_processes.pin(seen)
        if pidfd is None:
            return False
        try:
            output = workspace.reopen_log(Path(record.log_path))
        except OSError:
            output = os.open(os.devnull, os.O_RDWR)
        attempt = _Attempt(
            id=record.task_instance_id,
            pid=seen.pid,
            pidfd=pidfd,
            log=output,
            execute_path=record.execute_path,
            process=None,
            stranger=stranger,
        )
        if stranger:
            attempt.job_file = record.job_file
        else:
            self._take_from_record(attempt, record)
        self._watch(attempt)
        log.info(
            "stranger is being killed" if stranger else "attempt adopted",
            extra={"task_instance_id": attempt.id, "pid": attempt.pid},
        )
        if stranger:
            self._kill_attempt(attempt, grace=0.0)
        else:
            self._young.append((self._clock.monotonic(), attempt.id))
        return True

    def _clear_stranger(self, task_instance_id: int, record: Record | None) -> None:
        if record is not None:
            _remove_job(record.job_file)
            self._ended[task_instance_id] = _Ended(record.execute_path, record.exit_code == 0)
        self._forget(task_instance_id)

    def _lost(self, task_instance_id: int, *, pid: int | None) -> None:
        """Nobody knows how it ended, as after a power cut; that is no fault of the task."""
        reason = "its process was gone when the worker came back, and left no exit code"
        self._tell(task_instance_id, Result(None, TaskState.NEED_FAULT_TOLERANCE, reason), pid=pid)

    def _close_log(self, record: Record, result: Result) -> None:
        """Read what the attempt put out while no daemon was here, and say how it ended."""
        try:
            output = workspace.reopen_log(Path(record.log_path))
        except OSError as error:
            if record.outputs is not None and result.state is TaskState.SUCCESS:
                result.state = TaskState.FAILURE
                result.reason = f"what it put out can't be read from its log: {error}"
            return
        try:
            # No more is read at the daemon's start than a log may have.
            cut = task_log.cut(output, limit_bytes=self._log_limit, before=None)
            if record.outputs is not None and result.state is TaskState.SUCCESS:
                if cut is not None and record.outputs.log_from is not None:
                    _write_line(output, _CUT_PUTS_OUT_NOTHING)
                reader = OutputReader(record.outputs, output)
                read_outputs(reader, result, reader.read_all)
                if result.state is TaskState.SUCCESS and (told := reader.told()):
                    _write_line(output, told)
            _write_line(output, explained(result))
        except OSError as error:
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": record.task_instance_id, "error": str(error)},
            )
        finally:
            os.close(output)

    # Small things.

    def _tell_long_lived(self, now: float) -> None:
        while self._young and self._young[0][0] <= now:
            _, task_instance_id = self._young.popleft()
            attempt = self._attempts.get(task_instance_id)
            if attempt is not None and not attempt.leader_ended:
                started = process_start_time(attempt.pid)
                if started is not None:
                    self._tell_started(attempt.id, attempt.pid, started)

    def _cut_log(self, attempt: _Attempt) -> None:
        try:
            attempt.cut = task_log.cut(attempt.log, limit_bytes=self._log_limit, before=attempt.cut)
        except OSError as error:
            log.warning(
                "task log could not be cut",
                extra={"task_instance_id": attempt.id, "error": str(error)},
            )

    def _note(self, attempt: _Attempt, text: str) -> None:
        try:
            _write_line(attempt.log, text)
        except OSError as error:
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": attempt.id, "error": str(error)},
            )

    def _guarded(self, attempt: _Attempt, act: Callable[[_Attempt], None]) -> None:
        """One attempt's trouble must not cost the others their supervisor."""
        try:
            act(attempt)
        except Exception:
            log.exception(
                "attempt could not be ended properly", extra={"task_instance_id": attempt.id}
            )
            self._reading.pop(attempt.id, None)
            if self._attempts.pop(attempt.id, None) is not None:
                self._let_go(attempt)
                reason = "the worker failed to end it properly; see the worker's log"
                self._tell(attempt.id, Result(None, TaskState.FAILURE, reason), pid=attempt.pid)

    def _let_go(self, attempt: _Attempt) -> None:
        """Watch it no more; and what nobody watches must not run."""
        if not attempt.leader_ended or (attempt.process is not None and attempt.reaped is None):
            # Else the number may be somebody else's by now.
            _signal_group(attempt.pid, signal.SIGKILL)
        if self._by_pidfd.pop(attempt.pidfd, None) is not None:
            self._epoll.unregister(attempt.pidfd)
        os.close(attempt.pidfd)
        os.close(attempt.log)
        _remove_job(attempt.job_file)
        self._ended[attempt.id] = _Ended(attempt.execute_path, False)


def _record(task: ClaimedTask, prepared: Prepared, clock: Clock) -> Record:
    return Record(
        task_instance_id=task.id,
        task_type=task.task_type,
        execute_path=prepared.directory,
        log_path=task.log_path,
        complement=task.complement,
        outputs=prepared.outputs,
        job_file=prepared.job_file,
        facts_file=prepared.facts_file,
        times_out_at=None if task.timeout is None else clock.now() + task.timeout,
        timeout=task.timeout,
    )


def _read_what_it_left(result: Result, facts: Path | None, quality_of: Path | None) -> None:
    """Read the files in which an attempt tells of itself; any of them may be missing."""
    if facts is not None:
        result.facts = read_facts(facts)
    if quality_of is not None:
        result.quality = read_quality(quality_of)


def _wrapped(niceness: int) -> tuple[str, ...]:
    if niceness and _NICE is not None:
        # By a program and not from here, for the task may have begun before it were done.
        script = _NICE_SESSION.format(niceness=niceness) + _WRAPPER
        return (_NICE, "-n", str(niceness), "/bin/sh", "-c", script)
    return ("/bin/sh", "-c", _WRAPPER)


def _remove_job(job_file: Path | None) -> None:
    """Who was to read and remove it may have been killed before."""
    if job_file is not None:
        try:
            job_file.unlink(missing_ok=True)
        except OSError as error:
            log.warning(
                "job could not be removed", extra={"path": str(job_file), "error": str(error)}
            )


def _write_line(log_file: int, text: str) -> None:
    """Say something in a log, in a line of its own even if the task has not ended its last one."""
    begin = "" if task_log.ends_with_newline(log_file) else "\n"
    task_log.write(log_file, begin + task_log.line(text))


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        # Every member changed its account, as sudo does.
        log.warning("process group could not be signalled", extra={"pid": pid})


def _signal_process(seen: attempt_processes.Seen) -> None:
    try:
        attempt_processes.signal_exactly(seen, signal.SIGKILL)
    except PermissionError:
        log.warning("process could not be signalled", extra={"pid": seen.pid})
