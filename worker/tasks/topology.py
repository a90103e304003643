"""TOPOLOGY: runs a topology of spouts and bolts, as long as people want it to.

The task has a Spark driver of its own on its worker, in the worker's own Python. It asks its worker
for the code and for what people want, by the socket for datasets, so a command line and a file of
the job have the topology's name alone. Nothing here imports pyspark.
"""

from __future__ import annotations

from typing import Final

from common.model.task_type import (
    LOCAL_PARAMS,
    Key,
    Shape,
    TaskKind,
    TaskTypeSpec,
)
from common.model.topologies import TASK_TYPE as NAME
from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.keys import CONF, session_faults

_TOPOLOGY: Final = Key(name="topology", about="The topology, whose submission made the definition.")
_CORES: Final = Key(
    name="cores",
    shape=Shape.NUMBER,
    about="The threads that run its tasks at the same time.",
    default=2,
    highest=64,
)
_MEMORY: Final = Key(
    name="driverMemory",
    shape=Shape.SIZE,
    about="The Java heap of the task; Spark takes no less than 472M.",
    default="1G",
)
SPEC: Final = TaskTypeSpec(
    name=NAME,
    about="Runs a topology of spouts and bolts, which `orcaflow topology submit` has made.",
    kind=TaskKind.SESSION,
    keys=(_TOPOLOGY, _CORES, _MEMORY, CONF, LOCAL_PARAMS),
    needs=((_TOPOLOGY.name,),),
    faults=session_faults,
    names_are_its_own=False,
    session_work="worker.spark.topology.task",
)


class TopologyTask:
    """Runs the program for topologies in a driver of its own."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        # Lint needs no sessions.
        from worker.launching.own_program import launch_with_driver, memory_of

        name = context.text(_TOPOLOGY.name).strip()
        if not name:
            raise TaskParameterError(
                "params.topology is missing: `orcaflow topology submit` makes definitions with it"
            )
        return launch_with_driver(
            context,
            SPEC,
            {"topology": name},
            cores=context.number(_CORES),
            memory=memory_of(context, _MEMORY),
            conf={},
        )


TASK_TYPE: Final = TopologyTask
