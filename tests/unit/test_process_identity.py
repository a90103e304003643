"""A pid counts only with its start time."""

from __future__ import annotations

import os
import subprocess
import sys

from common.process_identity import (
    command_line,
    is_alive,
    process_start_time,
    processes_started_with,
)


def a_waiting_process(*arguments: str) -> subprocess.Popen[bytes]:
    """A process that has become its program, and waits for the end of its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_a_process_is_the_same_one_only_with_its_start_time() -> None:
    with a_waiting_process() as process:
        start_time = process_start_time(process.pid)
        assert start_time is not None
        assert is_alive(process.pid, start_time)
        assert not is_alive(process.pid, start_time + 0.01)


def test_a_process_that_has_ended_is_not_alive_even_before_its_parent_knows() -> None:
    with a_waiting_process() as process:
        start_time = process_start_time(process.pid)
        assert start_time is not None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(process.pid, start_time)
        assert command_line(process.pid) == ()
    assert process_start_time(process.pid) is None


def test_a_process_is_found_by_all_its_arguments() -> None:
    mark = f"mark (of) {os.getpid()}"
    with a_waiting_process(mark, "other") as process:
        assert processes_started_with("other", mark) == [process.pid]
        assert processes_started_with(mark, "no such argument") == []
