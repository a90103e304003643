"""The results of attempts: exit codes, time-outs and errors become a state and a reason.

Pure but for the line that a failed process may have left in a file. The supervisor asks it and
tells the tables; it knows no processes.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from common.model.failures import FailureReason
from common.model.quality import QualityResult
from common.model.spark import SparkFacts
from common.model.states import TaskState
from worker import workspace
from worker.processes.outputs import OutputError, OutputReader
from worker.processes.quality_report import read_quality
from worker.processes.spark_facts import read_facts

REASON_CHARS = 2_000
LOST_SESSION = "the worker lost its session"
CUT_PUTS_OUT_NOTHING = "what was cut out of this log puts out no parameters"
_KILLED = 137
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WORKERS_OWN = _FULL | {
    *(errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EIO)
}
_FULL_BYTES = 64 * 1024
_SHELL_GAVE_UP = frozenset({2, 254})


@dataclass(slots=True)
class Result:
    """An end that is known, but for what the attempt puts out."""

    exit_code: int | None
    state: TaskState
    reason: str | None = None
    var_pool: str | None = None
    failure: FailureReason | None = None
    """None leaves the word to what the attempt itself has said of its failure."""
    facts: SparkFacts | None = None
    quality: tuple[QualityResult, ...] = ()
    """The findings of a DATA_QUALITY task's rules."""


def of_exit_code(code: int | None, job_file: Path | None = None) -> Result:
    """Return the result of an attempt that nobody killed (T23b: then 137 is a failure)."""
    if job_file is not None and code not in (None, 0):
        told = workspace.read_line(job_file.with_suffix(".reason"), limit_bytes=REASON_CHARS)
        if told:
            return Result(code, TaskState.FAILURE, told)
    if code == 0:
        return Result(code, TaskState.SUCCESS)
    if code is None:
        return Result(code, TaskState.FAILURE, "its parent was killed, so its result is unknown")
    if code == _KILLED:
        return Result(code, TaskState.FAILURE, "killed by signal 9 (out of memory?)")
    if code == 127:
        return Result(code, TaskState.FAILURE, "exit code 127 (command not found)")
    if 128 < code < 128 + signal.NSIG:
        return Result(code, TaskState.FAILURE, f"killed by signal {code - 128}")
    return Result(code, TaskState.FAILURE, f"exit code {code}")


def killed(code: int | None) -> Result:
    """Return the result of an attempt of which a kill was wanted, however it ended."""
    return Result(code, TaskState.KILL, "killed")


def ended_for(code: int | None, reason: str) -> Result:
    """Return the result of an attempt that another program than its worker ended."""
    return Result(code, TaskState.FAILURE, reason)


def timed_out(code: int | None, timeout: timedelta | None) -> Result:
    """An attempt that was ended since its time was out."""
    reason = timeout_reason(timeout)
    return Result(code, TaskState.FAILURE, reason, failure=FailureReason.TIMED_OUT)


def timeout_reason(timeout: timedelta | None) -> str:
    minutes = (timeout or timedelta()) / timedelta(minutes=1)
    unit = "minute" if minutes == 1 else "minutes"
    return f"timed out after {minutes:g} {unit} (timeout strategy FAILED)"


def read_outputs(reader: OutputReader, result: Result, read: Callable[[], bool | None]) -> bool:
    """Read outputs into a result, which fails if they can't be taken; return True when done."""
    try:
        if read() is False:
            return False
        result.var_pool = reader.var_pool()
    except (OutputError, OSError) as error:
        result.state = TaskState.FAILURE
        result.reason = str(error)
    return True


def read_what_it_left(result: Result, facts: Path | None, quality_of: Path | None) -> None:
    """Read the files in which an attempt tells of itself; any of them may be missing."""
    if facts is not None:
        result.facts = read_facts(facts)
        _tell_unconfirmed(result)
    if quality_of is not None:
        result.quality = read_quality(quality_of)


def _tell_unconfirmed(result: Result) -> None:
    """Add to the reason that no manager has confirmed the end of an attempt's applications.

    A runner exits only after the confirmation. A killed runner is without it.
    """
    was_ended = result.state is TaskState.KILL or result.failure is FailureReason.TIMED_OUT
    if not was_ended or result.exit_code not in (_KILLED, None) or result.facts is None:
        return
    elsewhere = [each for each in result.facts.application_ids if not each.startswith("local-")]
    if elsewhere:
        result.reason = (
            f"{result.reason}; the end of {', '.join(elsewhere)} was not confirmed in time:"
            " a sweep ends what still runs"
        )


def explained(result: Result) -> str:
    """The last line of a log."""
    code = "no exit code" if result.exit_code is None else f"exit code {result.exit_code}"
    if not result.reason or result.reason.startswith(code):
        return result.reason or code
    return f"{code}: {result.reason}"


def is_workers_own(error: BaseException) -> bool:
    """True if a start failed for want of what any attempt needs: room, memory, processes, files.

    The causes of an error count too.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return True
        if isinstance(cause, OSError) and cause.errno in _WORKERS_OWN:
            return True
        cause = cause.__cause__
    return False


def without_room(result: Result, volumes: Mapping[str, os.statvfs_result]) -> None:
    """Tell the result of an attempt that ended by itself which of its volumes are full.

    The volumes stand by what the attempt has on them. A failure gets a reason for which its author
    may have it tried again; a success keeps its state, since nobody knows what did not fit.
    """
    full = [what for what, about in volumes.items() if is_full(about)]
    if not full or result.state not in (TaskState.SUCCESS, TaskState.FAILURE):
        return
    told = f"the volume of {' and of '.join(full)} is full: not all that it wrote may have fitted"
    if result.state is TaskState.FAILURE:
        result.reason = f"{explained(result)}; {told}"
        if result.failure is None and (result.facts is None or result.facts.failure is None):
            result.failure = FailureReason.NO_SPACE
    else:
        result.reason = told


def may_not_have_forked(code: int | None) -> bool:
    """True for the exit codes of a wrapper that could start no process: dash's, bash's."""
    return code in _SHELL_GAVE_UP


def is_full(about: os.statvfs_result) -> bool:
    """True if a volume has next to no room left."""
    # Some file systems keep a share for root, whose writes fail last.
    blocks = about.f_bfree if os.geteuid() == 0 else about.f_bavail
    return about.f_blocks > 0 and blocks * about.f_frsize < _FULL_BYTES


def what_failed(error: BaseException) -> str:
    """Return the reason for which an attempt could not be started."""
    full = isinstance(error, OSError) and error.errno in _FULL
    what = "the disk is full: " if full else ""
    return f"{what}the attempt could not be started: {error or type(error).__name__}"
