"""The files of an attempt: its directory, records, artefacts and log."""

from __future__ import annotations

import fcntl
import os
import tracemalloc
from datetime import timedelta
from pathlib import Path

import pytest

from common.params import DataType
from tests.claims import WHEN
from worker import task_log
from worker.processes.outputs import Declared
from worker.processes.records import Record, Records
from worker.workspace import (
    Crowds,
    artefact_path,
    attempt_folders,
    keep_apart,
    make_artefact,
    make_directory,
    open_log,
    remove_directory,
    write_file,
)


def test_only_numbers_become_parts_of_a_path(tmp_path: Path) -> None:
    paths = attempt_folders(tmp_path).paths(4, 5, 6)
    assert paths.execute_path == f"{tmp_path}/4/5/6"
    assert paths.log_path == f"{tmp_path}/logs/4/5/6.log"


def test_a_directory_is_made_afresh_and_its_empty_parents_go_with_it(tmp_path: Path) -> None:
    directory = tmp_path / "1" / "2" / "3"
    for _ in range(2):
        make_directory(directory, None)
        assert list(directory.iterdir()) == []
        write_file(directory / "x", "x", None)
    with pytest.raises(FileExistsError):
        write_file(directory / "x", "y", None)
    (tmp_path / "1" / "9").mkdir()
    remove_directory(directory)
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["9"]
    remove_directory(directory)


def test_the_directories_of_runs_are_kept_apart_where_the_file_system_can(tmp_path: Path) -> None:
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    for folder in (plain, marked):
        folder.mkdir()
    keep_apart(marked)
    make_directory(tmp_path / "1" / "2" / "3", None)
    assert _flags(tmp_path / "1") == _flags(marked)
    assert _flags(tmp_path / "1" / "2") == _flags(plain)


def test_the_attempts_of_a_run_are_kept_apart_once_they_are_many(tmp_path: Path) -> None:
    marked, few, many = tmp_path / "marked", tmp_path / "1" / "2", tmp_path / "1" / "3"
    for folder in (marked, few, many):
        folder.mkdir(parents=True)
    plain = _flags(many)
    keep_apart(marked)
    crowds = Crowds()
    for number in range(49):
        crowds.add(f"{few}/{number}")
        crowds.add(f"{many}/{number}")
    assert _flags(many) == plain
    crowds.add(f"{many}/49")
    assert _flags(many) == _flags(marked)
    assert _flags(few) == plain


@pytest.mark.parametrize("folder", ["/proc/self", "/nowhere"])
def test_a_folder_that_can_not_be_marked_stays_as_it_is(folder: str) -> None:
    keep_apart(Path(folder))


def _flags(folder: Path) -> bytes | None:
    """The flags of a folder; None if its file system has none."""
    file = os.open(folder, os.O_RDONLY)
    try:
        return bytes(fcntl.ioctl(file, 0x80086601, bytes(8))[:4])
    except OSError:
        return None
    finally:
        os.close(file)


def test_a_record_tells_what_was_written_whole(tmp_path: Path) -> None:
    records = Records(tmp_path)
    file = records.begin(
        Record(task_instance_id=8, task_type="SHELL", execute_path="/e", log_path="/l")
    )
    os.write(file, b"pid 12\nexit 3\nexit 4")
    os.close(file)
    record = records.read(8)
    assert record is not None
    assert (record.execute_path, record.log_path, record.pid, record.exit_code) == (
        "/e",
        "/l",
        12,
        3,
    )
    (tmp_path / "stray.txt").touch()
    (tmp_path / "9").write_text("{")
    assert records.ids() == (8, 9)
    assert records.read(9) is None
    records.remove(8)
    records.remove(8)
    assert records.ids() == (9,)


def _a_record(task_instance_id: int) -> Record:
    return Record(
        task_instance_id=task_instance_id, task_type="SHELL", execute_path="/e", log_path="/l"
    )


def test_the_file_of_a_spare_record_serves_another_one_and_keeps_no_word(tmp_path: Path) -> None:
    records = Records(tmp_path)
    file = records.begin(_a_record(8))
    os.write(file, b"pid 12\nexit 3\n")
    os.close(file)
    number = (tmp_path / "8").stat().st_ino
    records.remove(8, is_spare=True)
    assert records.ids() == ()
    # As after a restart: what is spare is no record.
    records = Records(tmp_path)
    assert records.ids() == ()
    os.close(records.begin(_a_record(9)))
    assert (tmp_path / "9").stat().st_ino == number
    assert records.read(9) == _a_record(9)
    assert [path.name for path in tmp_path.iterdir()] == ["9"]


def test_the_file_of_a_record_that_somebody_may_have_open_serves_no_other(tmp_path: Path) -> None:
    records = Records(tmp_path)
    file = records.begin(_a_record(8))
    records.remove(8)
    os.close(records.begin(_a_record(9)))
    os.write(file, b"exit 3\n")
    os.close(file)
    assert records.read(9) == _a_record(9)


def test_a_spare_file_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    records = Records(tmp_path)
    os.close(records.begin(_a_record(8)))
    records.remove(8, is_spare=True)
    (spare,) = tmp_path.iterdir()
    spare.unlink()
    os.close(records.begin(_a_record(9)))
    assert records.read(9) == _a_record(9)


def test_a_record_keeps_what_an_attempt_puts_out_and_when_its_time_is_out(tmp_path: Path) -> None:
    record = Record(
        task_instance_id=8,
        task_type="SQL",
        execute_path="/e",
        log_path="/l",
        complement=True,
        outputs=Declared(types={"a": DataType.LIST}, file="/e/o", log_from=7),
        job_file=Path("/e/job.json"),
        times_out_at=WHEN,
        timeout=timedelta(minutes=5),
    )
    records = Records(tmp_path)
    os.close(records.begin(record))
    assert records.read(8) == record


def test_an_artefact_stands_beside_the_log_and_is_made_afresh(tmp_path: Path) -> None:
    path = artefact_path(tmp_path / "3.log", "result.csv")
    assert path == tmp_path / "3.result.csv"
    path.symlink_to(tmp_path / "elsewhere")
    make_artefact(path, None)
    assert path.is_file()
    assert not path.is_symlink()


def test_a_log_is_cut_as_often_as_it_grows_and_counts_all_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "1.log"
    log = open_log(path)
    cut = None
    written = 0
    for number in range(5_000):
        line = f"line {number:06}\n"
        task_log.write(log, line)
        written += len(line)
        if number % 100 == 0:
            cut = task_log.cut(log, limit_bytes=10_000, before=cut)
    os.close(log)
    text = path.read_text()
    assert cut is not None
    assert text.startswith("line 000000\n")
    assert text.endswith("line 004999\n")
    assert text.count("bytes were cut") == 1
    marker = next(line for line in text.splitlines(keepends=True) if "bytes were cut" in line)
    assert len(text) - len(marker) + cut.taken == written
    assert f" {cut.taken} bytes were cut" in marker


def test_a_cut_keeps_a_mebibyte_of_the_end_at_most(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "1.log"
    log = open_log(path)
    os.truncate(path, 40_000_000)
    task_log.write(log, "\nlast\n")
    tracemalloc.start()
    cut = task_log.cut(log, limit_bytes=32_000_000, before=None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    os.close(log)
    assert cut is not None
    kept = path.stat().st_size - 16_000_000 - cut.marker
    assert kept <= 1024 * 1024
    assert peak < 4 * 1024 * 1024
    with path.open("rb") as file:
        file.seek(-6, os.SEEK_END)
        assert file.read() == b"\nlast\n"
