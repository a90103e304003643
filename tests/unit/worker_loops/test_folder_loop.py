"""The loop that removes logs and directories without rows."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from common.model.states import TaskState
from tests.memory.store import EPOCH, MemoryDatabase, MemoryTaskStore
from tests.simulation.virtual_clock import VirtualClock
from worker.loops.folder_loop import FolderLoop

HOUR = timedelta(hours=1)


@pytest.fixture
def home(tmp_path: Path) -> FolderLoop:
    """A database with one run of two attempts, at id 1, and folders of runs 1 and 2."""
    database = MemoryDatabase()
    database.insert(
        database.processes,
        name="x",
        process_definition_id=7,
        state=7,
        end_time=EPOCH,
        command_type=0,
        process_instance_json="{}",
        executor_id=1,
    )
    for number, state in ((1, TaskState.SUCCESS), (2, TaskState.FAILURE)):
        database.insert(
            database.tasks,
            name=str(number),
            task_type="SHELL",
            process_definition_id=7,
            process_instance_id=1,
            task_json="{}",
            state=int(state),
            end_time=EPOCH,
        )
    for name in ("7/1/1", "7/1/2", "7/2/3", "logs/7/1", "logs/7/2", "logs/7/x", "records/1234"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.log").write_text("said", encoding="utf-8")
    (tmp_path / "logs/7/3").symlink_to(tmp_path / "records")
    return FolderLoop(
        MemoryTaskStore(database), tasks=tmp_path, cluster="c0ffee", clock=VirtualClock()
    )


def age(tmp_path: Path) -> None:
    """Make every folder older than the virtual clock's day."""
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)


def test_what_has_no_row_goes_and_so_do_directories_of_successes(
    home: FolderLoop, tmp_path: Path
) -> None:
    assert home.run_once() == HOUR
    age(tmp_path)
    assert home.run_once() == HOUR
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("1.log")}
    assert left == {"7/1/2/1.log", "logs/7/1/1.log", "logs/7/x/1.log", "records/1234/1.log"}


def test_what_is_young_stays(home: FolderLoop, tmp_path: Path) -> None:
    now = VirtualClock().now().timestamp()
    for path in tmp_path.rglob("*"):
        os.utime(path, (now, now), follow_symlinks=False)
    home.run_once()
    assert len(list(tmp_path.rglob("1.log"))) == 7


def test_nothing_of_another_database_is_removed(
    home: FolderLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "database").write_text("another\n", encoding="ascii")
    age(tmp_path)
    home.run_once()
    assert len(list(tmp_path.rglob("1.log"))) == 7
    assert "another database" in caplog.text
