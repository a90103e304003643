"""spark-submit on a real standalone cluster, and with a local master."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from common.model.failures import FailureReason
from common.model.spark import SparkFacts
from common.model.states import TaskState
from common.spark_config import SparkConfig
from tests import light_jvm
from tests.integration.managers.bench import GRACE, TAGS, pid_of_runner
from tests.integration.managers.standalone import StandaloneCluster
from tests.integration.worker_host import Host
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.spark.managers.standalone import StandaloneManager

pytestmark = pytest.mark.slow

# It names itself, as most programs do, and so hides the name that has the tag in it. A context and
# jobs on RDDs: none of Spark SQL is loaded, which takes more of the processor than all the rest.
_BEGIN = """
import os, sys, time
from pyspark import SparkConf, SparkContext
context = SparkContext(conf=SparkConf().setAppName("my own name"))
print("made", context.applicationId, flush=True)
"""
_SUM = _BEGIN + "print('sum', context.range(0, 1000, 1, 4).sum())\n"
_LONG = _BEGIN + "context.range(0, 2, 1, 2).foreach(lambda _: time.sleep(300))\n"
_BROKEN = _BEGIN + "context.range(0, 4, 1, 2).map(lambda n: 1 // 0).collect()\n"
_WAIT = "while not os.path.exists(sys.argv[1]): time.sleep(0.1)\ncontext.stop()\n"
_GATED = _SUM + _WAIT
_NAMED = """
from pyspark import SparkFiles
assert open(SparkFiles.get("named.txt")).read() == "given"
"""

_SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    **light_jvm.conf("driver", "executor"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


class Programs:
    """Runs Python programs as SPARK tasks."""

    def __init__(self, home: Path, cluster: StandaloneCluster) -> None:
        self.home = home
        self.cluster = cluster
        self.host = Host(
            home,
            grace=GRACE,
            settings=TaskSettings(
                python=sys.executable,
                # Of the JVM that submits a driver to the cluster: no setting of Spark's is for that.
                environment={
                    **seen_by_tasks(os.environ),
                    "JDK_JAVA_OPTIONS": light_jvm.LIGHT,
                },
                spark=SparkConfig(standalone_urls=cluster.page),
                tags=TAGS,
            ),
        )

    def begin(
        self, number: int, program: str, *, params: Mapping[str, Any] = {}, **row: Any
    ) -> None:
        (self.home / "job.py").write_text(program)
        whole = {
            "programType": "PYTHON",
            "mainJar": str(self.home / "job.py"),
            "master": self.cluster.master,
            "deployMode": "client",
            "conf": _SMALL,
            **params,
        }
        self.host.begin(self.host.task(number, task_type="SPARK", params=whole, **row))

    def facts(self, number: int) -> SparkFacts:
        path = self.host.directory(number) / "spark-facts.json"
        return SparkFacts.from_json(path.read_bytes()) if path.exists() else SparkFacts()


@pytest.fixture
def programs(tmp_path: Path, cluster: StandaloneCluster) -> Iterator[Programs]:
    programs = Programs(tmp_path, cluster)
    yield programs
    programs.host.supervisor.kill_all()
    programs.host.until(lambda: not programs.host.supervisor.running())
    programs.host.supervisor.close()


def test_a_kill_is_verified_with_the_master(programs: Programs, cluster: StandaloneCluster) -> None:
    programs.begin(1, _LONG)
    programs.host.until(lambda: programs.facts(1).progress.tasks_running == 2)
    (app_id,) = programs.facts(1).application_ids
    programs.host.supervisor.kill(1)
    assert programs.host.end_of(1).state is TaskState.KILL
    assert cluster.live() == []
    assert cluster.state(app_id) in ("FINISHED", "KILLED")
    assert "says the Spark Master" in programs.host.log(1)


def test_a_failed_stage_is_explained(programs: Programs) -> None:
    programs.begin(1, _BROKEN)
    end = programs.host.end_of(1)
    assert end.state is TaskState.FAILURE
    assert "ZeroDivisionError" in (end.reason or ""), end.reason
    assert programs.facts(1).failure is FailureReason.PYTHON_ERROR


def test_an_application_does_not_outlive_a_runner_that_is_killed_outright(
    programs: Programs, cluster: StandaloneCluster
) -> None:
    programs.begin(1, _LONG)
    programs.host.until(lambda: programs.facts(1).progress.tasks_running == 2)
    os.kill(pid_of_runner(programs.host.directory(1)), signal.SIGKILL)
    assert programs.host.end_of(1).state is TaskState.FAILURE
    programs.host.until(lambda: cluster.live() == [])


def test_a_driver_on_a_lost_host_is_ended_first_and_an_application_that_names_itself_is_found(
    programs: Programs, cluster: StandaloneCluster
) -> None:
    (programs.home / "left.py").write_text(_LONG)
    conf = {**_SMALL, "spark.orcaflow.attempt": TAGS.of(1), "spark.ui.port": "0"}
    given = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    submit = f"{cluster.spark}/bin/spark-submit"
    argv = (submit, "--master", cluster.master, *given, str(programs.home / "left.py"))
    with (programs.home / "left.log").open("wb") as log:
        environment = {**os.environ, "SPARK_HOME": cluster.spark, "PYSPARK_PYTHON": sys.executable}
        left = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
    try:
        # Its page tells the tag a moment after the Master tells of the application.
        manager = StandaloneManager([cluster.page])
        programs.host.until(lambda: len(manager.with_tag(TAGS.of(1))) == 1)
        gate = programs.home / "gate"
        programs.begin(2, _GATED, params={"mainArgs": str(gate)}, lost_attempts=(1,))
        programs.host.until(lambda: programs.facts(2).progress.tasks_done >= 4)
        assert "what is left of earlier attempts is ended first" in programs.host.log(2)
        facts = programs.facts(2)
        (app_id,) = facts.application_ids
        assert cluster.live() == [app_id]
        assert facts.ui_link.startswith("http://")
        assert facts.history_link == f"{cluster.page}/app/?appId={app_id}"
        gate.touch()
        assert programs.host.end_of(2).state is TaskState.SUCCESS, programs.host.log(2)
        assert cluster.state(app_id) == "FINISHED"
        assert programs.facts(2).usage.core_seconds > 0
        assert programs.facts(2).usage.peak_memory_bytes > 50_000_000
    finally:
        left.kill()
        left.wait()


# The compiler reads each jar of its class path.
_JARS = ("spark-core_*", "spark-common-utils_*", "scala-library-*")
_JAVA = """
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
public class Job {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("end")) return;
        if (words[0].equals("exit")) System.exit(3);
        long pause = Long.parseLong(words[0]);
        SparkConf conf = new SparkConf().setAppName("my own name");
        // Executors without Java can't start. One that starts and fails is replaced for ever.
        if (pause < 0) conf.set("spark.executorEnv.JAVA_HOME", "/nonexistent");
        JavaSparkContext context = new JavaSparkContext(conf);
        System.out.println("count " + context.parallelize(List.of(1, 2)).count());
        Thread.sleep(Math.abs(pause));
    }
}
"""


@pytest.fixture(scope="module")
def java(cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The keys of a task with a driver in the cluster."""
    if shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    home = tmp_path_factory.mktemp("java")
    (home / "Job.java").write_text(_JAVA)
    jars = [str(jar) for name in _JARS for jar in Path(cluster.spark, "jars").glob(name)]
    light = [f"-J{option}" for option in light_jvm.LIGHT.split()]
    compile_it = ("javac", *light, "-proc:none", "-cp", os.pathsep.join(jars), "Job.java")
    subprocess.run(compile_it, cwd=home, check=True)
    subprocess.run(("jar", "cf", "job.jar", "Job.class"), cwd=home, check=True)
    return {
        "programType": "JAVA",
        "mainClass": "Job",
        "mainJar": str(home / "job.jar"),
        "deployMode": "cluster",
        "driverCores": 1,
    }


def test_a_driver_that_runs_in_the_cluster_is_ended_with_its_application(
    programs: Programs, cluster: StandaloneCluster, java: dict[str, Any]
) -> None:
    programs.begin(1, "", params={**java, "mainArgs": "300000"})
    # The Master may show the driver before its application.
    programs.host.until(lambda: len(programs.facts(1).application_ids) == 2)
    app_id, driver = sorted(programs.facts(1).application_ids)
    programs.host.supervisor.kill(1)
    assert programs.host.end_of(1).state is TaskState.KILL
    assert cluster.live() == []
    drivers = {each["id"]: each["state"] for each in cluster.sees()["completeddrivers"]}
    assert drivers[driver] == "KILLED"
    assert f"{app_id} is KILLED, says the Spark Master" in programs.host.log(1)
    # Killed drivers take no place: the next one comes to its end. Its node opens the program itself.
    program = f"local:{java['mainJar']}"
    programs.begin(2, "", params={**java, "mainJar": program, "mainArgs": "end"})
    assert programs.host.end_of(2).state is TaskState.SUCCESS, programs.host.log(2)


def test_a_driver_that_fails_in_the_cluster_fails_its_task_with_the_reason(
    programs: Programs, java: dict[str, Any]
) -> None:
    programs.begin(1, "", params={**java, "mainArgs": "many"})
    programs.begin(2, "", params={**java, "mainArgs": "0", "mainClass": "NoSuchJob"})
    programs.begin(3, "", params={**java, "mainArgs": "exit"})
    programs.begin(4, "", params={**java, "mainArgs": "-1"})
    for number, why in (
        (1, 'NumberFormatException: For input string: "many"'),
        (2, "there is no class NoSuchJob"),
        (3, "the application failed, says the Spark Master"),
        # The program's own error depends on what it does when the Master ends its application.
        (4, "the application failed, says the Spark Master"),
    ):
        end = programs.host.end_of(number)
        assert end.state is TaskState.FAILURE, programs.host.log(number)
        assert why in (end.reason or ""), programs.host.log(number)


def test_with_a_local_master_the_driver_itself_is_asked(programs: Programs) -> None:
    gate = programs.home / "gate"
    local = {"master": "local[2]", "deployMode": "local", "mainArgs": str(gate)}
    (programs.home / "given.txt").write_text("given")
    files = {"files": [f"{programs.home}/given.txt#named.txt"]}
    programs.begin(1, _SUM + _NAMED + _WAIT, params={**local, **files})
    programs.host.until(lambda: programs.facts(1).progress.tasks_done >= 4)
    facts = programs.facts(1)
    assert facts.application_ids[0].startswith("local-")
    assert facts.ui_link.startswith("http://")
    gate.touch()
    assert programs.host.end_of(1).state is TaskState.SUCCESS, programs.host.log(1)
