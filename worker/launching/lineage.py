"""Tells OpenLineage's listener in Spark the run that an attempt's jobs belong to.

Pure. These are settings of Spark for those who use OpenLineage; without its listener among a
profile's `packages` and `spark.extraListeners` they mean nothing and cost nothing.
"""

from __future__ import annotations

from worker import tracing
from worker.launching.base import TaskContext


def lineage_conf(context: TaskContext) -> dict[str, str]:
    """Return the settings; none if the worker names no `spark.openlineage_url`."""
    spark, task = context.settings.spark, context.task
    if not spark.openlineage_url:
        return {}
    cluster, namespace = context.settings.cluster, spark.openlineage_namespace
    run = tracing.run_id(cluster=cluster, process_instance_id=task.process_instance_id)
    return {
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": spark.openlineage_url,
        "spark.openlineage.namespace": namespace,
        "spark.openlineage.parentJobNamespace": namespace,
        "spark.openlineage.parentJobName": f"{task.process_name}.{task.name}",
        "spark.openlineage.parentRunId": str(
            tracing.attempt_id(cluster=cluster, task_instance_id=task.id)
        ),
        "spark.openlineage.rootParentJobNamespace": namespace,
        "spark.openlineage.rootParentJobName": task.process_name,
        "spark.openlineage.rootParentRunId": str(run),
    }
