"""Where a DATA_QUALITY attempt leaves what its rules have found, and how the daemon reads it.

The file is beside the log and the task's own process writes it, so it is read as one that may be
hostile. It decides nothing: what is in it is kept and shown.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from common.model.quality import LIMIT_BYTES, QualityResult, results_from
from common.store.worker.ports import ClaimedTask
from worker.workspace import artefact_path, is_own_file

QUALITY: Final = "quality.json"
"""What the artefact is called, behind the log's own name."""
TASK_TYPE: Final = "DATA_QUALITY"


def needs_former(task: ClaimedTask) -> bool:
    """Whether an attempt is to be given what former runs have measured."""
    return task.task_type == TASK_TYPE and "compare" in task.task_json


def read_quality(log_path: Path) -> tuple[QualityResult, ...]:
    """What an attempt has found; nothing if there is no such file that can be read."""
    try:
        # Neither a link out of the directory nor a pipe that nobody writes to.
        file = os.open(
            artefact_path(log_path, QUALITY), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return ()
    try:
        # One more than is allowed, so that a document which is too long isn't taken for a whole.
        return results_from(os.read(file, LIMIT_BYTES + 1)) if is_own_file(file) else ()
    except OSError:
        return ()
    finally:
        os.close(file)
