"""Goes on with the attempts that a former incarnation of the worker at this address has left.

A *stale attempt* is one of a former incarnation that is not this one's any more: it is killed, and
its end is reported to nobody. An attempt is adopted by its record: a process with its pid that
carries its marker is watched like any other; if that process is gone, the exit code in the record
is its end, and without one the attempt is lost. Everything here runs on the supervisor's thread.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from common.clock import Clock
from common.masking import secrets_in
from common.model.states import TaskState
from worker import task_log, workspace
from worker.log_masking import LogMask, secrets_left_in
from worker.processes import attempt_processes
from worker.processes.accepted import AcceptedAttempts
from worker.processes.attempt_processes import Seen, belonging, scan
from worker.processes.clearing import Clearing
from worker.processes.ending import NOTE_REST, NOTE_SECONDS, SWEEPS_GIVE_UP_SECONDS, Ending
from worker.processes.live_attempts import LiveAttempt, LiveAttempts, mask_of_log
from worker.processes.outputs import OutputReader
from worker.processes.records import Record, Records
from worker.processes.results import (
    CUT_PUTS_OUT_NOTHING,
    Result,
    ended_for,
    explained,
    killed,
    of_exit_code,
    read_outputs,
    read_what_it_left,
    timed_out,
)

log = logging.getLogger(__name__)

_GONE = "its process was gone when the worker came back, and left no exit code"


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
        asks_by: Callable[[int], Mapping[str, str]],
    ) -> None:
        self._live = live
        self._accepted = accepted
        self._records = records
        self._clearing = clearing
        self._ending = ending
        self._clock = clock
        self._log_limit = log_limit_bytes
        self._asks_by = asks_by
        self._noted_by = clock.monotonic()
        """The time until which shims of former incarnations are waited for."""

    def adopt(self, adopted: Collection[int], *, step: Callable[[], object]) -> None:
        """Adopt these attempts, and end every other that was left here before this returns.

        `step` is a pass of the supervisor. Stale processes that can't be killed in time are logged.
        """
        ours = frozenset(adopted)
        self._noted_by = self._clock.monotonic() + NOTE_SECONDS
        stale: dict[int, None] = {}
        records = {each: self._records.read(each) for each in self._records.ids()}
        paths = {each.execute_path: key for key, each in records.items() if each is not None}
        found = belonging(scan(), paths=paths, sessions={}) if paths else {}
        for task_instance_id, record in records.items():
            left = found.get(task_instance_id, [])
            if task_instance_id in ours:
                self._adopt(task_instance_id, record, left)
            elif record is not None and self._take_over(record, left, stale=True):
                stale[task_instance_id] = None
            else:
                self._clear_stale(task_instance_id, record)
        for task_instance_id in sorted(ours.difference(records)):
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

    def _adopt(self, task_instance_id: int, record: Record | None, left: list[Seen]) -> None:
        if record is None:
            self._accepted.add(task_instance_id)
            self._report_lost(task_instance_id, pid=None)
            return
        self._accepted.add(
            task_instance_id,
            task_type=record.task_type,
            complement=record.complement,
            execute_path=record.execute_path,
        )
        if self._take_over(record, left, stale=False):
            return
        # The job file has some of them.
        secrets = self._secrets(record)
        workspace.remove_job(record.job_file)
        if record.exit_code is None:
            record = self._noted(record)
        if record.exit_code is None and record.ended_for is None:
            self._clearing.keep(task_instance_id, record.execute_path, succeeded=False)
            self._report_lost(task_instance_id, pid=record.pid)
            return
        if record.kill_wanted:
            result = killed(record.exit_code)
        elif record.timed_out:
            result = timed_out(record.exit_code, record.timeout)
        elif record.exit_code != 0 and record.ended_for is not None:
            result = ended_for(record.exit_code, record.ended_for)
        else:
            result = of_exit_code(record.exit_code, record.job_file)
        read_what_it_left(result, record.facts_file, record.quality_of)
        self._close_log(record, result, secrets)
        succeeded = result.state is TaskState.SUCCESS
        self._clearing.keep(task_instance_id, record.execute_path, succeeded=succeeded)
        self._accepted.report(task_instance_id, result, pid=record.pid)

    def _take_over(self, record: Record, left: list[Seen], *, stale: bool) -> bool:
        """Watch the processes of a former incarnation; False if nothing of the attempt runs."""
        seen = None
        if record.pid is not None:
            seen = attempt_processes.seen_with_marker(record.pid, record.execute_path)
        pidfd = None if seen is None else attempt_processes.pin(seen)
        if pidfd is None and not left:
            return False
        if pidfd is None and stale and record.keeps_children and record.exit_code is not None:
            # It has ended by itself and stands in the tables; only its record was left.
            return False
        attempt = self._attempt(record, pidfd, stale=stale)
        if pidfd is None and record.exit_code is None:
            attempt.abandoned = _GONE
        self._live.add(attempt)
        log.info(
            "stale attempt is being killed" if stale else "attempt adopted",
            extra={"task_instance_id": attempt.id, "pid": attempt.pid, "left": len(left)},
        )
        if pidfd is None:
            self._ending.end_without_leader(attempt)
        elif stale:
            self._ending.kill_at_once(attempt)
        return True

    def _noted(self, record: Record) -> Record:
        """Return the record as it is once a shim has noted what it knows.

        It reaps what it has noted. One that is stuck is waited for a second, for all its attempts.
        """
        while (
            record.by_shim
            and record.pid is not None
            and attempt_processes.is_ended_and_unreaped(record.pid)
            and self._clock.monotonic() < self._noted_by
        ):
            # The shim is another daemon's: its progress can only be polled.
            time.sleep(NOTE_REST)
        return self._records.read(record.task_instance_id) or record

    def _attempt(self, record: Record, pidfd: int | None, *, stale: bool) -> LiveAttempt:
        try:
            output = workspace.reopen_log(Path(record.log_path))
        except OSError:
            output = os.open(os.devnull, os.O_RDWR)
        attempt = LiveAttempt(
            id=record.task_instance_id,
            pid=record.pid or 0,
            pidfd=pidfd,
            log=output,
            execute_path=record.execute_path,
            process=None,
            by_shim=record.by_shim,
            stale=stale,
        )
        attempt.log_mask = mask_of_log(self._secrets(record), record.outputs)
        if stale:
            attempt.job_file = record.job_file
        else:
            attempt.describe(record, self._clock)
            self._accepted.add_facts_file(attempt.id, record.facts_file)
        return attempt

    def _secrets(self, record: Record) -> tuple[str, ...]:
        """Return the secrets to mask in the log of an attempt of a former incarnation."""
        left = secrets_left_in(record.execute_path, record.secret_names, record.job_file)
        return (*left, *secrets_in(self._asks_by(record.task_instance_id)))

    def _clear_stale(self, task_instance_id: int, record: Record | None) -> None:
        if record is not None:
            workspace.remove_job(record.job_file)
            succeeded = record.exit_code == 0
            self._clearing.keep(task_instance_id, record.execute_path, succeeded=succeeded)
        self._clearing.forget(task_instance_id)

    def _report_lost(self, task_instance_id: int, *, pid: int | None) -> None:
        """Nobody knows how it ended, as after a power cut; that is no fault of the task."""
        result = Result(None, TaskState.NEED_FAULT_TOLERANCE, _GONE)
        self._accepted.report(task_instance_id, result, pid=pid)

    def _close_log(self, record: Record, result: Result, secrets: tuple[str, ...]) -> None:
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
            mask = mask_of_log(secrets, record.outputs)
            act = task_log.cut if mask is None else mask.cut
            cut = act(output, limit_bytes=self._log_limit, before=None)
            spans: Sequence[tuple[int, int]] = ()
            if record.outputs is not None and result.state is TaskState.SUCCESS:
                if cut is not None and record.outputs.log_from is not None:
                    task_log.write_line(output, CUT_PUTS_OUT_NOTHING)
                known = mask or LogMask((), spares_outputs=False)
                reader = OutputReader(record.outputs, output, holds_secret=known.is_in)
                read_outputs(reader, result, reader.read_all)
                spans = reader.secret_spans
                if result.state is TaskState.SUCCESS and (taken := reader.summary()):
                    task_log.write_line(output, taken)
            if mask is not None or spans:
                (mask or LogMask((), spares_outputs=False)).finish(output, spans)
            task_log.write_line(output, explained(result))
        except OSError as error:
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": record.task_instance_id, "error": str(error)},
            )
        finally:
            os.close(output)
