"""The Spark application of an attempt as a panel shows it. Pure.

All of it comes out of columns that an attempt could write: a link is one only if it leads to the
web, and numbers are read as `common.model.spark` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from api.marking import marked
from common.model.spark import ids_in, web_link
from operations.texts import size

_MOST_IDS: Final = 3
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_MOVED: Final = (
    (marked("Read"), "rows_in", "bytes_in"),
    (marked("Written"), "rows_out", "bytes_out"),
)
_SIZES: Final = (
    (marked("Shuffled"), "shuffle_write_bytes"),
    (marked("Spilt to disk"), "spill_bytes"),
    (marked("Executor memory"), "executor_memory_bytes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """An amount of data; `rows` None: it is a size alone."""

    name: str
    rows: str | None
    size: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownApplication:
    """The newest application, and what is known of its tasks; `tasks` 0: nothing yet."""

    ids: tuple[str, ...]
    ui: str | None
    """The path or the address of Spark's UI."""
    history: str | None
    tasks: int
    done: int
    running: int
    failed: int
    moved: tuple[Moved, ...]
    memory_factor: str | None


def application_of(task: Mapping[str, Any]) -> ShownApplication | None:
    """Return the application of an attempt's document; None if it has told of none."""
    progress: Mapping[str, int] = task["progress"] or {}
    ids = tuple(ids_in(task["app_link"]))
    if not ids and not progress:
        return None
    is_over = task["end_time"] is not None
    factor = task["memory_factor"]
    return ShownApplication(
        ids=ids[-_MOST_IDS:],
        ui=None if is_over else _ui_of(task),
        history=web_link(task["history_link"]) or None,
        tasks=progress.get("tasks", 0),
        done=min(progress.get("tasks_done", 0), progress.get("tasks", 0)),
        # Nothing runs of what is over, though its last word may have been of something that did.
        running=0 if is_over else progress.get("tasks_running", 0),
        failed=progress.get("tasks_failed", 0),
        moved=tuple(_moved(progress)),
        memory_factor=None if factor == 1 else f"× {factor:g}",
    )


def _ui_of(task: Mapping[str, Any]) -> str | None:
    """Return the link to the UI: by the worker if it is on the worker's computer.

    The UI of a driver elsewhere is behind a cluster manager, which checks its users itself.
    """
    link = web_link(task["ui_link"])
    try:
        host = urlsplit(link).hostname
    except ValueError:
        return None
    if host in _LOOPBACK or host == urlsplit(f"//{task['host']}").hostname:
        return f"/tasks/{task['id']}/spark-ui"
    return link or None


def _moved(progress: Mapping[str, int]) -> list[Moved]:
    found = [
        Moved(name=name, rows=f"{progress[rows]:,}", size=size(progress[amount]))
        for name, rows, amount in _MOVED
        if progress.get(rows) or progress.get(amount)
    ]
    found += [
        Moved(name=name, rows=None, size=size(progress[amount]))
        for name, amount in _SIZES
        if progress.get(amount)
    ]
    return found
