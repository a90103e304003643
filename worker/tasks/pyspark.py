"""PYSPARK: a script, inline or a file, that finds `spark` and `params` ready to use.

Each attempt is a driver process of its own (`worker/spark/run_script.py`) with the session made
from `master` and `conf`. Nothing here imports pyspark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from worker.tasks.base import Launch, TaskContext, TaskParameterError
from worker.tasks.python import interpreter, script_path
from worker.tasks.resources import fetch_resources
from worker.tasks.spark import spark_environment, spark_home

_RUN_SCRIPT = str(Path(__file__).resolve().parent.parent / "spark" / "run_script.py")

# A user's own value of any of these wins.
_DEFAULT_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


class PySparkTask:
    """Runs `rawScript`, or `file` with `mainArgs`, beside a Spark session."""

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        path = script_path(context, f"pyspark_{context.app_id}.py")
        session = {
            "name": f"{context.task.process_name} {context.task.name}",
            "master": context.substitute(context.text("master")).strip() or "local[*]",
            "conf": {**_DEFAULT_CONF, **_conf(context)},
        }
        session_file = context.write(f"pyspark_{context.app_id}.json", json.dumps(session))
        python = interpreter(context)
        return Launch(
            argv=(
                python,
                "-u",
                _RUN_SCRIPT,
                str(session_file),
                str(path),
                *context.words("mainArgs"),
            ),
            environment=spark_environment(context, spark_home(context)),
        )


def _conf(context: TaskContext) -> dict[str, str]:
    """`conf`: an object; parameters are put into its values."""
    given = context.params.get("conf") or {}
    if not isinstance(given, Mapping):
        raise TaskParameterError("params.conf must be an object")
    conf: dict[str, str] = {}
    for key, value in given.items():
        if not isinstance(key, str) or not key.isprintable() or not key.strip() or "=" in key:
            raise TaskParameterError(f"params.conf: {str(key)[:80]!r} is no name of a setting")
        if isinstance(value, bool):
            conf[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            conf[key] = context.substitute(str(value))
        else:
            raise TaskParameterError(f"params.conf.{key} must be text, a number or a boolean")
    return conf
