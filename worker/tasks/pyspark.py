"""PYSPARK: a script, inline or a file, that finds `spark` and `params` ready to use.

`spark` is a session of the task's own, chosen by `worker.launching.spark_session`; `params` are its
parameters, with the types that were declared for them. Nothing here imports pyspark.
"""

from __future__ import annotations

from typing import Final

from common.model.task_type import FILE_TEXT, DatasourceUse, TaskKind, TaskTypeSpec
from worker.launching.base import Launch, TaskContext
from worker.launching.keys import FILE, MAIN_ARGS, RAW_SCRIPT, SESSION_KEYS, session_faults
from worker.launching.resources import fetch_resources
from worker.launching.scripts import script_path

SPEC: Final = TaskTypeSpec(
    name="PYSPARK",
    about="A Python script with a Spark session.",
    kind=TaskKind.SESSION,
    keys=(RAW_SCRIPT, FILE, FILE_TEXT, MAIN_ARGS, *SESSION_KEYS),
    needs=((RAW_SCRIPT.name, FILE.name),),
    alternatives=((RAW_SCRIPT.name, FILE.name),),
    scripts=(RAW_SCRIPT.name,),
    program=RAW_SCRIPT.name,
    faults=session_faults,
    names_are_its_own=False,
    datasources=DatasourceUse.NAMED,
    memory_retry=True,
    session_work="worker.spark.session.script",
)


class PySparkTask:
    """Runs `rawScript`, or `file` with `mainArgs`, beside a Spark session."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        # Lint needs no sessions.
        from worker.launching.spark_session import launch_with_session

        fetch_resources(context)
        path = script_path(context, f"pyspark_{context.app_id}.py")
        return launch_with_session(
            context,
            SPEC,
            {"script": str(path), "arguments": list(context.words("mainArgs"))},
            prints_outputs=True,
        )


TASK_TYPE: Final = PySparkTask
