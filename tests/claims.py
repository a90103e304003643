"""Claimed tasks for tests of a worker: defaults for what a test does not name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from common.store.worker.ports import AttemptPaths, ClaimedTask

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def a_claimed_task(paths: AttemptPaths, **changes: Any) -> ClaimedTask:
    """The second attempt at `load` of a run of `daily`, for and begun at `WHEN`."""
    values: dict[str, Any] = {
        "id": 3,
        "process_instance_id": 2,
        "process_definition_id": 1,
        "process_name": "daily",
        "name": "load",
        "attempt": 2,
        "task_type": "SHELL",
        "task_json": "{}",
        "global_params": None,
        "moment": WHEN,
        "complement": False,
        "tenant_code": None,
        "queue": None,
        "executor_id": 1,
        "execute_path": paths.execute_path,
        "log_path": paths.log_path,
        "start_time": WHEN,
    }
    return ClaimedTask(**values | changes)
