"""Goes on with the attempts that a former incarnation of the worker at this address has left.

A *stale attempt* is one of a former incarnation that is not this one's any more: it is killed, and
its end is reported to nobody. An attempt is adopted by its record: a process with its pid that
carries its marker is watched like any other; if that process is gone, the exit code in the record
is its end, and without one the attempt is lost. Everything here runs on the supervisor's thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from common.clock import Clock
from common.model.states import TaskState
from worker import task_log, workspace
from worker.processes import attempt_processes
from worker.processes.accepted import AcceptedAttempts
from worker.processes.attempt_processes import Seen, kill_exactly
from worker.processes.clearing import Clearing
from worker.processes.ending import SWEEPS_GIVE_UP_SECONDS, Ending
from worker.processes.live_attempts import LiveAttempt, LiveAttempts
from worker.processes.outputs import OutputReader
from worker.processes.records import Record, Records
from worker.processes.results import (
    CUT_PUTS_OUT_NOTHING,
    Result,
    explained,
    of_exit_code,
    read_outputs,
    read_what_it_left,
)

log = logging.getLogger(__name__)


class Adoption:
    """Adopts attempts at a worker's start, and ends the stale ones."""

    def __init__(
        self,
        *,
        live: LiveAttempts,
        accepted: AcceptedAttempts,
        records: Records,
        clearing: Clearing,
        ending: Ending,
        clock: Clock,
        log_limit_bytes: int,
    ) -> None:
        self._live = live
        self._accepted = accepted
        self._records = records
        self._clearing = clearing
        self._ending = ending
        self._clock = clock
        self._log_limit = log_limit_bytes

    def adopt(self, adopted: Collection[int], *, step: Callable[[], object]) -> None:
        """Adopt these attempts, and end every other that was left here before this returns.

        `step` is a pass of the supervisor. Stale processes that can't be killed in time are logged.
        """
        ours = frozenset(adopted)
        stale: dict[int, None] = {}
        for task_instance_id in self._records.ids():
            record = self._records.read(task_instance_id)
            if task_instance_id in ours:
                self._adopt(task_instance_id, record)
            elif record is not None and self._take_over(record, stale=True):
                stale[task_instance_id] = None
            else:
                self._clear_stale(task_instance_id, record)
        for task_instance_id in sorted(ours - frozenset(self._records.ids())):
            self._report_lost(task_instance_id, pid=None)
        limit = self._clock.monotonic() + SWEEPS_GIVE_UP_SECONDS
        while any(each in self._live for each in stale):
            if self._clock.monotonic() >= limit:
                log.error(
                    "processes of former attempts can't be killed",
                    extra={"attempts": list(stale)},
                )
                return
            step()

    def _adopt(self, task_instance_id: int, record: Record | None) -> None:
        if record is None:
            self._accepted.add(task_instance_id)
            self._report_lost(task_instance_id, pid=None)
            return
        self._accepted.add(
            task_instance_id, task_type=record.task_type, complement=record.complement
        )
        if self._take_over(record, stale=False):
            return
        workspace.remove_job(record.job_file)
        if record.exit_code is None:
            self._clearing.keep(task_instance_id, record.execute_path, succeeded=False)
            self._report_lost(task_instance_id, pid=record.pid)
            return
        result = of_exit_code(record.exit_code, record.job_file)
        read_what_it_left(result, record.facts_file, record.quality_of)
        self._close_log(record, result)
        succeeded = result.state is TaskState.SUCCESS
        self._clearing.keep(task_instance_id, record.execute_path, succeeded=succeeded)
        self._accepted.report(task_instance_id, result, pid=record.pid)

    def _take_over(self, record: Record, *, stale: bool) -> bool:
        """Watch a process of a former incarnation; False if it is gone."""
        seen = None
        if record.pid is not None:
            seen = attempt_processes.seen_with_marker(record.pid, record.execute_path)
        if seen is None:
            _kill_rest(record)
            return False
        pidfd = attempt_processes.pin(seen)
        if pidfd is None:
            return False
        self._live.add(attempt := self._attempt(record, seen, pidfd, stale=stale))
        log.info(
            "stale attempt is being killed" if stale else "attempt adopted",
            extra={"task_instance_id": attempt.id, "pid": attempt.pid},
        )
        if stale:
            self._ending.kill_at_once(attempt)
        return True

    def _attempt(self, record: Record, seen: Seen, pidfd: int, *, stale: bool) -> LiveAttempt:
        try:
            output = workspace.reopen_log(Path(record.log_path))
        except OSError:
            output = os.open(os.devnull, os.O_RDWR)
        attempt = LiveAttempt(
            id=record.task_instance_id,
            pid=seen.pid,
            pidfd=pidfd,
            log=output,
            execute_path=record.execute_path,
            process=None,
            stale=stale,
        )
        if stale:
            attempt.job_file = record.job_file
        else:
            attempt.describe(record, self._clock)
            self._accepted.add_facts_file(attempt.id, record.facts_file)
        return attempt

    def _clear_stale(self, task_instance_id: int, record: Record | None) -> None:
        if record is not None:
            workspace.remove_job(record.job_file)
            succeeded = record.exit_code == 0
            self._clearing.keep(task_instance_id, record.execute_path, succeeded=succeeded)
        self._clearing.forget(task_instance_id)

    def _report_lost(self, task_instance_id: int, *, pid: int | None) -> None:
        """Nobody knows how it ended, as after a power cut; that is no fault of the task."""
        reason = "its process was gone when the worker came back, and left no exit code"
        result = Result(None, TaskState.NEED_FAULT_TOLERANCE, reason)
        self._accepted.report(task_instance_id, result, pid=pid)

    def _close_log(self, record: Record, result: Result) -> None:
        """Read the outputs of an attempt that ended without a daemon, and write its last line."""
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
                    task_log.write_line(output, CUT_PUTS_OUT_NOTHING)
                reader = OutputReader(record.outputs, output)
                read_outputs(reader, result, reader.read_all)
                if result.state is TaskState.SUCCESS and (taken := reader.summary()):
                    task_log.write_line(output, taken)
            task_log.write_line(output, explained(result))
        except OSError as error:
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": record.task_instance_id, "error": str(error)},
            )
        finally:
            os.close(output)


def _kill_rest(record: Record) -> None:
    """Kill the processes that an attempt without its leader has left behind."""
    paths = {record.execute_path: record.task_instance_id}
    left = attempt_processes.belonging(attempt_processes.scan(), paths=paths, sessions={})
    for each in left.get(record.task_instance_id, []):
        kill_exactly(each)
