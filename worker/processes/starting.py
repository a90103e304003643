"""Starts an attempt as a process of this host, below a tiny wrapper in a session of its own.

The wrapper notes its pid and the exit code in the attempt's record, so that neither a task nor its
result needs the daemon to be alive. An attempt that can't be started ends without a process, with
the reason in its log.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
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
    memory_mb: int = 0
    """The memory that its author allows it; 0 is any."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The texts to be masked in its log."""


Prepare: TypeAlias = Callable[[ClaimedTask], Prepared]


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
    ) -> None:
        """`marks`: every process of an attempt is to bear its mark.

        `blame` is told of a start that failed for the worker's own reasons. Without `fork_servers`
        every task gets a new interpreter.
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

    def start(self, task: ClaimedTask) -> None:
        """Start an attempt. Never raises: one that can't be started ends without a process.

        Where the worker itself is at fault, another attempt takes its place without being charged,
        unless so many before it ended like that that the task may be the cause.
        """
        try:
            self._begin(task)
        except Exception as error:
            if is_workers_own(error):
                self._blame(error)
                if len(task.lost_attempts) < _MOST_LOST:
                    reason = f"the worker can't start attempts: {what_failed(error)}"
                    self.refuse(task, TaskState.NEED_FAULT_TOLERANCE, reason)
                    return
            if isinstance(error, SchedulerError):
                self.refuse(task, TaskState.FAILURE, str(error), FailureReason.CONFIGURATION)
            elif isinstance(error, OSError):
                reason = what_failed(error)
                self.refuse(task, TaskState.FAILURE, reason, FailureReason.SUBMIT_FAILED)
            else:
                log.exception("attempt could not be started", extra={"task_instance_id": task.id})
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
        try:
            prepared = self._prepare(task)
            if prepared.account is not None:
                # Else a script that writes to /dev/stderr by name would be refused.
                os.fchown(output, prepared.account.uid, prepared.account.gid)
            task_log.write(output, prepared.header)
            limits = self._limits.lowered(prepared.memory_mb, is_forked=prepared.asks_host)
            record = _record(task, prepared, self._clock, limits=limits)
            process, pidfd = self._spawn(record, prepared, output, limits)
        except BaseException:
            os.close(output)
            if prepared is not None:
                workspace.remove_job(prepared.job_file)
            raise
        attempt = LiveAttempt(
            id=task.id,
            pid=process.pid,
            pidfd=pidfd,
            log=output,
            execute_path=prepared.directory,
            process=process,
            asks_host=prepared.asks_host,
            may_be_lost=len(task.lost_attempts) < _MOST_LOST,
        )
        attempt.describe(record, self._clock)
        attempt.log_mask = mask_of_log(prepared.secrets, prepared.outputs)
        self._accepted.add_facts_file(task.id, record.facts_file)
        self._live.add(attempt)
        if task.submit_time is not None:
            latency = self._clock.now() - task.submit_time
            metrics.dispatch_latency_seconds.observe(latency.total_seconds())

    def _spawn(
        self, record: Record, prepared: Prepared, output: int, limits: Limits
    ) -> tuple[Leader, int]:
        record_file = self._records.begin(record)
        niceness = self._complement_niceness if record.complement else 0
        mark = mark_of(prepared.directory) if self._marks else None
        gate: Gate | ForkedLeader | None = None
        try:
            leader: Leader
            if forked := self._forked(
                record, record_file, prepared, output, limits=limits, niceness=niceness, mark=mark
            ):
                leader = gate = forked
            else:
                gate = None if record.cgroup is None else Gate()
                script = _wrapped(niceness, mark, limits)
                leader = _wrapper(script, record_file, prepared, output, gate)
        except BaseException:
            self._records.remove(record.task_instance_id)
            if gate is not None:
                gate.close()
            raise
        finally:
            os.close(record_file)
        try:
            if record.cgroup is not None:
                limits.admit(leader.pid, record.cgroup)
            pidfd = os.pidfd_open(leader.pid)
            if gate is not None:
                gate.open()
            return leader, pidfd
        except OSError:
            # What can't be watched (for want of file descriptors) or limited must not run.
            signal_group(leader.pid, signal.SIGKILL)
            leader.wait()
            limits.clear(record.cgroup)
            self._records.remove(record.task_instance_id)
            raise
        finally:
            if gate is not None:
                gate.close()

    def _forked(
        self,
        record: Record,
        record_file: int,
        prepared: Prepared,
        output: int,
        *,
        limits: Limits,
        niceness: int,
        mark: int | None,
    ) -> ForkedLeader | None:
        if self._fork_servers is None or not prepared.forks:
            return None
        asked = ToFork(
            argv=prepared.argv,
            environment={**prepared.environment, MARKER: prepared.directory},
            directory=prepared.directory,
            account=prepared.account,
            niceness=niceness,
            mark=mark,
            limits=limits.resource_limits(),
            is_enclosed=record.cgroup is not None,
        )
        known = self._live.leaders()
        return self._fork_servers.fork(asked, record=record_file, output=output, known=known)


def _wrapper(
    script: tuple[str, ...], record_file: int, prepared: Prepared, output: int, gate: Gate | None
) -> Leader:
    # Behind the gate the record comes to its usual place.
    files = (record_file, output, output)
    return spawning.start(
        (*script, "orcaflow", *prepared.argv),
        files=files if gate is None else (gate.reading, output, record_file),
        directory=prepared.directory,
        environment={**prepared.environment, MARKER: prepared.directory},
        account=prepared.account,
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
