"""Marks of chosen ports, among processes of one account."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common import ports
from common.port_marks import PortMarks

_MARK = """
import sys
from pathlib import Path
from common.port_marks import PortMarks
marks = PortMarks(Path(sys.argv[1]))
print([marks.mark(port) for port in range(int(sys.argv[2]), int(sys.argv[3]))], flush=True)
input()
"""


@contextmanager
def another_process(folder: Path, first: int, last: int) -> Iterator[str]:
    """Run a process that marks these ports, and yield what it prints."""
    with subprocess.Popen(
        [sys.executable, "-c", _MARK, str(folder), str(first), str(last)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline()
        process.kill()


def test_a_port_that_another_process_has_marked_is_not_marked_until_that_ends(
    tmp_path: Path,
) -> None:
    marks = PortMarks(tmp_path)
    with another_process(tmp_path, 20_000, 20_002) as printed:
        assert printed == "[True, True]\n"
        assert [marks.mark(port) for port in (20_000, 20_001, 20_002)] == [False, False, True]
    assert marks.mark(20_000)


def test_a_process_keeps_its_last_marks_alone(tmp_path: Path) -> None:
    with another_process(tmp_path, 20_000, 20_040):
        marks = PortMarks(tmp_path)
        assert [marks.mark(port) for port in (20_007, 20_008)] == [True, False]


def test_x101_no_account_sees_which_port_is_marked(tmp_path: Path) -> None:
    marks, port = PortMarks(tmp_path), 20_123
    before = Path("/proc/net/unix").read_text()
    assert marks.mark(port)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert set(Path("/proc/net/unix").read_text().split()) >= {"Num"}
    assert "orcaflow-port" not in Path("/proc/net/unix").read_text().replace(before, "")
    inode = f":{file.stat().st_ino} "
    (lock,) = (line for line in Path("/proc/locks").read_text().splitlines() if inode in line)
    places = lock.rpartition(inode)[2].split()
    assert int(places[0]) > 65_535
    assert str(port) not in places


@pytest.mark.parametrize("made", ["link", "open", "folder"])
def test_x101_a_file_that_somebody_else_may_have_made_is_not_used(
    tmp_path: Path, made: str
) -> None:
    file = tmp_path / f"orcaflow-ports-{os.geteuid()}"
    if made == "link":
        (tmp_path / "target").touch(mode=0o600)
        file.symlink_to("target")
    elif made == "open":
        file.touch()
        file.chmod(0o666)
    else:
        file.mkdir()
    with another_process(tmp_path, 20_000, 20_001):
        assert PortMarks(tmp_path).mark(20_000)
    if made != "folder":
        assert file.read_bytes() == b""


def test_x101_marks_of_all_ports_stop_no_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AllTaken(PortMarks):
        def mark(self, port: int) -> bool:
            return False

    monkeypatch.setattr(ports, "_marks", AllTaken(tmp_path))
    given = {ports.free_port() for _ in range(20)}
    assert len(given) == 20
    assert given <= set(ports._candidates(*ports._connections()))


def test_x101_programs_at_all_ports_to_choose_from_stop_no_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "is_port_free", lambda _port: False)
    first, last = ports._connections()
    assert first <= ports.free_port() <= last


def test_a_fork_marks_with_locks_of_its_own(tmp_path: Path) -> None:
    marks = PortMarks(tmp_path)
    assert marks.mark(20_000)
    pid = os.fork()
    if not pid:
        os._exit(int(marks.mark(20_000)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
