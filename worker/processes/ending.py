"""Ends live attempts: by a kill, by a time-out, or because their leader has ended by itself.

A killed attempt gets TERM, a grace period, and KILL. To *sweep* is to look through all processes
for those of an attempt and kill them. The attempt has ended when a sweep finds none, or after
`SWEEPS_GIVE_UP_SECONDS`; its reason then names the processes that are left. The leader stays
unreaped until then, so that its pid can't come to mean somebody else. An attempt whose time is out
is ended in the same way, and fails. Processes that a task leaves behind get TERM and the grace
period too, before they are swept, unless its author wants them alive. The outputs of an attempt are
read after it has succeeded, a step at each pass. Everything here runs on the supervisor's thread.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from common.clock import Clock
from common.model.states import TaskState
from worker import task_log, workspace
from worker.log_masking import LogMask
from worker.processes import attempt_processes
from worker.processes.accepted import AcceptedAttempts
from worker.processes.attempt_processes import Seen, end_exactly, kill_exactly, signal_group
from worker.processes.clearing import Clearing
from worker.processes.limits import Limits
from worker.processes.live_attempts import Blame, LiveAttempt, LiveAttempts
from worker.processes.orphans import Orphans
from worker.processes.outputs import OutputReader
from worker.processes.records import Records
from worker.processes.results import (
    CUT_PUTS_OUT_NOTHING,
    LOST_SESSION,
    Result,
    ended_for,
    explained,
    killed,
    may_not_have_forked,
    of_exit_code,
    read_outputs,
    read_what_it_left,
    timed_out,
    timeout_reason,
    what_failed,
    without_room,
)

log = logging.getLogger(__name__)

SWEEPS_GIVE_UP_SECONDS = 30.0
"""The longest that an attempt's processes are swept before it ends in spite of them."""
NOTE_SECONDS, NOTE_REST = 1.0, 0.002
"""The longest wait for a shim to note an exit, and the rest between two looks."""
KILLED_LATE = "killed before it had ended by itself"
"""In the log of an attempt: whatever it works for elsewhere may not have confirmed its end."""
_FIRST_SWEEP_REST = 0.005
_LONGEST_SWEEP_REST = 0.5
_LONGEST_AWAITED_REST = 0.05
_NAMED_LEFT = 10
_SHIM_GONE = "the worker and its shim were killed, so its result is unknown"


class Ending:
    """Ends attempts, a step at each pass of the supervisor."""

    def __init__(
        self,
        *,
        live: LiveAttempts,
        accepted: AcceptedAttempts,
        records: Records,
        clearing: Clearing,
        orphans: Orphans,
        bears_marks: bool,
        limits: Limits,
        blame: Blame,
        clock: Clock,
        grace_seconds: float,
        cut_log: Callable[[LiveAttempt], bool],
    ) -> None:
        """`bears_marks`: the processes of attempts bear marks, so no environment need be read.

        `blame` is told of attempts that did not run for the worker's own reasons. `cut_log` has a
        log cut that is too long; it returns False if there is nothing to be waited for.
        """
        self._live = live
        self._accepted = accepted
        self._records = records
        self._clearing = clearing
        self._orphans = orphans
        self._bears_marks = bears_marks
        self._limits = limits
        self._blame = blame
        self._clock = clock
        self._grace = grace_seconds
        self._cut_log = cut_log
        self._reading: dict[int, LiveAttempt] = {}

    @property
    def is_reading(self) -> bool:
        """True while the outputs of an attempt are being read."""
        return bool(self._reading)

    def kill(self, attempt: LiveAttempt) -> None:
        """Kill an attempt, with the grace period."""
        self._kill(attempt, grace=self._grace)

    def kill_at_once(self, attempt: LiveAttempt) -> None:
        """Kill an attempt without a grace period."""
        self._kill(attempt, grace=0.0)

    def abandon_all(self) -> None:
        """Abandon every attempt."""
        for attempt in self._live:
            self.abandon(attempt)

    def abandon(self, attempt: LiveAttempt) -> None:
        """Kill an attempt without a grace period: others may start the same task now."""
        if not attempt.is_ending and not attempt.leader_ended:
            attempt.abandoned = LOST_SESSION
        if not attempt.timed_out:
            self._kill(attempt, grace=0.0)
        elif not attempt.leader_ended:
            self._begin_to_end(attempt, grace=0.0)

    def end_overdue(self, now: float) -> None:
        """Begin to end the attempts whose time is out."""
        for attempt in self._live:
            if attempt.times_out_at is not None and attempt.times_out_at <= now:
                attempt.times_out_at = None
                if not attempt.leader_ended and not attempt.is_ending:
                    attempt.timed_out = True
                    if not attempt.stale:
                        self._records.note_timeout(attempt.id)
                    attempt.note(timeout_reason(attempt.timeout))
                    self._begin_to_end(attempt, grace=self._grace)

    def step(self, now: float) -> None:
        """Take each step that is due: a KILL after the grace period, a wait, or a sweep."""
        sweeping: list[LiveAttempt] = []
        awaiting: list[LiveAttempt] = []
        for attempt in self._live:
            if attempt.act_at is None or attempt.act_at > now:
                continue
            if attempt.noted_until is not None:
                self.on_leader_exit(attempt)
            elif attempt.awaited_until is not None:
                awaiting.append(attempt)
            elif attempt.leader_ended:
                sweeping.append(attempt)
            else:
                # Ended leaders are noticed by their pidfd; until then the pid is the group's.
                attempt.act_at = None
                attempt.note(KILLED_LATE)
                signal_group(attempt.pid, signal.SIGKILL)
        if awaiting:
            self._await(awaiting, now)
        if sweeping:
            self._sweep(sweeping, now)

    def on_leader_exit(self, attempt: LiveAttempt) -> None:
        """Take the result of an attempt whose leader has ended, or begin to sweep first."""
        self._guarded(attempt, self._on_leader_exit)

    def end_without_leader(self, attempt: LiveAttempt) -> None:
        """End an attempt whose leader ended while nobody watched, and which left processes."""
        attempt.leader_ended = True
        if attempt.stale or attempt.abandoned or attempt.was_told_to_end:
            self._begin_sweeps(attempt, self._clock.monotonic())
        else:
            self._begin_to_await(attempt, self._clock.monotonic())

    def step_reading(self) -> None:
        """Read a step of the outputs of each attempt that has succeeded."""
        for attempt in list(self._reading.values()):
            self._guarded(attempt, self._read)

    # Killing.

    def _kill(self, attempt: LiveAttempt, *, grace: float) -> None:
        if attempt.leader_ended and not attempt.timed_out:
            # How it ended is settled; only what is left of it may be hurried.
            if attempt.awaited_until is not None:
                attempt.act_at = attempt.awaited_until = self._clock.monotonic()
            return
        if not attempt.kill_wanted:
            attempt.kill_wanted = True
            if not (attempt.abandoned or attempt.stale):
                self._records.note_kill(attempt.id)
            attempt.note("a kill was asked for")
        if not attempt.leader_ended:
            self._begin_to_end(attempt, grace=grace)

    def _begin_to_end(self, attempt: LiveAttempt, *, grace: float) -> None:
        """Send TERM at once, and KILL after the grace period; a repeated call can shorten that."""
        kill_at = self._clock.monotonic() + grace
        if not attempt.is_ending:
            attempt.is_ending = True
            attempt.act_at = kill_at
            if grace:
                signal_group(attempt.pid, signal.SIGTERM)
        elif attempt.act_at is not None:
            attempt.act_at = min(attempt.act_at, kill_at)

    def _sweep(self, attempts: list[LiveAttempt], now: float) -> None:
        """Kill the processes left by ended leaders; end each attempt without any, or overdue."""
        for attempt in attempts:
            self._limits.kill(attempt.cgroup)
        forking = {
            attempt.id
            for attempt in attempts
            if self._orphans.kill(attempt.execute_path, self._live)
            or self._limits.holds_any(attempt.cgroup)
        }
        found = _left_by(attempts, attempt_processes.scan())
        for attempt in attempts:
            left = found.get(attempt.id, [])
            if (left or attempt.id in forking) and now < attempt.give_up_at:
                for each in left:
                    kill_exactly(each)
                attempt.act_at = now + attempt.sweep_rest
                attempt.sweep_rest = min(2 * attempt.sweep_rest, _LONGEST_SWEEP_REST)
            else:
                if left or attempt.id in forking:
                    # The ends of others must not wait for them as well.
                    self._orphans.spare(attempt.execute_path, self._live)
                self._guarded(attempt, partial(self._take_result, left=left))

    # After the leader's end.

    def _on_leader_exit(self, attempt: LiveAttempt) -> None:
        self._live.unwatch(attempt)
        now = self._clock.monotonic()
        # Before any wait: from here on no kill may reach for its pid.
        attempt.leader_ended = True
        if attempt.process is None and attempt.by_shim and self._awaits_note(attempt, now):
            return
        if attempt.was_told_to_end:
            if attempt.process is not None:
                # The unreaped leader keeps the group's number.
                signal_group(attempt.pid, signal.SIGKILL)
            self._begin_sweeps(attempt, now)
            return
        if attempt.process is not None and self._bears_marks:
            # What it left may wait for its pid to be gone, and is found without the session.
            attempt.process.wait()
        if self._may_have_left(attempt):
            self._begin_to_await(attempt, now)
        else:
            self._take_result(attempt, left=[])

    def _awaits_note(self, attempt: LiveAttempt, now: float) -> bool:
        """Return whether the shim of a former incarnation has not noted the leader's end yet.

        It reaps what it has noted. One that is stuck is waited for a second.
        """
        if attempt.noted_until is None:
            attempt.noted_until = now + NOTE_SECONDS
        if now < attempt.noted_until and attempt_processes.is_unreaped(attempt.pidfd):
            attempt.act_at = now + NOTE_REST
            return True
        attempt.noted_until = attempt.act_at = None
        return False

    def _may_have_left(self, attempt: LiveAttempt) -> bool:
        # An adopted attempt's orphans, and those of the Spark host's forks, may be init's children.
        if attempt.process is None or attempt.asks_host or self._limits.holds_any(attempt.cgroup):
            return True
        return self._orphans.may_be_left(attempt.execute_path, self._live)

    def _hides_some(self, attempt: LiveAttempt) -> bool:
        """Return whether there are processes that a look at all of them does not find."""
        if self._limits.holds_any(attempt.cgroup):
            return True
        return self._orphans.adopts and self._orphans.may_be_left(attempt.execute_path, self._live)

    def _begin_to_await(self, attempt: LiveAttempt, now: float) -> None:
        attempt.awaited_until = now + self._grace
        attempt.sweep_rest = _FIRST_SWEEP_REST
        attempt.act_at = now

    def _await(self, attempts: list[LiveAttempt], now: float) -> None:
        """Look what ended leaders have left; end each attempt without any, sweep the overdue."""
        looking = []
        for attempt in attempts:
            attempt.awaited = tuple(filter(attempt_processes.lives, attempt.awaited))
            if (
                attempt.awaited
                and attempt.awaited_until is not None
                and now < attempt.awaited_until
            ):
                self._rest_awaiting(attempt, now)
            else:
                looking.append(attempt)
        if looking:
            found = _left_by(looking, self._scan(looking))
            for attempt in looking:
                self._guarded(attempt, partial(self._await_exit, left=found.get(attempt.id, [])))

    def _scan(self, attempts: list[LiveAttempt]) -> Iterator[Seen]:
        if self._bears_marks and all(attempt.process is not None for attempt in attempts):
            return attempt_processes.scan_marked([each.execute_path for each in attempts])
        # A former incarnation may have been of a version that marked nothing.
        return attempt_processes.scan()

    def _await_exit(self, attempt: LiveAttempt, *, left: list[Seen]) -> None:
        now = self._clock.monotonic()
        if attempt.keeps_children:
            if left:
                attempt.note(f"its processes live on, as params.keepChildren asks: {_named(left)}")
            self._orphans.spare(attempt.execute_path, self._live)
            attempt.awaited_until = attempt.act_at = None
            self._take_result(attempt, left=[])
        elif not left and not self._hides_some(attempt):
            attempt.awaited_until = attempt.act_at = None
            self._take_result(attempt, left=[])
        elif left and attempt.awaited_until is not None and now < attempt.awaited_until:
            attempt.note(f"the task left processes behind, which are told to end: {_named(left)}")
            for each in left:
                # What it has left may be a Java machine that is just going down in good order.
                end_exactly(each)
            attempt.awaited = tuple(left)
            self._rest_awaiting(attempt, now)
        else:
            attempt.awaited_until = None
            attempt.note("processes that the task had left behind were killed")
            self._begin_sweeps(attempt, now)

    def _rest_awaiting(self, attempt: LiveAttempt, now: float) -> None:
        attempt.act_at = now + attempt.sweep_rest
        attempt.sweep_rest = min(2 * attempt.sweep_rest, _LONGEST_AWAITED_REST)

    def _begin_sweeps(self, attempt: LiveAttempt, now: float) -> None:
        attempt.give_up_at = now + SWEEPS_GIVE_UP_SECONDS
        attempt.sweep_rest = _FIRST_SWEEP_REST
        attempt.act_at = now

    # The result.

    def on_log_cut(self, attempt: LiveAttempt) -> None:
        """Go on with an attempt whose end waited for its log."""
        go_on, attempt.ends_after_cut = attempt.ends_after_cut, None
        if go_on is not None:
            self._guarded(attempt, lambda _: go_on())

    def _take_result(self, attempt: LiveAttempt, *, left: list[Seen]) -> None:
        # So that no more is to be read than a log may have.
        if attempt.is_being_cut:
            attempt.act_at = None
            # Its last lines may have come after that was begun.
            attempt.ends_after_cut = partial(self._take_result, attempt, left=left)
        elif self._cut_log(attempt):
            attempt.act_at = None
            attempt.ends_after_cut = partial(self._take_known, attempt, left=left)
        else:
            self._take_known(attempt, left=left)

    def _take_known(self, attempt: LiveAttempt, *, left: list[Seen]) -> None:
        result = self._result(attempt)
        if left:
            pids = ", ".join(str(each.pid) for each in left)
            result.reason = f"{result.reason or 'ended'}; these processes can't be killed: {pids}"
        if result.state is TaskState.SUCCESS and attempt.outputs is not None:
            if attempt.cut is not None and attempt.outputs.log_from is not None:
                attempt.note(CUT_PUTS_OUT_NOTHING)
            attempt.act_at = None
            attempt.result = result
            mask = attempt.log_mask or LogMask((), spares_outputs=False)
            attempt.reading = OutputReader(attempt.outputs, attempt.log, holds_secret=mask.is_in)
            self._reading[attempt.id] = attempt
        else:
            if attempt.log_mask is not None:
                attempt.log_mask.finish(attempt.log)
            self._report_end(attempt, result)

    def _read(self, attempt: LiveAttempt) -> None:
        reader, result = attempt.reading, attempt.result
        if reader is None or result is None or not read_outputs(reader, result, reader.step):
            return
        if result.state is TaskState.SUCCESS and (taken := reader.summary()):
            attempt.note(taken)
        if attempt.log_mask is not None or reader.secret_spans:
            mask = attempt.log_mask or LogMask((), spares_outputs=False)
            mask.finish(attempt.log, reader.secret_spans)
        del self._reading[attempt.id]
        self._report_end(attempt, result)

    def _result(self, attempt: LiveAttempt) -> Result:
        if attempt.process is not None:
            code = attempt.process.wait()
            exit_code: int | None = code if code >= 0 else 128 - code
        else:
            record = self._records.read(attempt.id)
            exit_code = None if record is None else record.exit_code
        if attempt.abandoned:
            return Result(exit_code, TaskState.NEED_FAULT_TOLERANCE, attempt.abandoned)
        if attempt.kill_wanted:
            return killed(exit_code)
        if attempt.timed_out:
            return timed_out(exit_code, attempt.timeout)
        if exit_code != 0 and (reason := self._records.ended_for(attempt.id)) is not None:
            return ended_for(exit_code, reason)
        if attempt.by_shim and exit_code is None:
            return Result(None, TaskState.NEED_FAULT_TOLERANCE, _SHIM_GONE)
        if (
            attempt.may_be_lost
            and not attempt.by_shim
            and may_not_have_forked(exit_code)
            and not self._limits.kept_from_forking(attempt.cgroup)
            and self._never_ran(attempt)
        ):
            error = BlockingIOError(errno.EAGAIN, "the attempt's wrapper could start no process")
            self._blame(error)
            return Result(exit_code, TaskState.NEED_FAULT_TOLERANCE, what_failed(error))
        return of_exit_code(exit_code, attempt.job_file)

    def _never_ran(self, attempt: LiveAttempt) -> bool:
        """Return whether the wrapper ended before the task did.

        Else its record has the task's exit code, unless that did not fit.
        """
        record = self._records.read(attempt.id)
        return record is not None and record.exit_code is None and self._records.have_room()

    def _report_end(self, attempt: LiveAttempt, result: Result) -> None:
        self._live.remove(attempt.id)
        read_what_it_left(result, attempt.facts_file, attempt.quality_of)
        self._limits.explain(result, attempt.cgroup, attempt.log, memory_mb=attempt.memory_mb)
        self._limits.clear(attempt.cgroup)
        _tell_full_volumes(attempt, result)
        workspace.remove_job(attempt.job_file)
        try:
            task_log.write_line(attempt.log, explained(result))
        except OSError as error:
            if result.state in (TaskState.FAILURE, TaskState.SUCCESS):
                result.reason = f"{explained(result)}; its log is cut off: {error.strerror}"
            log.warning(
                "task log could not be written",
                extra={"task_instance_id": attempt.id, "error": str(error)},
            )
        attempt.close()
        succeeded = result.state is TaskState.SUCCESS
        self._clearing.keep(attempt.id, attempt.execute_path, succeeded=succeeded)
        if attempt.stale:
            self._clearing.forget(attempt.id)
        else:
            self._accepted.report(attempt.id, result, pid=attempt.pid or None)

    # Trouble.

    def _guarded(self, attempt: LiveAttempt, act: Callable[[LiveAttempt], None]) -> None:
        """One attempt's trouble must not cost the others their supervisor."""
        try:
            act(attempt)
        except Exception:
            log.exception(
                "attempt could not be ended properly", extra={"task_instance_id": attempt.id}
            )
            self._reading.pop(attempt.id, None)
            if self._live.remove(attempt.id) is not None:
                self._drop(attempt)
                reason = "the worker failed to end it properly; see the worker's log"
                result = Result(None, TaskState.FAILURE, reason)
                self._accepted.report(attempt.id, result, pid=attempt.pid or None)

    def _drop(self, attempt: LiveAttempt) -> None:
        """Watch an attempt no more; and what nobody watches must not run."""
        process = attempt.process
        if not attempt.leader_ended or (process is not None and process.returncode is None):
            # Else the number may be somebody else's by now.
            signal_group(attempt.pid, signal.SIGKILL)
        self._live.unwatch(attempt)
        attempt.close()
        workspace.remove_job(attempt.job_file)
        self._clearing.keep(attempt.id, attempt.execute_path, succeeded=False)


def _left_by(attempts: list[LiveAttempt], processes: Iterable[Seen]) -> dict[int, list[Seen]]:
    return attempt_processes.belonging(
        processes,
        paths={attempt.execute_path: attempt.id for attempt in attempts},
        # Only an unreaped leader keeps the session's id from meaning somebody else's.
        sessions={
            each.pid: each.id
            for each in attempts
            if each.process is not None and each.process.returncode is None
        },
    )


def _tell_full_volumes(attempt: LiveAttempt, result: Result) -> None:
    try:
        volumes = {"its log": os.fstatvfs(attempt.log)}
        volumes["its directory"] = os.statvfs(attempt.execute_path)
    except OSError:
        # The task may have removed its directory.
        return
    without_room(result, volumes)


def _named(processes: list[Seen]) -> str:
    more = len(processes) - _NAMED_LEFT
    names = attempt_processes.named(processes[:_NAMED_LEFT])
    return f"{names} and {more} more" if more > 0 else names
