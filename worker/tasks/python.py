"""PYTHON: a script, inline or a file, run by the configured interpreter or the worker's own.

Inline scripts stand in a file of the attempt's directory, so that tracebacks show their lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from worker.tasks.base import Launch, TaskContext, TaskParameterError
from worker.tasks.resources import fetch_resources


class PythonTask:
    """Runs `rawScript`, or `file` with `mainArgs`."""

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        path = script_path(context, f"py_{context.app_id}.command")
        # Unbuffered: who watches the log sees each line when it is printed.
        argv = (interpreter(context), "-u", str(path), *context.words("mainArgs"))
        return Launch(argv=argv)


def interpreter(context: TaskContext) -> str:
    """The Python that tasks are run with."""
    return context.program(context.settings.python or sys.executable, "worker.python")


def script_path(context: TaskContext, inline_name: str) -> Path:
    """The script: `file` if that is given, else `rawScript` written into a file of that name."""
    file = context.text("file").strip()
    script = context.script()
    if file and script.strip():
        raise TaskParameterError(
            "params.rawScript and params.file are both given; which one is meant?"
        )
    if file:
        return context.file("file", file)
    if not script.strip():
        raise TaskParameterError("params.rawScript is empty, and there is no params.file")
    return context.write(inline_name, script)
