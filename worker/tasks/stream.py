"""STREAM: reads a topic of Kafka into a dataset, as the task of a supervisor.

The task has a Spark driver of its own on its worker, in the worker's own Python, for what runs
there is Orcaflow's program and not its author's. It asks its worker what to read, by the socket for
datasets, so neither a command line nor a file of the job has a secret of the stream's. Nothing here
imports pyspark.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from common.model.task_type import (
    LOCAL_PARAMS,
    Key,
    Shape,
    TaskKind,
    TaskTypeSpec,
    read_size,
)
from common.spark_config import CLASSIC, SparkProfile
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import CONF, session_faults

_SUPERVISOR: Final = Key(
    name="supervisor", about="The supervisor, whose submission made the definition."
)
_CORES: Final = Key(
    name="cores",
    shape=Shape.NUMBER,
    about="The threads that read and write at the same time.",
    default=2,
    highest=64,
)
_MEMORY: Final = Key(
    name="driverMemory",
    shape=Shape.SIZE,
    about="The Java heap of the task; Spark takes no less than 472M.",
    default="512M",
)

SPEC: Final = TaskTypeSpec(
    name="STREAM",
    about="A task of a supervisor, which reads a topic of Kafka into a dataset.",
    kind=TaskKind.SESSION,
    keys=(
        _SUPERVISOR,
        _CORES,
        _MEMORY,
        CONF,
        LOCAL_PARAMS,
    ),
    needs=((_SUPERVISOR.name,),),
    faults=session_faults,
    names_are_its_own=False,
    session_work="worker.spark.streaming.task",
)
_PACKAGES: Final = ("site-packages", "dist-packages")


class StreamTask:
    """Runs the program for streams in a driver of its own."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        # Lint needs no sessions.
        from worker.launching import spark_session
        from worker.launching.spark_installation import home_of_pyspark

        if not context.text(_SUPERVISOR.name).strip():
            raise TaskParameterError(
                "params.supervisor is missing: `orcaflow stream submit` makes definitions with it"
            )
        home = home_of_pyspark()
        if not home:
            raise TaskParameterError("the worker's own Python has no pyspark, which STREAM needs")
        cores = context.number(_CORES)
        choice = spark_session.Choice(
            profile=CLASSIC,
            made_as=SparkProfile(python=sys.executable),
            master=f"local[{cores}]",
            conf={
                **spark_session.CLASSIC_CONF,
                "spark.driver.memory": _memory(context),
                "spark.sql.shuffle.partitions": str(cores),
                **spark_session.session_conf(context),
            },
        )
        launch = spark_session.launch_with_session(
            context, SPEC, {}, prints_outputs=False, choice=choice
        )
        return replace(
            launch, environment={**launch.environment, "SPARK_HOME": home, **_search_path()}
        )


def _memory(context: TaskContext) -> str:
    with fault_at(_MEMORY.name):
        return read_size(context.params.get(_MEMORY.name)) or str(_MEMORY.default)


def _search_path() -> dict[str, str]:
    """Return what has Spark's Python processes find our packages, if these are in a checkout."""
    root = str(Path(__file__).resolve().parents[2])
    return {} if root.endswith(_PACKAGES) else {"PYTHONPATH": root}


TASK_TYPE: Final = StreamTask
