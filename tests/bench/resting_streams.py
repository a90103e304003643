"""Supervisors of streams whose tasks have nothing to read: what they cost, and their memory.

`streams.idle_cpu` is the processor time of master and PostgreSQL for a supervisor with four tasks,
above what they took without it. `streams.driver_pss` is the memory of a task's Spark driver, its
Java, as PSS; `streams.task_pss` that of all its processes, with the Pythons of the task and of its
source. `streams.shared_task_pss` is what three further tasks add, each, to a Spark host with a
server that one task has already; `streams.shared_pss` is all of it with the four.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from statistics import median
from typing import Any

import psutil
import psycopg2

from tests.bench import daemons
from tests.bench.cluster import ROOT
from tests.bench.figures import Figure, Target
from tests.bench.idle import SETTLE_SECONDS, WINDOW_SECONDS
from tests.bench.stage import Stage
from tests.mock_kafka import Broker, a_broker

SETTINGS = {"worker.exec_threads": 8}

_TASKS = 4
_RECORDS = 1_000
_RECORD = b'{"at": "2026-11-28T12:00:00Z", "origin": "JFK"}'
_MOST_OF_DRIVER = 600e6 / 2**20
_MOST_SHARED = 120e6 / 2**20
_BEGIN_SECONDS = 240.0
_LOOK_SECONDS = 0.5
_SPEC: dict[str, Any] = {
    "type": "kafka",
    "spec": {
        "dataSchema": {
            "timestampSpec": {"column": "at"},
            "dimensionsSpec": {"dimensions": ["origin"]},
            "metricsSpec": [{"type": "count", "name": "rows"}],
            "granularitySpec": {"segmentGranularity": "HOUR", "queryGranularity": "MINUTE"},
        },
        "ioConfig": {
            "inputFormat": {"type": "json"},
            "useEarliestOffset": True,
            "startDelay": "PT0S",
        },
    },
}
_OPEN = """
    SELECT count(*) FROM t_ds_stream_task stream
    JOIN t_ds_task_instance task ON task.id = stream.task_instance_id
    WHERE stream.supervisor = %s AND task.end_time IS NULL
"""
_READING = """
    SELECT task.pid FROM t_ds_stream_task stream
    JOIN t_ds_task_instance task ON task.id = stream.task_instance_id
    WHERE stream.supervisor = %s AND task.state = 1 AND stream.status ->> 'state' = 'READING'
    AND stream.status -> 'counts' ->> 'processed' = %s
"""


def measure(stage: Stage, runs: int) -> list[Figure]:
    without = median(_cpu(stage) for _ in range(runs))
    with a_broker() as broker, closing(psycopg2.connect(stage.cluster.dsn)) as connection:
        connection.autocommit = True
        with _supervisor(stage, broker, "resting", tasks=_TASKS):
            pids = _reading(connection, "resting", _TASKS)
            above = [_cpu(stage) - without for _ in range(runs)]
            drivers = [daemons.shared_mb(_java(pid), below=False) for pid in pids]
            tasks = [daemons.shared_mb(pid) for pid in pids]
        added, shared = [], []
        for number in range(runs):
            one, more = f"one{number}", f"more{number}"
            with _supervisor(stage, broker, one, "--profile", "default", tasks=1):
                of_one = _shared_mb(stage, _reading(connection, one, 1))
                with _supervisor(stage, broker, more, "--profile", "default", tasks=_TASKS - 1):
                    pids = _reading(connection, more, _TASKS - 1) + _reading(connection, one, 1)
                    shared.append(_shared_mb(stage, pids))
            added.append((shared[-1] - of_one) / (_TASKS - 1))
    return [
        Figure(
            name="streams.idle_cpu",
            unit="% of a core",
            values=tuple(above),
            target=Target(limit=2),
        ),
        Figure(
            name="streams.driver_pss",
            unit="MiB",
            values=tuple(drivers),
            target=Target(limit=_MOST_OF_DRIVER),
        ),
        Figure(name="streams.task_pss", unit="MiB", values=tuple(tasks)),
        Figure(
            name="streams.shared_task_pss",
            unit="MiB",
            values=tuple(added),
            target=Target(limit=_MOST_SHARED),
        ),
        Figure(name="streams.shared_pss", unit="MiB", values=tuple(shared)),
    ]


@contextmanager
def _supervisor(
    stage: Stage, broker: Broker, name: str, *options: str, tasks: int
) -> Iterator[None]:
    """Have a supervisor of so many tasks, each of which has read some records."""
    broker.create(name, tasks)
    for partition in range(tasks):
        broker.produce(name, partition, [_RECORD] * _RECORDS)
    document = json.loads(json.dumps(_SPEC))
    document["spec"]["dataSchema"]["dataSource"] = name
    document["spec"]["ioConfig"] |= {
        "topic": name,
        "taskCount": tasks,
        "consumerProperties": {"bootstrap.servers": broker.servers},
    }
    path = stage.cluster.home / f"{name}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    orcaflow = str(ROOT / "bin" / "orcaflow")
    stage.cluster.execute([orcaflow, "stream", "submit", str(path), *options])
    try:
        yield
    finally:
        stage.cluster.execute([orcaflow, "stream", "terminate", name])
        _await_end(stage, name)


def _await_end(stage: Stage, supervisor: str) -> None:
    """Wait until its tasks are gone: what they take counts for nobody else."""
    deadline = time.monotonic() + _BEGIN_SECONDS
    with closing(psycopg2.connect(stage.cluster.dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            while True:
                cursor.execute(_OPEN, (supervisor,))
                if cursor.fetchone() == (0,):
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"tasks of {supervisor} are left")
                # Ends are seen in the tables.
                time.sleep(_LOOK_SECONDS)


def _shared_mb(stage: Stage, pids: Sequence[int]) -> float:
    """Return the memory of the Spark host with its servers, and of all else that tasks have."""
    time.sleep(SETTLE_SECONDS)
    (host,) = (
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if "worker.spark.host" in each.info["cmdline"]
        and str(stage.cluster.home) in each.info["cmdline"]
        and "worker.spark.host" not in (each.parent() or each).cmdline()
    )
    return sum(map(daemons.shared_mb, (host, *pids)))


def _reading(connection: Any, supervisor: str, tasks: int) -> list[int]:
    """Wait until all tasks have read what there is; return the processes of their attempts."""
    deadline = time.monotonic() + _BEGIN_SECONDS
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_READING, (supervisor, str(_RECORDS)))
            pids = [pid for (pid,) in cursor.fetchall()]
        if len(pids) == tasks:
            return pids
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(pids)} of {tasks} tasks read")
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
