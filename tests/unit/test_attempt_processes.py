"""Processes of attempts: only the very process that was seen is pinned and signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from worker.processes.attempt_processes import (
    Seen,
    belonging,
    may_belong,
    pin,
    scan,
    scan_marked,
    seen_with_marker,
    signal_exactly,
)
from worker.processes.marks import HELPER, can_mark, mark_of, mark_seen, shell_line

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


# Tenants. A tenant's process may bear what it has read off another's attempt.

ALICE, MALLORY = 54_321, 54_322
"""Ids of accounts: the kernel asks for no name."""


@contextmanager
def a_bearer(path: str, *, marker: bool, uid: int, gid: int | None = None) -> Iterator[int]:
    """A process of an account that bears the mark, or else the marker, of the attempt at `path`."""
    environment = {"PATH": os.defpath, **({"ORCAFLOW_EXECUTE_PATH": path} if marker else {})}
    script = f"{'' if marker else shell_line(mark_of(path))}exec cat"
    with subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd="/",
        user=uid,
        group=uid if gid is None else gid,
        extra_groups=(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline()
        yield process.pid
        process.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other accounts")
@pytest.mark.parametrize("marker", [True, False], ids=["marker", "mark"])
def test_what_another_tenant_s_process_bears_makes_it_none_of_an_attempt_s(
    tmp_path: Path, marker: bool
) -> None:
    if not marker and not can_mark():
        pytest.skip("no process can be marked here")
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    os.chown(attempt, ALICE, ALICE)
    path = str(attempt)
    with (
        a_bearer(path, marker=marker, uid=ALICE) as own,
        a_bearer(path, marker=marker, uid=MALLORY) as planted,
        a_bearer(path, marker=marker, uid=0) as by_sudo,
    ):
        looks = (scan(),) if marker else (scan(), scan_marked([path]))
        for look in looks:
            found = belonging(look, paths={path: 7}, sessions={})
            assert {each.pid for each in found[7]} == {own, by_sudo}
        # A process in the attempt's session is the attempt's, as whoever it goes on: none can join.
        (other,) = [each for each in scan() if each.pid == planted]
        assert belonging([other], paths={}, sessions={other.session: 7}) == {7: [other]}
        assert seen_with_marker(planted, path) is None
        # An attempt of the worker's own account may have started it by sudo.
        os.chown(attempt, 0, 0)
        assert may_belong(planted, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other accounts")
def test_a_process_that_has_changed_its_group_still_shows_its_mark_to_its_account() -> None:
    if not can_mark():
        pytest.skip("no process can be marked here")
    with a_bearer(PATH, marker=False, uid=ALICE, gid=MALLORY) as moved:
        assert seen_by(ALICE, moved) == mark_of(PATH)
    with a_bearer(PATH, marker=False, uid=MALLORY) as another:
        assert seen_by(ALICE, another) is None


def seen_by(uid: int, pid: int) -> int | None:
    """The mark of a process as another account sees it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(())
            os.setgid(uid)
            os.setuid(uid)
            os.write(writing, str(mark_seen(pid)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        seen = answer.read()
    return None if seen == "None" else int(seen)


def test_a_helper_that_would_stay_its_attempt_s_is_not_begun() -> None:
    """With CAP_SYS_RESOURCE it rids itself of the mark; without, it would be swept with the rest."""
    program = (
        "import subprocess\n"
        "from worker.processes import marks\n"
        "marks.take(marks.mark_of('/an/attempt'))\n"
        "line = marks.helper_line() + 'exec cat /proc/self/limits'\n"
        "subprocess.run(['/bin/sh', '-c', line], check=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not done.stdout or str(HELPER).encode() in done.stdout
    assert str(mark_of("/an/attempt")).encode() not in done.stdout
