"""Files of an attempt whose account means harm: what it can change leads the worker nowhere."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

from common.embedded.process import exclusive
from common.params import DataType
from worker.processes.outputs import Declared, OutputReader
from worker.processes.records import Record, Records
from worker.spark.host import folders
from worker.workspace import Account, make_directory, read_script, remove_directory


def a_record(**changes: object) -> Record:
    values = {"task_instance_id": 8, "task_type": "SHELL", "execute_path": "/e", "log_path": "/l"}
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def test_what_runs_as_another_account_can_t_change_its_record(tmp_path: Path) -> None:
    records = Records(tmp_path)
    file = records.begin(a_record(notes_apart=True))
    # Whoever has the descriptor may do all this to it, and a wrapper's account can take it.
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_APPEND)
    forged = b'{"task_type": "SHELL", "execute_path": "/", "log_path": "/etc/shadow"}\n'
    os.ftruncate(file, 0)
    os.pwrite(file, forged + b"pid 12\nexit 3\n", 0)
    os.close(file)
    assert records.read(8) == a_record(notes_apart=True, pid=12, exit_code=3)
    assert records.ids() == (8,)
    records.remove(8)
    assert list(tmp_path.iterdir()) == []


def test_notes_that_another_attempt_left_count_for_nobody(tmp_path: Path) -> None:
    records = Records(tmp_path)
    left = records.begin(a_record(notes_apart=True))
    os.write(left, b"pid 1\nexit 0\n")
    own = records.begin(a_record(notes_apart=True))
    os.write(left, b"pid 2\n")
    assert records.read(8) == a_record(notes_apart=True)
    os.close(own)
    os.close(left)


@pytest.mark.parametrize("notes", [b"pid " + b"9" * 5_000, b"exit 99999999999", b"pid 0"])
def test_impossible_notes_are_none(tmp_path: Path, notes: bytes) -> None:
    records = Records(tmp_path)
    file = records.begin(a_record())
    os.write(file, b"pid 12\nexit 3\n" + notes + b"\n")
    os.close(file)
    assert records.read(8) == a_record(pid=12, exit_code=3)


def test_a_directory_of_any_depth_can_be_removed(tmp_path: Path) -> None:
    directory = tmp_path / "1" / "2" / "3"
    directory.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    at = os.open(directory, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=at)
        os.symlink(outside, "link", dir_fd=at)
        os.close(os.open("file", os.O_CREAT, dir_fd=at))
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        remove_directory(directory)
    finally:
        # What is left would be too deep for the removal of `tmp_path`.
        subprocess.run(["rm", "-rf", str(directory)], check=True)
    assert [each.name for each in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()


def test_of_a_script_only_a_file_with_content_is_read(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print(1)")
    assert read_script(script, None, limit_chars=5) == "print"
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/proc/self/status"), tmp_path / "pipe", tmp_path, tmp_path / "none"):
        assert read_script(path, None, limit_chars=5) == ""


def test_outputs_are_read_from_what_a_log_has_when_its_attempt_ends(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_text("${setValue(a=1)}\n")
    log = os.open(path, os.O_RDWR)
    reader = OutputReader(Declared(types={"a": DataType.VARCHAR}, file="/none", log_from=0), log)
    with path.open("a") as later:
        later.write("${setValue(a=2)}\n")
    reader.read_all()
    os.close(log)
    assert json.loads(reader.var_pool() or "")[0]["value"] == "1"


def test_a_lock_of_a_server_is_for_its_own_account(tmp_path: Path) -> None:
    lock = tmp_path / "run" / "postgres.lock"
    lock.parent.mkdir()
    lock.touch(0o644)
    with exclusive(tmp_path, "postgres"):
        assert lock.stat().st_mode & 0o777 == 0o600


def test_the_folder_of_tenants_is_not_taken_from_somebody_else(tmp_path: Path) -> None:
    folders.check_own(tmp_path)
    folders.check_own(tmp_path / "none")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="remove it"):
        folders.check_own(tmp_path / "link")


def test_a_folder_is_given_to_an_account_and_nothing_that_has_taken_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account(name="own", uid=os.geteuid(), gid=os.getegid(), groups=(), home="/")

    def swapped(path: Path, _mode: int) -> None:
        # Somebody replaces the folder by a link as soon as it is there.
        path.symlink_to(tmp_path)

    monkeypatch.setattr(os, "mkdir", swapped)
    with pytest.raises(NotADirectoryError):
        make_directory(tmp_path / "spark-tmp", account)
