"""Warm sessions and classic drivers, against plain PySpark in the same run.

A *job* is the least that still is a Spark job: the sum of a thousand numbers, then a Python UDF. A
job by itself is a program that `python` runs, with a session of its own: the way of people
without a scheduler. Everything is measured while nothing else runs, after the Spark host is at work.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.bench import definitions, flights
from tests.bench.figures import Figure, Target, percentile, rate
from tests.bench.moments import count, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

_EARLY = ("early1", "early2", "early3")
"""Profiles whose servers start along with the worker."""
_COLD = "cold"
"""A profile whose server ends as soon as nobody has a session there."""
SETTINGS: dict[str, object] = {
    "worker.exec_threads": 16,
    "spark.prewarm": ",".join(_EARLY),
    "spark.profiles.default.master": "local[2]",
    f"spark.profiles.{_COLD}.idle_timeout_seconds": 1,
    **{f"spark.profiles.{name}.master": "local[2]" for name in (_COLD, *_EARLY)},
}

_LENGTH = 5
_CROWD = 60
_AT_ONCE = 8
_STOPS = 50
_WARM_UP = 3

_SUM = "print(spark.range(1000).selectExpr('sum(id)').collect())\n"
_UDF = """from pyspark.sql.functions import udf
print(spark.range(10).select(udf(lambda x: x + 1, 'long')('id')).collect()[-1])
"""
_ALONE = """import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.master('local[2]').getOrCreate()
"""


def measure(stage: Stage, runs: int) -> list[Figure]:
    tiny = stage.database.define("spark-chain", definitions.spark_chain(_LENGTH, _SUM + _UDF))
    for _ in range(_WARM_UP):
        stage.database.run(tiny, within=PATIENCE_SECONDS)
    return [
        *_first_of_the_day(stage, runs),
        *_chains(stage, tiny, runs),
        *_first_results(stage, runs),
        _crowd(stage, "tasks", _SUM, runs, Target(limit=15, at_least=True)),
        _crowd(stage, "tasks_with_udf", _SUM + _UDF, runs, Target(limit=9, at_least=True)),
        *flights.measure(stage, runs),
        _memory(stage, runs),
        _stops(stage),
    ]


def _chains(stage: Stage, tiny: int, runs: int) -> list[Figure]:
    program = stage.cluster.home / "job.py"
    program.write_text(_ALONE + _SUM + _UDF, encoding="utf-8")
    chains, alone = [], []
    for _ in range(runs):
        chains.append(stage.database.run(tiny, within=PATIENCE_SECONDS))
        began = time.monotonic()
        for _ in range(_LENGTH):
            _python(program)
        alone.append(time.monotonic() - began)
    ratios = tuple(plain / chain for plain, chain in zip(alone, chains, strict=True))
    return [
        Figure(name="spark.chain", unit="s", values=tuple(chains)),
        Figure(name="spark.five_programs", unit="s", values=tuple(alone)),
        Figure(
            name="spark.chain_times_faster",
            unit="x",
            values=ratios,
            target=Target(limit=20, at_least=True),
        ),
    ]


def _first_results(stage: Stage, runs: int) -> list[Figure]:
    """From the claim, or from the start of a driver, to the first result."""
    tells = _SUM + _report_to(stage, "first")
    warm = stage.database.define("spark-first", definitions.spark_chain(_LENGTH, tells))
    classic = stage.database.define(
        "spark-classic",
        definitions.spark_chain(1, tells, profile="classic", master="local[2]"),
    )
    program = stage.cluster.home / "first.py"
    program.write_text(_ALONE + tells.replace("t0", "plain"), encoding="utf-8")
    offset = time.time() - time.monotonic()
    claims: list[float] = []
    ratios: list[float] = []
    for _ in range(runs):
        claims.append(statistics.median(_claimed_to_first(stage, warm, offset)))
        [driver] = _claimed_to_first(stage, classic, offset)
        stage.moments.forget()
        began = time.monotonic()
        _python(program, ORCAFLOW_TASK_NAME="plain")
        seen = stage.moments.until(lambda m: count(m, "first") == 1, within=PATIENCE_SECONDS)
        ratios.append(driver / (of(seen, "first")["plain"] - began))
    return [
        Figure(
            name="spark.claim_to_first_result_p50",
            unit="s",
            values=tuple(claims),
            target=Target(limit=0.3),
        ),
        Figure(
            name="spark.classic_of_plain",
            unit="x",
            values=tuple(ratios),
            target=Target(limit=0.45),
        ),
    ]


def _first_of_the_day(stage: Stage, runs: int) -> list[Figure]:
    """From the claim of a server's first task to its first result: the server is to be started, or
    is there since the start of the worker.
    """
    tells = _SUM + _report_to(stage, "first")
    offset = time.time() - time.monotonic()

    jobs = {
        profile: stage.database.define(
            f"spark-{profile}", definitions.spark_chain(1, tells, profile=profile)
        )
        for profile in (_COLD, *_EARLY)
    }
    early = [_claimed_to_first(stage, jobs[profile], offset)[0] for profile in _EARLY]
    cold = []
    for _ in range(runs):
        _await_servers(stage, len(_EARLY) + 1)
        cold += _claimed_to_first(stage, jobs[_COLD], offset)
    return [
        Figure(name="spark.first_of_the_day", unit="s", values=tuple(cold)),
        Figure(name="spark.first_of_the_day_prewarmed", unit="s", values=tuple(early)),
    ]


def _await_servers(stage: Stage, number: int) -> None:
    """Wait until no more than so many servers of Spark run below the worker."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _servers(stage.cluster.worker_pid) > number:
        assert time.monotonic() < deadline, "a server without sessions did not end"
        time.sleep(0.2)


def _servers(worker_pid: int) -> int:
    below = psutil.Process(worker_pid).children(recursive=True)
    names = []
    for process in below:
        with suppress(psutil.NoSuchProcess):
            names.append(process.name())
    return names.count("java")


def _claimed_to_first(stage: Stage, definition: int, offset: float) -> list[float]:
    stage.moments.forget()
    stage.database.run(definition, within=PATIENCE_SECONDS)
    claimed = stage.database.attempts(definition)
    seen = stage.moments.until(
        lambda moments: count(moments, "first") == len(claimed), within=PATIENCE_SECONDS
    )
    first = of(seen, "first")
    return [first[name] + offset - claimed[name][0] for name in claimed]


def _crowd(stage: Stage, name: str, script: str, runs: int, target: Target) -> Figure:
    """Tasks a second, of many in one run.

    The first run isn't counted: the JVM compiles the code of concurrent sessions.
    """
    crowd = stage.database.define(f"spark-{name}", definitions.spark_crowd(_CROWD, script))
    stage.database.run(crowd, within=PATIENCE_SECONDS)
    rates = tuple(
        rate(_CROWD, stage.database.run(crowd, within=PATIENCE_SECONDS)) for _ in range(runs)
    )
    return Figure(name=f"spark.{name}", unit="/s", values=rates, target=target)


def _memory(stage: Stage, runs: int) -> Figure:
    """The memory (PSS) of a task that has done its work and waits; eight at once."""
    script = _SUM + _UDF + _report_to(stage, "idle") + "import signal\nsignal.pause()\n"
    crowd = stage.database.define("spark-idle", definitions.spark_crowd(_AT_ONCE, script))
    each: list[float] = []
    for _ in range(runs):
        stage.moments.forget()
        stage.database.start(crowd)
        stage.moments.until(lambda m: count(m, "idle") == _AT_ONCE, within=PATIENCE_SECONDS)
        each.append(_tasks_mb(stage.cluster.worker_pid) / _AT_ONCE)
        stage.database.stop_all(crowd)
        stage.database.await_ends(1, within=PATIENCE_SECONDS)
    return Figure(
        name="spark.memory_of_a_task", unit="MB", values=tuple(each), target=Target(limit=120)
    )


def _stops(stage: Stage) -> Figure:
    """The time from the command to the end of the instance, once Spark runs nothing of it."""
    # A UDF that sleeps keeps its job running until the stop ends it.
    endless = (
        "from pyspark.sql.functions import udf\nimport time\n"
        + _report_to(stage, "endless")
        + "spark.range(4).select(udf(lambda x: time.sleep(600), 'long')('id')).collect()\n"
    )
    definition = stage.database.define("spark-stop", definitions.spark_crowd(1, endless))
    took: list[float] = []
    for _ in range(_STOPS):
        stage.moments.forget()
        stage.database.start(definition)
        stage.moments.until(lambda m: count(m, "endless") == 1, within=PATIENCE_SECONDS)
        began = time.monotonic()
        stage.database.stop_all(definition)
        stage.database.await_ends(1, within=PATIENCE_SECONDS)
        took.append(time.monotonic() - began)
    return Figure(
        name="spark.stop_p100",
        unit="s",
        values=(percentile(took, 100),),
        target=Target(limit=10),
    )


def _report_to(stage: Stage, what: str) -> str:
    """A line of Python that reports a moment."""
    fifo = str(stage.cluster.home / "moments")
    name = "__import__('os').environ['ORCAFLOW_TASK_NAME']"
    return f"open({fifo!r}, 'w').write('{what} ' + {name} + '\\n')\n"


def _python(program: Path, **environment: str) -> None:
    own = {"PYSPARK_PYTHON": sys.executable, **environment}
    subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **own},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
    )


def _tasks_mb(worker_pid: int) -> float:
    """The memory (PSS) of all processes below a worker except its Spark host and the servers."""
    below = psutil.Process(worker_pid).children(recursive=True)
    total = 0
    for process in below:
        try:
            is_host = "worker.spark.host" in process.cmdline() and process.ppid() == worker_pid
            if process.name() != "java" and not is_host:
                total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6
