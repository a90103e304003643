"""The script of a task, inline or a file, and the Python that tasks are run with."""

from __future__ import annotations

import sys
from pathlib import Path

from common.model.task_type import FILE_TEXT
from worker.launching.base import TaskContext, TaskParameterError


def interpreter(context: TaskContext) -> str:
    """Return the Python that tasks are run with."""
    return context.program(context.settings.python or sys.executable, "worker.python")


def script_path(context: TaskContext, inline_name: str) -> Path:
    """Return the script's path: `file`, or `rawScript` written into a file of that name."""
    file = context.text("file").strip()
    script = context.script()
    context.text(FILE_TEXT.name)  # Refuses a value that is not text.
    if file and script.strip():
        raise TaskParameterError(
            "params.rawScript and params.file are both given; which one is meant?"
        )
    if file:
        return context.file("file", file)
    if not script.strip():
        raise TaskParameterError("params.rawScript is empty, and there is no params.file")
    return context.write(inline_name, script)
