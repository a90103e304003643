"""COMPACT: merges the small segments of an interval of a dataset, in a Spark session.

The session is one as PYSPARK's (`worker.launching.spark_session`), and the work that of
`worker.spark.streaming.compaction`. The task asks for its locks by itself, chunk by chunk and with
a low priority, so it is in nobody's way.
"""

from __future__ import annotations

from typing import Final

from common.model.compaction import (
    ROWS_PER_SEGMENT,
    check_dataset,
    check_interval,
    read_metrics,
)
from common.model.locks import COMPACTION_PRIORITY, HIGHEST_PRIORITY
from common.model.task_type import DatasourceUse, Key, Shape, TaskKind, TaskTypeSpec, is_absent
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import SESSION_KEYS, session_faults
from worker.launching.resources import fetch_resources


def _check_metrics(value: object) -> None:
    if not is_absent(value):
        read_metrics(value)


_DATASET: Final = Key(name="dataset", about="The dataset.", check=check_dataset)
_INTERVAL: Final = Key(
    name="interval",
    about="The interval, of whole chunks, as $[yyyy-MM-dd]/P1D.",
    check=check_interval,
)
_ROWS: Final = Key(
    name="maxRowsPerSegment",
    shape=Shape.NUMBER,
    about="The rows of a segment, at most.",
    default=ROWS_PER_SEGMENT,
)
_METRICS: Final = Key(
    name="metricsSpec",
    shape=Shape.ANY,
    about="The metrics of the dataset; with them, rows of the same time and dimensions become one.",
    check=_check_metrics,
    is_literal=True,
)
_PRIORITY: Final = Key(
    name="priority",
    shape=Shape.NUMBER,
    about="The priority of the locks.",
    default=COMPACTION_PRIORITY,
    highest=HIGHEST_PRIORITY,
)
SPEC: Final = TaskTypeSpec(
    name="COMPACT",
    about="Merges the small segments of an interval of a dataset.",
    kind=TaskKind.SESSION,
    keys=(_DATASET, _INTERVAL, _ROWS, _METRICS, _PRIORITY, *SESSION_KEYS),
    needs=((_DATASET.name,), (_INTERVAL.name,)),
    faults=session_faults,
    names_are_its_own=False,
    datasources=DatasourceUse.NAMED,
    memory_retry=True,
    session_work="worker.spark.streaming.compaction",
)


class CompactTask:
    """Merges segments of `dataset` in `interval`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        # Lint needs no sessions.
        from worker.launching.spark_session import launch_with_session

        fetch_resources(context)
        values = {}
        for key in (_DATASET, _INTERVAL):
            text = context.substitute(context.text(key.name)).strip()
            if not text:
                raise TaskParameterError(f"params.{key.name} is missing")
            with fault_at(key.name):
                values[key.name] = text
                if key.check is not None:
                    key.check(text)
        metrics = context.params.get(_METRICS.name)
        if not is_absent(metrics):
            with fault_at(_METRICS.name):
                read_metrics(metrics)
        return launch_with_session(
            context,
            SPEC,
            {
                **values,
                "metrics": metrics or [],
                "most_rows": context.number(_ROWS),
                "priority": context.number(_PRIORITY),
            },
            prints_outputs=False,
        )


TASK_TYPE: Final = CompactTask
