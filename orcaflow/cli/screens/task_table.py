"""Attempts at tasks as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from operations.documents.instances import task_row
from orcaflow.cli.screens.progress import progress_words

if TYPE_CHECKING:
    from common.store.people.views import TaskInstanceView

TASK_COLUMNS: Final = (
    "id",
    "name",
    "task_type",
    "attempt",
    "state",
    "start_time",
    "duration",
    "host",
)
_OCCASIONAL: Final = ("progress", "failure_reason", "lost_at")


def task_table(
    views: Sequence[TaskInstanceView], columns: Sequence[str], *, now: datetime
) -> tuple[list[dict[str, object]], tuple[str, ...]]:
    """Rows and the columns to show; occasional ones only if any attempt has a value."""
    rows = [task_row(view, now=now) | {"progress": progress_words(view) or None} for view in views]
    shown = [
        column
        for column in columns
        if column not in _OCCASIONAL or any(row[column] is not None for row in rows)
    ]
    return rows, tuple(shown)
