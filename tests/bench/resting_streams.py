"""A supervisor of a stream whose four tasks have nothing to read: what it costs, and their memory.

`streams.idle_cpu` is the processor time of master and PostgreSQL above what they took without it.
`streams.driver_pss` is the memory of a task's Spark driver, its Java, as PSS; `streams.task_pss` that
of all its processes, with the Pythons of the task and of its source.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from statistics import median
from typing import Any

import psutil
import psycopg2

from tests.bench import daemons
from tests.bench.cluster import ROOT
from tests.bench.figures import Figure, Target
from tests.bench.idle import SETTLE_SECONDS, WINDOW_SECONDS
from tests.bench.stage import Stage
from tests.mock_kafka import a_broker

SETTINGS = {"worker.exec_threads": 8}

_TASKS = 4
_BEGIN_SECONDS = 240.0
_LOOK_SECONDS = 0.5
_SPEC: dict[str, Any] = {
    "type": "kafka",
    "spec": {
        "dataSchema": {
            "dataSource": "resting",
            "timestampSpec": {"column": "at"},
            "dimensionsSpec": {"dimensions": ["origin"]},
            "metricsSpec": [{"type": "count", "name": "rows"}],
            "granularitySpec": {"segmentGranularity": "HOUR", "queryGranularity": "MINUTE"},
        },
        "ioConfig": {
            "topic": "resting",
            "inputFormat": {"type": "json"},
            "useEarliestOffset": True,
            "taskCount": _TASKS,
            "startDelay": "PT0S",
        },
    },
}
_READING = """
    SELECT task.pid FROM t_ds_stream_task stream
    JOIN t_ds_task_instance task ON task.id = stream.task_instance_id
    WHERE stream.supervisor = 'resting' AND task.state = 1 AND stream.status ->> 'state' = 'READING'
"""


def measure(stage: Stage, runs: int) -> list[Figure]:
    with a_broker() as broker, closing(psycopg2.connect(stage.cluster.dsn)) as connection:
        connection.autocommit = True
        broker.create("resting", _TASKS)
        document = json.loads(json.dumps(_SPEC))
        document["spec"]["ioConfig"]["consumerProperties"] = {"bootstrap.servers": broker.servers}
        path = stage.cluster.home / "resting.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        orcaflow = str(ROOT / "bin" / "orcaflow")
        without = median(_cpu(stage) for _ in range(runs))
        stage.cluster.execute([orcaflow, "stream", "submit", str(path)])
        try:
            pids = _reading(connection)
            above = [_cpu(stage) - without for _ in range(runs)]
            drivers = [daemons.shared_mb(_java(pid), below=False) for pid in pids]
            tasks = [daemons.shared_mb(pid) for pid in pids]
        finally:
            stage.cluster.execute([orcaflow, "stream", "terminate", "resting"])
    return [
        Figure(
            name="streams.idle_cpu",
            unit="% of a core",
            values=tuple(above),
            target=Target(limit=2),
        ),
        Figure(
            name="streams.driver_pss", unit="MiB", values=tuple(drivers), target=Target(limit=600)
        ),
        Figure(name="streams.task_pss", unit="MiB", values=tuple(tasks)),
    ]


def _reading(connection: Any) -> list[int]:
    """Wait until all tasks read; return the processes of their attempts."""
    deadline = time.monotonic() + _BEGIN_SECONDS
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_READING)
            pids = [pid for (pid,) in cursor.fetchall()]
        if len(pids) == _TASKS:
            return pids
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(pids)} of {_TASKS} tasks read")
        time.sleep(_LOOK_SECONDS)


def _java(pid: int) -> int:
    below = psutil.Process(pid).children(recursive=True)
    return next(each.pid for each in below if each.name() == "java")


def _cpu(stage: Stage) -> float:
    """Return the share of a core, in percent, that master and PostgreSQL take at rest."""
    time.sleep(SETTLE_SECONDS)
    # The measurement is an idle wait.
    before, began = _seconds(stage), time.monotonic()
    time.sleep(WINDOW_SECONDS)
    return 100 * (_seconds(stage) - before) / (time.monotonic() - began)


def _seconds(stage: Stage) -> float:
    pids = stage.cluster.pids
    postgres = next(pid for name, pid in pids.items() if name.startswith("postgres"))
    sessions = [each.pid for each in psutil.Process(postgres).children(recursive=True)]
    return sum(map(daemons.cpu_seconds, (pids["master-server"], postgres, *sessions)))
