"""PYTHON: a script, inline or a file, run by the configured interpreter or the worker's own.

Inline scripts stand in a file of the attempt's directory, so that tracebacks show their lines.
"""

from __future__ import annotations

from worker.launching.base import Launch, TaskContext
from worker.launching.resources import fetch_resources
from worker.launching.scripts import interpreter, script_path


class PythonTask:
    """Runs `rawScript`, or `file` with `mainArgs`."""

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        path = script_path(context, f"py_{context.app_id}.command")
        # Unbuffered: who watches the log sees each line when it is printed.
        argv = (interpreter(context), "-u", str(path), *context.words("mainArgs"))
        return Launch(argv=argv)
