"""The task types' reading of a node's parameters, and the files, logs and records of an attempt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.errors import SchedulerError
from common.params import DataType
from tests.claims import WHEN, a_claimed_task
from worker import task_log
from worker.launcher import Launcher, seen_by_tasks
from worker.launching.base import TaskParameterError, TaskSettings
from worker.processes.outputs import Declared
from worker.processes.records import Record, Records
from worker.processes.starting import Prepared
from worker.tenants import account_of, banner
from worker.workspace import (
    artefact_path,
    attempt_folders,
    make_artefact,
    make_directory,
    open_log,
    remove_directory,
    write_file,
)


def prepared(
    home: Path,
    task_type: str,
    params: Mapping[str, Any],
    *,
    settings: TaskSettings | None = None,
    complement_uses_chosen_date: bool = True,
    **changes: Any,
) -> Prepared:
    """The task as the launcher prepares it."""
    paths = attempt_folders(home / "tasks").paths(1, 2, 3)
    values = {"task_type": task_type, "task_json": json.dumps({"params": dict(params)}), **changes}
    launcher = Launcher(
        home=home,
        data_dir=home / "data",
        zone=ZoneInfo("UTC"),
        complement_uses_chosen_date=complement_uses_chosen_date,
        tenant_mode="single",
        settings=settings or TaskSettings(environment=seen_by_tasks({})),
    )
    return launcher.prepare(a_claimed_task(paths, **values))


def test_a_script_and_a_file_together_are_a_question(tmp_path: Path) -> None:
    with pytest.raises(TaskParameterError, match="both"):
        prepared(tmp_path, "PYTHON", {"rawScript": "1", "file": "x.py"})


@pytest.mark.parametrize(
    "params",
    [
        {"rawScript": ""},
        {"rawScript": " \n"},
        {"rawScript": ["a"]},
        {"rawScript": "a\0b"},
        {"rawScript": "${a}", "localParams": [{"prop": "a", "value": "x\0y"}]},
        {"rawScript": "a", "localParams": "{"},
        {"rawScript": "a", "localParams": [{"value": "no name"}]},
        {"rawScript": "a", "resourceList": [{"id": 7}]},
    ],
)
def test_a_mistake_in_a_shell_task_is_an_error_that_the_loop_expects(
    tmp_path: Path, params: dict[str, Any]
) -> None:
    with pytest.raises(SchedulerError):
        prepared(tmp_path, "SHELL", params)


def test_circular_parameters_are_named(tmp_path: Path) -> None:
    circle = '[{"prop":"a","value":"${b}"},{"prop":"b","value":"${a}"}]'
    with pytest.raises(SchedulerError, match="circular"):
        prepared(tmp_path, "SHELL", {"rawScript": "true"}, global_params=circle)


def test_every_task_is_told_who_it_is(tmp_path: Path) -> None:
    made = prepared(
        tmp_path,
        "SHELL",
        {"rawScript": "true"},
        settings=TaskSettings(
            environment=seen_by_tasks({"LC_ALL": "C", "SECRET": "x", "PATH": "/bin"})
        ),
    )
    assert made.environment["ORCAFLOW_TASK_INSTANCE_ID"] == "3"
    assert made.environment["ORCAFLOW_PROCESS_INSTANCE_ID"] == "2"
    assert made.environment["ORCAFLOW_TASK_NAME"] == "load"
    assert made.environment["ORCAFLOW_ATTEMPT"] == "2"
    assert made.environment["ORCAFLOW_DATA_DIR"] == str(tmp_path / "data")
    assert made.environment["LC_ALL"] == "C"
    assert "SECRET" not in made.environment
    assert made.argv == ("/bin/sh", str(tmp_path / "tasks/1/2/3/1_2_3_node.sh"))


def test_a_task_without_a_schedule_counts_its_dates_from_its_start(tmp_path: Path) -> None:
    made = prepared(tmp_path, "SHELL", {"rawScript": "$[yyyyMMdd]"}, schedule_time=None)
    assert Path(made.argv[1]).read_text() == "20260102"


# Half past eleven in the evening of New York's day of 25 hours, 2019-11-03.
LATE = datetime(2019, 11, 4, 4, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        (None, "20191104 0430 20191103 0330"),
        ("America/New_York", "20191103 2330 20191102 2230"),
        ("Asia/Tokyo", "20191104 1330 20191103 1230"),
    ],
)
def test_t45_offsets_in_days_are_calendar_days_of_the_run_s_zone(
    tmp_path: Path, zone: str | None, expected: str
) -> None:
    script = "$[yyyyMMdd HHmm] $[yyyyMMdd-1] $[HHmm-1/24]"
    made = prepared(tmp_path, "SHELL", {"rawScript": script}, schedule_time=LATE, timezone_id=zone)
    assert Path(made.argv[1]).read_text() == expected


@pytest.mark.parametrize(
    ("complement", "uses_chosen_date", "expected"),
    [
        (False, True, "20191102 20191103 20191103233000"),
        (True, True, "20191103 20191104 20191104233000"),
        (True, False, "20191102 20191103 20191103233000"),
    ],
)
def test_t45_business_dates_are_those_of_the_run_s_zone(
    tmp_path: Path, complement: bool, uses_chosen_date: bool, expected: str
) -> None:
    made = prepared(
        tmp_path,
        "SHELL",
        {"rawScript": "${system.biz.date} ${system.biz.curdate} ${system.datetime}"},
        schedule_time=LATE,
        timezone_id="America/New_York",
        complement=complement,
        complement_uses_chosen_date=uses_chosen_date,
    )
    assert Path(made.argv[1]).read_text() == expected


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "America"])
def test_a_task_of_a_run_in_a_zone_that_there_is_not_is_refused(tmp_path: Path, zone: str) -> None:
    with pytest.raises(SchedulerError, match=r"the run's time zone: .* is no zone"):
        prepared(tmp_path, "SHELL", {"rawScript": "true"}, timezone_id=zone)


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


def test_t86_a_tenant_must_be_an_ordinary_account() -> None:
    for code in ("root", "", "a;b", "A", "x" * 40):
        with pytest.raises(TaskParameterError, match="tenant"):
            account_of(code)
    assert "not isolated" in banner("single")
