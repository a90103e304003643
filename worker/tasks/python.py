"""PYTHON: a script, inline or a file, run by the configured interpreter or the worker's own.

Inline scripts stand in a file of the attempt's directory, so that tracebacks show their lines. A
worker forks a Python for them that has its imports made, unless a task asks for a new one.
"""

from __future__ import annotations

from typing import Final

from common.model.task_type import FILE_TEXT, LOCAL_PARAMS, RESOURCE_LIST, Key, Shape, TaskTypeSpec
from worker.launching.base import Launch, TaskContext
from worker.launching.keys import FILE, KEEP_CHILDREN, MAIN_ARGS, RAW_SCRIPT
from worker.launching.resources import fetch_resources
from worker.launching.scripts import interpreter, script_path

FRESH: Final = "fresh"
PROFILE: Final = Key(
    name="profile",
    shape=Shape.WORD,
    about="fresh starts a new interpreter; default lets the worker fork one.",
    words=("default", FRESH),
    default="default",
)

SPEC: Final = TaskTypeSpec(
    name="PYTHON",
    about="A Python script.",
    keys=(
        RAW_SCRIPT,
        FILE,
        FILE_TEXT,
        MAIN_ARGS,
        PROFILE,
        KEEP_CHILDREN,
        RESOURCE_LIST,
        LOCAL_PARAMS,
    ),
    needs=((RAW_SCRIPT.name, FILE.name),),
    alternatives=((RAW_SCRIPT.name, FILE.name),),
    scripts=(RAW_SCRIPT.name,),
)


class PythonTask:
    """Runs `rawScript`, or `file` with `mainArgs`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        path = script_path(context, f"py_{context.app_id}.command")
        # Unbuffered: who watches the log sees each line when it is printed.
        argv = (interpreter(context), "-u", str(path), *context.words("mainArgs"))
        return Launch(
            argv=argv,
            keeps_children=context.flag(KEEP_CHILDREN),
            forks=context.word(PROFILE) != FRESH,
        )


TASK_TYPE: Final = PythonTask
