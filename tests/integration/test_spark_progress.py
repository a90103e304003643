"""Progress of a task: reported while it runs, for its session alone, and in full at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.states import TaskState
from common.spark_config import SparkConfig
from common.store.worker.ports import AttemptEnd
from tests.integration.spark_host import WARM_PROFILES, SparkHost
from tests.integration.worker_host import Host
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes.spark_facts import read_facts

pytestmark = pytest.mark.slow

# Waits in a UDF until the other side has seen enough, which a file tells.
HELD = """
import os, time
from pyspark.sql.functions import udf
gate = {gate!r}
def held(n):
    while not os.path.exists(gate):
        time.sleep(0.05)
    return n
rows = spark.range(0, 8, 1, 8).select(udf(held, "long")("id").alias("n"))
print(rows.agg({{"n": "sum"}}).collect())
"""

MOVES = """
import time
path = {path!r}
spark.range(0, 1000, 1, 4).write.parquet(path)
print(spark.read.parquet(path).groupBy("id").count().count())
time.sleep(1.5)  # A task that is over at once asks for no more than its queries have told.
"""


def a_host(home: Path, warm: SparkHost) -> Host:
    settings = TaskSettings(
        environment=seen_by_tasks(os.environ),
        spark=SparkConfig(profiles=WARM_PROFILES),
        spark_socket=warm.loop.address,
        cluster="0123456789ab",
    )
    return Host(home, settings=settings)


@pytest.fixture
def host(warm: SparkHost, tmp_path: Path) -> Iterator[Host]:
    made = a_host(tmp_path, warm)
    yield made
    made.supervisor.close()


def run(host: Host, script: str) -> AttemptEnd:
    return host.run(host.task(1, task_type="PYSPARK", params={"rawScript": script}))


def test_what_runs_is_told_while_it_runs(host: Host, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    task = host.task(1, task_type="PYSPARK", params={"rawScript": HELD.format(gate=str(gate))})
    host.begin(task)

    def is_told() -> bool:
        files = host.supervisor.facts_files()
        progress = read_facts(files[1]).progress if 1 in files else None
        if progress is not None and progress.tasks_running > 0 and progress.tasks >= 8:
            gate.touch()
        return gate.exists()

    host.until(is_told)
    end = host.end_of(1)
    assert end.state is TaskState.SUCCESS
    assert end.facts is not None
    assert end.facts.progress.tasks_running == 0
    assert end.facts.progress.tasks_done == end.facts.progress.tasks
    assert end.facts.ui_link.startswith("http://127.0.0.1:")


def test_a_stage_that_was_skipped_does_not_count_in_a_short_task(
    host: Host, tmp_path: Path
) -> None:
    """Of a task that is over at once only its queries have told, and they know no such stage."""
    gate = tmp_path / "gate"
    gate.touch()
    end = run(host, HELD.format(gate=str(gate)))
    assert end.state is TaskState.SUCCESS, host.log(1)
    assert end.facts is not None
    progress = end.facts.progress
    assert progress.stages_running == progress.tasks_running == 0
    assert progress.tasks_done == progress.tasks > 0


def test_an_end_tells_what_was_moved_and_what_it_took(host: Host, tmp_path: Path) -> None:
    end = run(host, MOVES.format(path=str(tmp_path / "rows")))
    assert end.state is TaskState.SUCCESS, host.log(1)
    assert end.facts is not None
    progress, usage = end.facts.progress, end.facts.usage
    assert progress.rows_out == 1_000
    assert progress.bytes_out > 0
    assert progress.rows_in >= 1_000
    assert progress.shuffle_write_bytes > 0
    assert progress.jobs_done > 0
    assert progress.jobs_running == progress.tasks_running == 0
    assert usage.run_seconds >= 1.5
    assert usage.cpu_seconds > 0
    assert usage.core_seconds > 0
    assert usage.peak_memory_bytes > 10_000_000


def test_a_session_is_told_of_its_own_work_alone(
    host: Host, warm: SparkHost, tmp_path: Path
) -> None:
    run(host, MOVES.format(path=str(tmp_path / "rows")))
    second = a_host(tmp_path / "second", warm)
    try:
        end = run(
            second, "import time\nprint(spark.range(3).count())\ntime.sleep(1.5)  # As above.\n"
        )
        assert end.facts is not None
        assert end.facts.progress.rows_out == 0
        assert end.facts.progress.shuffle_read_bytes < 1_000
    finally:
        second.supervisor.close()
