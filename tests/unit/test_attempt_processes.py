"""Processes of attempts: only the very process that was seen is pinned and signalled."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from worker.processes.attempt_processes import Seen, pin, seen_with_marker, signal_exactly

PATH = f"/attempts/of/{os.getpid()}"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for its standard input and carries the marker of an attempt."""
    environment = {**os.environ, "ORCAFLOW_EXECUTE_PATH": PATH}
    # `cat` echoes one line: from then on it runs, and its environment can be read.
    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline()
        yield process
        process.stdin.close()


def seen(process: subprocess.Popen[bytes]) -> Seen:
    found = seen_with_marker(process.pid, PATH)
    assert found is not None
    return found


def test_the_process_that_was_seen_is_pinned_and_signalled(
    process: subprocess.Popen[bytes],
) -> None:
    pidfd = pin(seen(process))
    assert pidfd is not None
    os.close(pidfd)
    assert signal_exactly(seen(process), signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_another_process_with_the_same_pid_is_neither_pinned_nor_signalled(
    process: subprocess.Popen[bytes],
) -> None:
    # The process of the look had the pid before this one, so it started earlier.
    former = replace(seen(process), started=seen(process).started - 1)
    assert pin(former) is None
    assert not signal_exactly(former, signal.SIGKILL)
    # Still the process that echoes: a KILL would have ended it before the next line.
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"still here\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"still here\n"


def test_none_of_ten_thousand_looks_at_former_processes_signals_the_one_that_has_the_pid_now(
    process: subprocess.Popen[bytes],
) -> None:
    now = seen(process)
    formers = (replace(now, started=now.started - ticks) for ticks in range(1, 10_001))
    assert not any(signal_exactly(former, signal.SIGKILL) for former in formers)
    assert process.poll() is None


def test_a_process_that_has_ended_is_neither_pinned_nor_signalled(
    process: subprocess.Popen[bytes],
) -> None:
    found = seen(process)
    process.kill()
    process.wait()
    assert pin(found) is None
    assert not signal_exactly(found, signal.SIGKILL)


def test_a_process_of_another_attempt_is_not_found_by_its_pid(
    process: subprocess.Popen[bytes],
) -> None:
    assert seen_with_marker(process.pid, "/attempts/of/another") is None
