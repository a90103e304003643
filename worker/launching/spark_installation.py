"""The Spark of a worker: its home, and the environment that its programs get."""

from __future__ import annotations

from importlib.util import find_spec

from worker.launching.base import TaskContext, TaskParameterError
from worker.launching.scripts import interpreter
from worker.spark.jvm.installation import scratch_option
from worker.workspace import make_directory


def spark_home(context: TaskContext, version: str = "") -> str:
    """Return the Spark to use: the configured one, the environment's, or the pyspark package's."""
    environment = context.settings.environment
    home = (
        context.settings.spark_home
        or environment.get({"SPARK1": "SPARK_HOME1", "SPARK2": "SPARK_HOME2"}.get(version, ""))
        or environment.get("SPARK_HOME")
        or home_of_pyspark()
    )
    if not home:
        raise TaskParameterError("worker.spark_home: there is no Spark on this worker")
    return home


def scratch_variables(context: TaskContext) -> dict[str, str]:
    """Return what has spark-submit's JVM keep its temporary files in the attempt's directory."""
    folder = context.directory / "spark-tmp"
    make_directory(folder, context.account)
    return {"SPARK_SUBMIT_OPTS": f'"{scratch_option(folder)}"'}


def spark_environment(context: TaskContext, home: str) -> dict[str, str]:
    """Return what Spark programs get besides: the right Python on both sides, and scratch space."""
    python = interpreter(context)
    return {
        "SPARK_HOME": home,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_DIRS": str(context.directory / "spark-local"),
    }


def home_of_pyspark() -> str:
    """Return the Spark in the pyspark package of this Python; "" if there is none."""
    # Finds the package without importing it, which would take a second.
    spec = find_spec("pyspark")
    locations = None if spec is None else spec.submodule_search_locations
    return str(locations[0]) if locations else ""
