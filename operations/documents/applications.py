"""The progress and the cost of an attempt's Spark applications, as fields of its document.

Both come out of columns that an attempt could write (`common.model.spark`), so they are read as
such. Reads no table.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from common.model.spark import Progress, progress_from, usage_from

if TYPE_CHECKING:
    from common.store.people.views import TaskInstanceView


def progress_of(task: TaskInstanceView) -> Progress | None:
    """The progress of the attempt's application; None if it has reported none."""
    return None if task.progress is None else progress_from(task.progress)


def progress_row(task: TaskInstanceView) -> dict[str, object] | None:
    """The counts of the progress, and `share`, which is 0 to 1 or null."""
    progress = progress_of(task)
    return None if progress is None else {**asdict(progress), "share": progress.share}


def usage_row(task: TaskInstanceView) -> dict[str, object] | None:
    """The resources that the attempt has used."""
    return None if task.usage is None else asdict(usage_from(task.usage))
