"""Launches tasks whose code is Orcaflow's and not its author's, in the worker's own Python.

Such a task has a Spark driver on its worker, of the version that Orcaflow was tested with; or it
names a profile, and has a session in a server of its worker. Nothing here imports pyspark.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.model.task_type import Key, TaskTypeSpec, read_size
from common.spark_config import CLASSIC, SparkProfile
from worker.launching import spark_session
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.spark_installation import home_of_pyspark

_PACKAGES: Final = ("site-packages", "dist-packages")


def launch_with_driver(
    context: TaskContext,
    spec: TaskTypeSpec,
    document: Mapping[str, object],
    *,
    cores: int,
    memory: str,
    conf: Mapping[str, str],
) -> Launch:
    """Have the task's process do the type's work in a driver of `cores` threads.

    `conf` is the type's own; the task's settings win.
    """
    home = home_of_pyspark()
    if not home:
        raise TaskParameterError(f"the worker's own Python has no pyspark, which {spec.name} needs")
    choice = spark_session.Choice(
        profile=CLASSIC,
        made_as=SparkProfile(python=sys.executable),
        master=f"local[{cores}]",
        conf={
            **spark_session.CLASSIC_CONF,
            "spark.driver.memory": memory,
            **conf,
            **spark_session.session_conf(context),
        },
    )
    launch = spark_session.launch_with_session(
        context, spec, document, prints_outputs=False, choice=choice
    )
    return replace(launch, environment={**launch.environment, "SPARK_HOME": home, **_search_path()})


def launch_in_server(
    context: TaskContext,
    spec: TaskTypeSpec,
    document: Mapping[str, object],
    *,
    conf: Mapping[str, str],
) -> Launch:
    """Have the task's process do the type's work in a session of `params.profile`.

    `conf` is the type's own; the task's settings win. `TaskParameterError` if the worker has no
    such sessions, or executors elsewhere, or another Python for them.
    """
    choice = spark_session.choose(context)
    if choice.is_classic:
        raise TaskParameterError(
            f"params.profile: this worker keeps no Spark servers; without it, {spec.name} has a"
            " driver of its own"
        )
    if not choice.made_as.master.startswith("local"):
        raise TaskParameterError(
            f"params.profile: {choice.profile} runs on {choice.made_as.master}, and the files of"
            f" {spec.name} are on its worker: name a profile whose master is local"
        )
    python = choice.made_as.python or context.settings.python
    if python not in ("", sys.executable):
        raise TaskParameterError(
            f"params.profile: {choice.profile} runs Python as {python}, and {spec.name} as the"
            f' worker does: name a profile with python = "{sys.executable}"'
        )
    return spark_session.launch_with_session(
        context,
        spec,
        document,
        prints_outputs=False,
        choice=replace(choice, conf={**conf, **choice.conf}),
    )


def memory_of(context: TaskContext, key: Key) -> str:
    """Return the size that a key has, or its default."""
    with fault_at(key.name):
        return read_size(context.params.get(key.name)) or str(key.default)


def _search_path() -> dict[str, str]:
    """Return what has Spark's Python processes find our packages, if these are in a checkout."""
    root = str(Path(__file__).resolve().parents[2])
    return {} if root.endswith(_PACKAGES) else {"PYTHONPATH": root}
