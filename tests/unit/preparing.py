"""Tasks as the launcher prepares them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.claims import a_claimed_task
from worker.launcher import Launcher, seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes.starting import Prepared
from worker.workspace import attempt_folders


def prepared(
    home: Path,
    task_type: str,
    params: Mapping[str, Any],
    *,
    settings: TaskSettings | None = None,
    opened: Callable[[str], str] = lambda text: text,
    trouble: Callable[[str], str | None] = lambda _: None,
    asks_by: Callable[[int], Mapping[str, str]] = lambda _: {},
    **changes: Any,
) -> Prepared:
    """The task as the launcher prepares it."""
    paths = attempt_folders(home / "tasks").paths(1, 2, 3)
    values = {"task_type": task_type, "task_json": json.dumps({"params": dict(params)}), **changes}
    launcher = Launcher(
        home=home,
        data_dir=home / "data",
        zone=ZoneInfo("UTC"),
        tenant_mode="single",
        settings=settings or TaskSettings(environment=seen_by_tasks({})),
        opened=opened,
        trouble=trouble,
        asks_by=asks_by,
    )
    return launcher.prepare(a_claimed_task(paths, **values))
