"""Fitness of a worker: room on its volumes, starts that failed, probes that bring it back."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.spark import SparkFacts
from common.model.states import TaskState
from tests.simulation.virtual_clock import VirtualClock
from worker.fitness import Fitness, try_a_start
from worker.processes.results import (
    Result,
    is_workers_own,
    killed,
    of_exit_code,
    read_what_it_left,
    timed_out,
    without_room,
)

TASKS, DATA = Path("/volumes/tasks"), Path("/volumes/data")
SECOND = timedelta(seconds=1)
FULL = OSError(errno.ENOSPC, "No space left on device")


def volume(*, free_gb: float = 10.0, files: int = 10_000) -> os.statvfs_result:
    blocks = int(free_gb * 1024**3 / 4096)
    return os.statvfs_result((4096, 4096, 10**9, blocks, blocks, 10**6, files, files, 0, 255))


class Host:
    """A worker's volumes, its starts, and its fitness."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.volumes = {TASKS: volume(), DATA: volume()}
        self.fault: OSError | None = None
        self.probes = 0
        self.fitness = Fitness(
            (TASKS, DATA),
            reserved_gb=0.5,
            clock=self.clock,
            probe=self._probe,
            look=self.volumes.__getitem__,
        )

    def rest(self, pause: timedelta) -> None:
        self.clock.move_to(self.clock.elapsed + pause)

    def _probe(self, _folders: Sequence[Path]) -> None:
        self.probes += 1
        if self.fault is not None:
            raise self.fault


def test_a_worker_with_room_is_fit() -> None:
    host = Host()
    assert host.fitness()
    assert host.fitness.problem() is None
    assert host.probes == 0


def test_a_worker_is_unfit_as_long_as_a_volume_has_less_room_than_is_reserved() -> None:
    host = Host()
    host.volumes[DATA] = volume(free_gb=0.25)
    assert not host.fitness()
    assert host.fitness.problem() == (
        "/volumes/data has 0.25 GiB free, less than worker.reserved_disk_gb (0.5):"
        " remove files, or lower that"
    )
    host.volumes[DATA] = volume(free_gb=0.5)
    host.rest(SECOND)
    assert host.fitness.problem() is None
    assert host.fitness()


def test_a_volume_without_room_for_files_is_full() -> None:
    host = Host()
    host.volumes[TASKS] = volume(files=99)
    assert not host.fitness()
    assert host.fitness.problem() == "/volumes/tasks has room for 99 more files: remove some"


def test_a_file_system_that_makes_files_as_they_are_needed_has_room() -> None:
    host = Host()
    made = volume()
    host.volumes[TASKS] = os.statvfs_result((*made[:5], 0, 0, 0, *made[8:]))
    assert host.fitness()


def test_a_worker_that_could_not_start_an_attempt_is_unfit_until_a_probe_succeeds() -> None:
    host = Host()
    host.fault = FULL
    host.fitness.blame(FULL)
    assert host.fitness.problem() == f"attempts can't be started: {FULL}"
    assert not host.fitness()
    assert host.probes == 0
    for _ in range(2):
        host.rest(4 * SECOND)
        assert not host.fitness()
    assert host.probes == 2
    host.fault = None
    host.rest(8 * SECOND)
    assert host.fitness()
    assert host.fitness.problem() is None


def test_a_fault_that_no_probe_finds_makes_each_pause_longer() -> None:
    host = Host()
    for pause in (SECOND, 2 * SECOND, 4 * SECOND):
        host.fitness.blame(FULL)
        host.rest(pause / 2)
        assert not host.fitness()
        host.rest(pause / 2)
        assert host.fitness()
    host.rest(timedelta(minutes=3))
    host.fitness.blame(FULL)
    host.rest(SECOND)
    assert host.fitness()


def test_a_probe_writes_where_attempts_write_and_leaves_nothing(tmp_path: Path) -> None:
    try_a_start([tmp_path])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        try_a_start([tmp_path / "none"])


@pytest.mark.parametrize(
    ("error", "is_own"),
    [
        (OSError(errno.ENOSPC, ""), True),
        (OSError(errno.EDQUOT, ""), True),
        (OSError(errno.EMFILE, ""), True),
        (BlockingIOError(errno.EAGAIN, ""), True),
        (OSError(errno.ENOMEM, ""), True),
        (MemoryError(), True),
        (PermissionError(errno.EACCES, ""), False),
        (OSError(errno.E2BIG, ""), False),
        (FileNotFoundError(errno.ENOENT, ""), False),
        (ValueError(), False),
    ],
)
def test_only_a_lack_of_what_any_attempt_needs_is_the_worker_s_own_fault(
    error: Exception, is_own: bool
) -> None:
    assert is_workers_own(error) == is_own
    outer = RuntimeError("a task's parameters")
    outer.__cause__ = error
    assert is_workers_own(outer) == is_own


def test_a_failure_on_a_full_volume_is_told_so() -> None:
    result = Result(1, TaskState.FAILURE, "exit code 1")
    without_room(result, {"its log": volume(), "its directory": volume(free_gb=0)})
    assert result.reason == (
        "exit code 1; the volume of its directory is full: not all that it wrote may have fitted"
    )
    assert result.failure is FailureReason.NO_SPACE


def test_a_success_on_a_full_volume_is_told_so() -> None:
    result = Result(0, TaskState.SUCCESS)
    without_room(result, {"its log": volume(free_gb=0), "its directory": volume(free_gb=0)})
    assert (result.state, result.failure) == (TaskState.SUCCESS, None)
    assert result.reason is not None
    assert result.reason.startswith("the volume of its log and of its directory is full")


YARN = "application_1700000000000_0001"


@pytest.mark.parametrize(
    ("result", "ids", "is_told"),
    [
        (killed(137), (YARN,), True),
        (killed(None), (YARN,), True),
        (timed_out(137, timedelta(minutes=1)), (YARN,), True),
        # The runner exited after the manager's confirmation.
        (killed(143), (YARN,), False),
        (timed_out(143, timedelta(minutes=1)), (YARN,), False),
        # A driver with a local master is gone with its process.
        (killed(137), ("local-1795198115959",), False),
        (killed(137), (), False),
        # A kill was not requested.
        (of_exit_code(137), (YARN,), False),
    ],
)
def test_a_kill_that_no_manager_has_confirmed_looks_unconfirmed(
    tmp_path: Path, result: Result, ids: tuple[str, ...], is_told: bool
) -> None:
    file = tmp_path / "facts.json"
    file.write_text(SparkFacts(application_ids=ids).to_json())
    read_what_it_left(result, file, None)
    assert (f"the end of {YARN} was not confirmed" in (result.reason or "")) == is_told


@pytest.mark.parametrize(
    "result",
    [
        Result(1, TaskState.FAILURE, "x", failure=FailureReason.TIMED_OUT),
        Result(1, TaskState.FAILURE, "x", facts=SparkFacts(failure=FailureReason.DATA_ERROR)),
        Result(None, TaskState.KILL, "killed"),
    ],
)
def test_a_full_volume_replaces_no_reason_that_is_known(result: Result) -> None:
    known = result.failure
    without_room(result, {"its log": volume(free_gb=0)})
    assert result.failure is known
