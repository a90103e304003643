"""The script of a task, inline or a file, and the Python that tasks are run with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from common.model.task_type import FILE_TEXT
from worker.launching.base import TaskContext, TaskParameterError, find_program

_NAMES: Final = ("python3", "python")
_VARIABLES: Final = ("PYTHON_LAUNCHER", "PYTHON_HOME")
"""The variables by which DolphinScheduler's environments name an interpreter or its folder."""


def interpreter(context: TaskContext) -> str:
    """Return the Python of tasks that name none: `worker.python`, or the worker's own."""
    return context.program(context.settings.python or sys.executable, "worker.python")


def named_interpreter(context: TaskContext) -> str | None:
    """Return the Python of the named environment, unless a setting of the worker names one.

    That is the Python of its variable PYTHON_LAUNCHER or PYTHON_HOME, or else one in a folder that
    it adds to the worker's search path. Other folders do not count: an environment for Java adds
    its own and keeps the others, and its tasks keep the worker's Python.
    """
    if context.settings.python:
        return None
    named = context.settings.named
    for variable in _VARIABLES:
        if value := named.get(variable, "").strip():
            return _in_variable(variable, value, named.get("PATH", os.defpath))
    return _first(context.settings.added_folders)


def _in_variable(variable: str, value: str, search_path: str) -> str:
    folders = (f"{value}/bin", value) if value.startswith("/") else ()
    found = find_program(value, search_path) or _first(folders)
    if found is None:
        raise TaskParameterError(
            f"environment: {variable} names no Python on this worker ({value[:200]})"
        )
    return found


def _first(folders: tuple[str, ...]) -> str | None:
    paths = (f"{folder}/{name}" for folder in folders for name in _NAMES)
    return next((path for path in paths if find_program(path, "") is not None), None)


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
