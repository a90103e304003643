"""Spark applications for people: their progress, their addresses and their cost, in words.

Everything here comes out of columns that an attempt could write (`common.model.spark`), so it is
read as such and escaped; a link is only one if it is an address of the web. Reads no table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from common.model.spark import Progress, Usage, ids_in, usage_from, web_link
from operations.documents.applications import progress_of
from operations.texts import duration, size
from orcaflow.cli.output import escaped

if TYPE_CHECKING:
    from common.store.people.views import TaskInstanceView

_BAR_CELLS = 10
_WAITING_CHARS = 60
"""Of a cause in a table; `instance show` has all of it below."""


def progress_words(task: TaskInstanceView) -> str:
    """The progress of the attempt's application in words; "" if nothing is known."""
    progress = progress_of(task)
    if progress is None:
        return ""
    # Nothing runs of what is over, though its last word may have been of something that did.
    over = task.end_time is not None
    still = replace(progress, tasks_running=0, jobs_running=0, waiting="")
    return in_words(still if over else progress)


def in_words(progress: Progress) -> str:
    """Like `tasks 12/40 (3 running)`; "" before there is anything to count."""
    if progress.waiting:
        cut = progress.waiting[:_WAITING_CHARS]
        return escaped(f"waits: {cut}{'…' if cut != progress.waiting else ''}")
    if not progress.tasks:
        running = progress.jobs_running
        return f"{running} job{'' if running == 1 else 's'} running" if running else ""
    asides = [
        f"{count} {what}"
        for count, what in (
            (progress.tasks_running, "running"),
            (progress.tasks_failed, "failed"),
        )
        if count
    ]
    aside = f" ({', '.join(asides)})" if asides else ""
    return f"tasks {progress.tasks_done}/{progress.tasks}{aside}"


def bar(progress: Progress) -> str:
    """The share that is done, for a terminal; "" before it is known."""
    share = progress.share
    if share is None:
        return ""
    # Full only when all is done.
    full = int(share * _BAR_CELLS)
    return "█" * full + "░" * (_BAR_CELLS - full)


def application_lines(task: TaskInstanceView) -> Iterator[tuple[str, str]]:
    """All that is known of an attempt's applications: pairs of a label and a text."""
    ids = ids_in(task.app_link)
    if ids:
        yield "application", escaped(", ".join(ids))
    for label, address in (("UI", task.ui_link), ("history", task.history_link)):
        if found := web_link(address):
            yield label, found
    if words := progress_words(task):
        yield "progress", words
    progress = progress_of(task)
    if progress is not None and progress.waiting and task.end_time is None:
        yield "waits for", escaped(progress.waiting)
    if progress is not None and (moved := _moved(progress)):
        yield "data", moved
    if task.usage is not None and (cost := _cost(usage_from(task.usage))):
        yield "cost", cost
    if task.memory_factor != 1:
        yield "memory", f"× {task.memory_factor:g} of what is configured, up to the task's ceiling"


def where(task: TaskInstanceView) -> str:
    """The newest application and where to look at it, in one line; "" if there is none."""
    ids = ids_in(task.app_link)
    address = web_link(task.ui_link) or web_link(task.history_link)
    return "  ".join(part for part in (escaped(ids[-1]) if ids else "", address or "") if part)


def _moved(progress: Progress) -> str:
    parts = []
    for what, rows, number in (
        ("in", progress.rows_in, progress.bytes_in),
        ("out", progress.rows_out, progress.bytes_out),
    ):
        if rows or number:
            parts.append(f"{what} {_counted(rows)} rows, {size(number)}")
    parts += [
        f"{what} {size(number)}"
        for what, number in (
            ("shuffled", progress.shuffle_write_bytes),
            ("spilled", progress.spill_bytes),
            ("executor memory", progress.executor_memory_bytes),
        )
        if number
    ]
    return "; ".join(parts)


def _cost(usage: Usage) -> str:
    parts = []
    if usage.run_seconds:
        parts.append(f"ran {duration(timedelta(seconds=usage.run_seconds))}")
    if usage.cpu_seconds:
        parts.append(f"CPU {duration(timedelta(seconds=usage.cpu_seconds))}")
    if usage.peak_memory_bytes:
        parts.append(f"peak memory {size(usage.peak_memory_bytes)}")
    if usage.core_seconds:
        parts.append(f"{usage.core_seconds / 3600:.2g} core-hours")
    return ", ".join(parts)


def _counted(number: int) -> str:
    return f"{number:,}"
