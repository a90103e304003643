"""The home of a worker with the record of an attempt, for tests of what ends it from outside."""

from __future__ import annotations

import os
from pathlib import Path

from worker.processes.records import Record, Records


def a_home(tmp_path: Path, *, account: int | None = None) -> tuple[Path, Records]:
    """Record attempt 7, whose directory is `attempt` and belongs to the account."""
    directory = tmp_path / "attempt"
    directory.mkdir()
    if account is not None:
        os.chown(directory, account, account)
    records = Records(tmp_path / "home" / "tasks" / "records" / "1234")
    record = Record(
        task_instance_id=7,
        task_type="SHELL",
        execute_path=str(directory),
        log_path=str(tmp_path / "log"),
    )
    os.close(records.begin(record))
    return tmp_path / "home", records
