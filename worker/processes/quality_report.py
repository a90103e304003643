"""Reads the artefact in which an attempt reports the results of rules on data.

The file is beside the log and the task's own process writes it, so it is read as one that may be
hostile. It decides nothing: what is in it is kept and shown.
"""

from __future__ import annotations

import os
from pathlib import Path

from common.model.quality import LIMIT_BYTES, QualityResult, results_from
from common.model.task_type import QUALITY
from common.task_types import task_type_spec
from worker.workspace import artefact_path, is_own_file


def quality_log(task_type: str, log_path: str) -> Path | None:
    """Return the log beside which an attempt of this type reports; None if the type does not."""
    return Path(log_path) if QUALITY in task_type_spec(task_type).artefacts else None


def read_quality(log_path: Path) -> tuple[QualityResult, ...]:
    """Return the results of an attempt; none if there is no such file that can be read."""
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
