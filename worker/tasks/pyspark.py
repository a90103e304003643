"""PYSPARK: a script, inline or a file, that finds `spark` and `params` ready to use.

`spark` is a session of the task's own, chosen by `worker.launching.spark_session`; `params` are its
parameters, with the types that were declared for them. Nothing here imports pyspark.
"""

from __future__ import annotations

from worker.launching.base import Launch, TaskContext
from worker.launching.resources import fetch_resources
from worker.launching.scripts import script_path
from worker.launching.spark_session import launch_with_session


class PySparkTask:
    """Runs `rawScript`, or `file` with `mainArgs`, beside a Spark session."""

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        path = script_path(context, f"pyspark_{context.app_id}.py")
        return launch_with_session(
            context,
            "pyspark",
            {"script": str(path), "arguments": list(context.words("mainArgs"))},
            prints_outputs=True,
        )
