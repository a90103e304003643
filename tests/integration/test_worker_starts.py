"""Starts that fail for the worker's own reasons: no task is charged for them."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.states import TaskState
from common.store.worker.ports import ClaimedTask
from tests.integration.worker_host import Host
from worker.processes import starting
from worker.processes.starting import Prepared


class Blamed(list[BaseException]):
    """The faults that a host was told of."""


def a_host_that_lacks(tmp_path: Path, error: Exception, blamed: Blamed) -> Host:
    def prepare(_task: ClaimedTask) -> Prepared:
        raise error

    return Host(tmp_path, prepare=prepare, blame=blamed.append)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_start_that_the_worker_has_nothing_left_for_is_no_failure_of_the_task(
    tmp_path: Path, number: int
) -> None:
    blamed = Blamed()
    error = OSError(number, "nothing left")
    host = a_host_that_lacks(tmp_path, error, blamed)
    end = host.run(host.task(1, "true"))
    assert (end.state, end.reported_failure) == (TaskState.NEED_FAULT_TOLERANCE, None)
    assert end.reason is not None
    assert end.reason.startswith("the worker can't start attempts: ")
    assert blamed == [error]
    host.supervisor.close()


def test_a_task_that_no_worker_could_start_often_enough_fails_with_a_reason(tmp_path: Path) -> None:
    blamed = Blamed()
    host = a_host_that_lacks(tmp_path, OSError(errno.ENOSPC, "full"), blamed)
    end = host.run(host.task(1, "true", lost_attempts=tuple(range(100, 110))))
    assert (end.state, end.reported_failure) == (TaskState.FAILURE, FailureReason.SUBMIT_FAILED)
    assert len(blamed) == 1
    host.supervisor.close()


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), ValueError("no")])
def test_any_other_start_that_fails_has_a_reason_and_blames_nobody(
    tmp_path: Path, error: Exception
) -> None:
    blamed = Blamed()
    host = a_host_that_lacks(tmp_path, error, blamed)
    end = host.run(host.task(1, "true"))
    assert (end.state, end.reported_failure) == (TaskState.FAILURE, FailureReason.SUBMIT_FAILED)
    assert blamed == []
    host.supervisor.close()


@pytest.mark.parametrize("code", [2, 254])
def test_a_wrapper_that_could_start_no_process_blames_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    blamed = Blamed()
    host = Host(tmp_path, blame=blamed.append)
    monkeypatch.setattr(starting, "_WRAPPER", f'echo "pid $$" >&0\nexit {code}\n')
    end = host.run(host.task(1, "true"))
    assert (end.state, len(blamed)) == (TaskState.NEED_FAULT_TOLERANCE, 1)
    host.supervisor.close()


def test_a_task_that_exits_as_a_shell_without_processes_does_has_failed(tmp_path: Path) -> None:
    blamed = Blamed()
    host = Host(tmp_path, blame=blamed.append)
    end = host.run(host.task(1, "exit 2"))
    assert (end.state, end.reported_failure) == (TaskState.FAILURE, FailureReason.EXIT_CODE)
    assert blamed == []
    host.supervisor.close()


def test_a_task_that_fails_on_a_full_volume_is_told_so(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(volume)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small volume can be mounted by root alone")
    try:
        host = Host(volume)
        end = host.run(host.task(1, "head -c 1000000 /dev/zero > big; exit 3"))
        host.supervisor.close()
    finally:
        subprocess.run(["umount", "-l", str(volume)], check=True)
    assert (end.state, end.reported_failure) == (TaskState.FAILURE, FailureReason.NO_SPACE)
    assert "the volume of its log and of its directory is full" in (end.reason or "")
