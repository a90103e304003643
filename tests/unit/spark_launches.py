"""Spark tasks as a worker's launcher prepares them, without a worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from common.spark_config import SparkConfig, SparkProfile
from tests.claims import a_claimed_task
from worker.launcher import Launcher, seen_by_tasks
from worker.launching.base import TaskSettings, TaskTypes
from worker.processes.starting import Prepared
from worker.spark.managers.tags import Tags
from worker.tasks.data_quality import DataQualityTask
from worker.tasks.pyspark import PySparkTask
from worker.tasks.spark_sql import SparkSqlTask
from worker.tasks.stream import StreamTask
from worker.tasks.topology import TopologyTask
from worker.workspace import attempt_folders

CLUSTER = "0123456789ab"
TAGS = Tags(cluster=CLUSTER, key="secret")
TAG = TAGS.of(3)
SOCKET = "/run/orcaflow/spark.sock"
PROFILES = {
    "default": SparkProfile(driver_memory="2g", conf={"spark.sql.shuffle.partitions": "4"}),
    "big": SparkProfile(
        master="spark://cluster:7077",
        jars="/jars/a.jar",
        packages="org.x:y:1",
        conf={"spark.executor.memory": "3g"},
    ),
}


def prepared(
    home: Path,
    params: Mapping[str, Any],
    *,
    task_type: str = "PYSPARK",
    socket: str = SOCKET,
    default_profile: str = "default",
    global_params: object = None,
    node: Mapping[str, Any] | None = None,
    spark: Mapping[str, Any] | None = None,
    profiles: Mapping[str, SparkProfile] = PROFILES,
    **row: Any,
) -> Prepared:
    """The task as the launcher prepares it."""
    paths = attempt_folders(home / "tasks").paths(1, 2, 3)
    config = SparkConfig(default_profile=default_profile, profiles=profiles, **(spark or {}))
    settings = TaskSettings(
        environment=seen_by_tasks({}),
        spark=config,
        spark_socket=socket,
        cluster=CLUSTER,
        tags=TAGS,
    )
    launcher = Launcher(
        home=home,
        data_dir=home / "data",
        zone=ZoneInfo("UTC"),
        tenant_mode="single",
        settings=settings,
        types=TaskTypes(
            {
                "PYSPARK": PySparkTask(),
                "SPARK_SQL": SparkSqlTask(),
                "DATA_QUALITY": DataQualityTask(),
                "STREAM": StreamTask(),
                "TOPOLOGY": TopologyTask(),
            }
        ),
    )
    given = {"rawScript": "spark"} if "file" not in params else {}
    values = {
        "task_type": task_type,
        "task_json": json.dumps({**(node or {}), "params": {**given, **params}}),
        "global_params": json.dumps(global_params) if global_params else None,
        **row,
    }
    Path(paths.log_path).parent.mkdir(parents=True, exist_ok=True)
    return launcher.prepare(a_claimed_task(paths, **values))


def job_of(made: Prepared) -> dict[str, Any]:
    assert made.job_file is not None
    document: dict[str, Any] = json.loads(made.job_file.read_text())
    return document


def parameter(name: str, kind: str, value: str, direct: str = "IN") -> dict[str, str]:
    return {"prop": name, "direct": direct, "type": kind, "value": value}
