"""Starts an attempt as a process of this host, in a session of its own.

A program that may lead the session is the child of a shim (`shim_link`); others, and those that
need limits, an account or niceness, get a tiny wrapper. Either notes the pid and the exit code in
the attempt's record, so that neither a task nor its result needs the daemon to be alive. An attempt
that can't be started ends without a process, with the reason in its log.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from common.clock import Clock
from common.errors import SchedulerError
from common.model.failures import FailureReason
from common.model.states import TaskState
from common.runtime import metrics
from common.store.worker.ports import ClaimedTask
from worker import task_log, workspace
from worker.processes import spawning
from worker.processes.accepted import AcceptedAttempts
from worker.processes.attempt_processes import MARKER, signal_group
from worker.processes.clearing import Clearing
from worker.processes.fork_servers import ForkedLeader, ForkServers, ToFork
from worker.processes.limits import GATE_LINES, Gate, Limits
from worker.processes.live_attempts import (
    Blame,
    Leader,
    LiveAttempt,
    LiveAttempts,
    mask_of_log,
)
from worker.processes.marks import mark_of, shell_line
from worker.processes.outputs import Declared
from worker.processes.records import Record, Records
from worker.processes.results import Result, is_workers_own, what_failed
from worker.processes.shim_link import Answer, Shim, ShimLeader, ShimLostError
from worker.workspace import Account

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

_MOST_LOST = 10
_NICE = shutil.which("nice", path=os.defpath)
_NICE_SESSION = "echo {niceness} 2>/dev/null >/proc/self/autogroup || :\n"  # Not on every kernel.
"""A complement gives way in computing too. Where the kernel groups processes by their session, a
process's own niceness counts within the session only; there the session has one too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An attempt that is ready to run: everything that its process is given."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    header: str
    account: Account | None = None
    outputs: Declared | None = None
    """The outputs of the attempt; None if it has none. It prints them from behind the header."""
    job_file: Path | None = None
    facts_file: Path | None = None
    """The file in which the attempt may tell of its Spark application."""
    asks_host: bool = False
    """Its processes may be children of the Spark host."""
    keeps_children: bool = False
    """Processes that are left when it ends by itself may live on."""
    forks: bool = False
    """A fork server may run it: `argv` is PYTHON -u SCRIPT WORD…"""
    leads: bool = False
    """Its program may lead the session itself."""
    memory_mb: int = 0
    """The memory that its author allows it; 0 is any."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The texts to be masked in its log."""
    secret_names: tuple[str, ...] = ()
    """The parameters that their author marked as secret."""
    masked_from: int = 0
    """The offset from which its log is masked, which skips a header without secrets."""


Prepare: TypeAlias = Callable[[ClaimedTask], Prepared]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """An attempt that has its record and is about to get its process."""

    task: ClaimedTask
    prepared: Prepared
    record: Record
    record_file: int
    output: int
    limits: Limits
    niceness: int
    mark: int | None

    def environment(self) -> dict[str, str]:
        return {**self.prepared.environment, MARKER: self.prepared.directory}

    def needs_shell(self) -> bool:
        """Return whether its process has to be set up by more than its start."""
        return bool(
            self.prepared.account is not None
            or self.niceness
            or self.record.cgroup is not None
            or self.limits.resource_limits()
        )


class Starter:
    """Starts attempts, one at a call; used by the supervisor's thread alone."""

    def __init__(
        self,
        *,
        prepare: Prepare,
        live: LiveAttempts,
        accepted: AcceptedAttempts,
        records: Records,
        clearing: Clearing,
        clock: Clock,
        complement_niceness: int,
        marks: bool,
        limits: Limits,
        blame: Blame,
        fork_servers: ForkServers | None,
        shim: Shim | None,
        sweep: Callable[[LiveAttempt], None],
    ) -> None:
        """`marks`: every process of an attempt is to bear its mark.

        `blame` is told of a start that failed for the worker's own reasons. Without `fork_servers`
        every task gets a new interpreter, and without `shim` every program a wrapper. `sweep` ends
        an attempt of which nobody knows whether it has begun.
        """
        self._prepare = prepare
        self._live = live
        self._accepted = accepted
        self._records = records
        self._clearing = clearing
        self._clock = clock
        self._complement_niceness = complement_niceness
        self._marks = marks
        self._limits = limits
        self._blame = blame
        self._fork_servers = fork_servers
        self._shim = shim
        self._sweep = sweep
        self._asked: deque[_Begun] = deque()
        """Those that the shim is to start, in the order of its answers."""

    def start(self, task: ClaimedTask) -> None:
        """Start an attempt. Never raises: one that can't be started ends without a process.

        Where the worker itself is at fault, another attempt takes its place without being charged,
        unless so many before it ended like that that the task may be the cause. What the shim
        starts is live with its answer (`take_answers`).
        """
        try:
            self._begin(task)
        except Exception as error:  # noqa: BLE001  # One attempt's trouble is its own end.
            self._fail(task, error)

    def take_answers(self) -> None:
        """Go on with the attempts for which the shim has answered."""
        for answer in () if self._shim is None else self._shim.answers():
            begun = self._asked.popleft()
            try:
                self._take_answer(begun, answer)
            except Exception as error:  # noqa: BLE001  # As of a start.
                self._live.expect_no_more(begun.task.id)
                self._fail(begun.task, error)

    def settle(self) -> None:
        """Wait until the shim has answered for every attempt, and go on with them."""
        while self._asked and self._shim is not None:
            self._shim.await_answer()
            self.take_answers()

    def _take_answer(self, begun: _Begun, answer: Answer) -> None:
        if isinstance(answer, ShimLostError):
            self._end_unknown(begun, answer)
        elif answer is None:
            self._begin_here(begun)
        else:
            os.close(begun.record_file)
            self._watch(begun, answer, gate=None)

    def _fail(self, task: ClaimedTask, error: Exception) -> None:
        if is_workers_own(error):
            self._blame(error)
            if len(task.lost_attempts) < _MOST_LOST:
                reason = f"the worker can't start attempts: {what_failed(error)}"
                self.refuse(task, TaskState.NEED_FAULT_TOLERANCE, reason)
                return
        if isinstance(error, SchedulerError):
            failure = getattr(error, "failure", FailureReason.CONFIGURATION)
            self.refuse(task, TaskState.FAILURE, str(error), failure)
        elif isinstance(error, OSError):
            reason = what_failed(error)
            self.refuse(task, TaskState.FAILURE, reason, FailureReason.SUBMIT_FAILED)
        else:
            log.error(
                "attempt could not be started",
                extra={"task_instance_id": task.id},
                exc_info=error,
            )
            reason = f"{type(error).__name__}: {error}"
            self.refuse(task, TaskState.FAILURE, reason, FailureReason.SUBMIT_FAILED)

    def refuse(
        self,
        task: ClaimedTask,
        state: TaskState,
        reason: str,
        failure: FailureReason | None = None,
    ) -> None:
        """End an attempt that has no process; its log gets the reason too, if it can be written."""
        try:
            output = workspace.open_log(task.log_path)
            try:
                task_log.write(output, task_log.line(f"not run: {reason}"))
            finally:
                os.close(output)
        except OSError as error:
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": task.id, "path": task.log_path, "error": str(error)},
            )
        self._clearing.keep(task.id, task.execute_path, succeeded=False)
        self._accepted.report(task.id, Result(None, state, reason, failure=failure), pid=None)

    def _begin(self, task: ClaimedTask) -> None:
        output = workspace.open_log(task.log_path)
        prepared: Prepared | None = None
        record_file = None
        try:
            prepared = self._prepare(task)
            if prepared.account is not None:
                # Else a script that writes to /dev/stderr by name would be refused.
                os.fchown(output, prepared.account.uid, prepared.account.gid)
            task_log.write(output, prepared.header)
            limits = self._limits.lowered(prepared.memory_mb, is_forked=prepared.asks_host)
            record = _record(task, prepared, self._clock, limits=limits)
            record_file = self._records.begin(record)
            begun = _Begun(
                task=task,
                prepared=prepared,
                record=record,
                record_file=record_file,
                output=output,
                limits=limits,
                niceness=self._complement_niceness if record.complement else 0,
                mark=mark_of(prepared.directory) if self._marks else None,
            )
            if self._asks_shim(begun):
                self._asked.append(begun)
                self._live.expect(task.id, prepared.directory)
                return
        except BaseException:
            _give_up(output, record_file, prepared)
            if record_file is not None:
                self._records.remove(task.id)
            raise
        self._begin_here(begun)

    def _asks_shim(self, begun: _Begun) -> bool:
        """Ask the shim to start an attempt; False if it needs a wrapper."""
        prepared = begun.prepared
        if self._shim is None or not prepared.leads or begun.needs_shell():
            return False
        return self._shim.ask(
            prepared.argv,
            record=begun.record_file,
            output=begun.output,
            directory=prepared.directory,
            environment=begun.environment(),
            mark=begun.mark,
        )

    def _begin_here(self, begun: _Begun) -> None:
        """Start an attempt by a fork server or a wrapper, as a child of this process."""
        gate: Gate | ForkedLeader | None = None
        try:
            leader: Leader
            if forked := self._forked(begun):
                leader = gate = forked
            else:
                gate = None if begun.record.cgroup is None else Gate()
                leader = _wrapper(begun, gate)
        except BaseException:
            self._records.remove(begun.record.task_instance_id)
            _give_up(begun.output, begun.record_file, begun.prepared)
            if gate is not None:
                gate.close()
            raise
        os.close(begun.record_file)
        self._watch(begun, leader, gate)

    def _watch(self, begun: _Begun, leader: Leader, gate: Gate | ForkedLeader | None) -> None:
        """Watch what has been started, and let it go on if it waits."""
        task, record, prepared = begun.task, begun.record, begun.prepared
        try:
            if record.cgroup is not None:
                begun.limits.admit(leader.pid, record.cgroup)
            pidfd = os.pidfd_open(leader.pid)
            if gate is not None:
                gate.open()
        except OSError:
            # What can't be watched (for want of file descriptors) or limited must not run.
            signal_group(leader.pid, signal.SIGKILL)
            leader.wait()
            begun.limits.clear(record.cgroup)
            self._records.remove(record.task_instance_id)
            _give_up(begun.output, None, prepared)
            raise
        finally:
            if gate is not None:
                gate.close()
        attempt = LiveAttempt(
            id=task.id,
            pid=leader.pid,
            pidfd=pidfd,
            log=begun.output,
            execute_path=prepared.directory,
            process=leader,
            by_shim=isinstance(leader, ShimLeader),
            asks_host=prepared.asks_host,
            may_be_lost=len(task.lost_attempts) < _MOST_LOST,
        )
        attempt.describe(record, self._clock)
        attempt.log_mask = mask_of_log(
            prepared.secrets, prepared.outputs, begin=prepared.masked_from
        )
        self._accepted.add_facts_file(task.id, record.facts_file)
        self._live.add(attempt)
        if task.submit_time is not None:
            latency = self._clock.now() - task.submit_time
            metrics.dispatch_latency_seconds.observe(latency.total_seconds())

    def _end_unknown(self, begun: _Begun, why: ShimLostError) -> None:
        """End what may have begun; another attempt takes its place, unless it may be the cause."""
        os.close(begun.record_file)
        is_lost = len(begun.task.lost_attempts) < _MOST_LOST
        attempt = LiveAttempt(
            id=begun.task.id,
            pid=0,
            pidfd=None,
            log=begun.output,
            execute_path=begun.prepared.directory,
            process=None,
            by_shim=is_lost,
            abandoned=str(why) if is_lost else "",
        )
        attempt.describe(begun.record, self._clock)
        self._live.add(attempt)
        self._sweep(attempt)

    def _forked(self, begun: _Begun) -> ForkedLeader | None:
        prepared = begun.prepared
        if self._fork_servers is None or not prepared.forks:
            return None
        asked = ToFork(
            argv=prepared.argv,
            environment=begun.environment(),
            directory=prepared.directory,
            account=prepared.account,
            niceness=begun.niceness,
            mark=begun.mark,
            limits=begun.limits.resource_limits(),
            is_enclosed=begun.record.cgroup is not None,
        )
        return self._fork_servers.fork(
            asked, record=begun.record_file, output=begun.output, known=self._live.leaders()
        )


def _give_up(output: int, record_file: int | None, prepared: Prepared | None) -> None:
    os.close(output)
    if record_file is not None:
        os.close(record_file)
    if prepared is not None:
        workspace.remove_job(prepared.job_file)


def _wrapper(begun: _Begun, gate: Gate | None) -> Leader:
    script = _wrapped(begun.niceness, begun.mark, begun.limits)
    # Behind the gate the record comes to its usual place.
    files = (begun.record_file, begun.output, begun.output)
    return spawning.start(
        (*script, "orcaflow", *begun.prepared.argv),
        files=files if gate is None else (gate.reading, begun.output, begun.record_file),
        directory=begun.prepared.directory,
        environment=begun.environment(),
        account=begun.prepared.account,
    )


def _record(task: ClaimedTask, prepared: Prepared, clock: Clock, *, limits: Limits) -> Record:
    return Record(
        task_instance_id=task.id,
        task_type=task.task_type,
        execute_path=prepared.directory,
        log_path=task.log_path,
        complement=task.complement,
        outputs=prepared.outputs,
        job_file=prepared.job_file,
        facts_file=prepared.facts_file,
        keeps_children=prepared.keeps_children,
        cgroup=limits.cgroup_of(task.id),
        memory_mb=limits.memory_mb,
        times_out_at=None if task.timeout is None else clock.now() + task.timeout,
        timeout=task.timeout,
        secret_names=prepared.secret_names,
        notes_apart=prepared.account is not None,
    )


def _wrapped(niceness: int, mark: int | None, limits: Limits) -> tuple[str, ...]:
    script = limits.shell_lines() + _WRAPPER
    if limits and limits.base is not None:
        script = GATE_LINES + script
    if mark is not None:
        script = shell_line(mark) + script
    if niceness and _NICE is not None:
        # By a program and not from here, for the task may have begun before it were done.
        script = _NICE_SESSION.format(niceness=niceness) + script
        return (_NICE, "-n", str(niceness), "/bin/sh", "-c", script)
    return ("/bin/sh", "-c", script)
