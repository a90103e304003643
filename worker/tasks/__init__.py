"""One module a task type, and in `base` the contract that they share."""

from __future__ import annotations

from collections.abc import Mapping

from worker.launching.base import TaskType
from worker.tasks.data_quality import DataQualityTask
from worker.tasks.http import HttpTask
from worker.tasks.procedure import ProcedureTask
from worker.tasks.pyspark import PySparkTask
from worker.tasks.python import PythonTask
from worker.tasks.shell import ShellTask
from worker.tasks.spark import SparkTask
from worker.tasks.spark_sql import SparkSqlTask
from worker.tasks.sql import SqlTask


def built_in_task_types() -> Mapping[str, TaskType]:
    """The types that come with Orcaflow, by the name in `t_ds_task_instance.task_type`."""
    return {
        "SHELL": ShellTask(),
        "PYTHON": PythonTask(),
        "SPARK": SparkTask(),
        "PYSPARK": PySparkTask(),
        "SPARK_SQL": SparkSqlTask(),
        "DATA_QUALITY": DataQualityTask(),
        "SQL": SqlTask(),
        "PROCEDURE": ProcedureTask(),
        "HTTP": HttpTask(),
    }
