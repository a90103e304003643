"""Failures of warm Spark tasks on a real cluster: each ends with its state and its reason.

After each test a good run of warm tasks succeeds, and the daemons and the Spark host are the
processes that they were.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from common.process_identity import is_alive, process_start_time
from operations.daemons import Kind
from tests import light_jvm
from tests.integration.spark_host import SERVER, children, listener, running_jobs
from tests.parity import expected, tasks
from tests.parity.differences import verdict
from tests.parity.outcomes import kind_of_difference
from tests.parity.scripts import SAMPLE, scripts
from tests.system.cluster import PrivateCluster, a_task, private_cluster, task_processes, until
from tests.system.frame import ask_to_stop, nothing_else_is_touched
from worker.spark.host.folders import SOCKET, own_folder

pytestmark = pytest.mark.slow

STOP, FAILURE, SUCCESS, KILL = 5, 6, 7, 9
RUNNING = 1
LOG_LIMIT_BYTES = 1_000_000

UDF = """
from pyspark.sql.functions import udf
assert spark.range(3).select(udf(lambda n: n + 1, "long")("id")).collect()[2][0] == 3
"""
LONG_JOB = 'spark.range(0, 10**15, 1, 4).selectExpr("sum(id % 7)").collect()'


def spark_task(name: str, script: str = "", *before: str, **params: object) -> dict[str, object]:
    """A PYSPARK node; more parameters are those of the task."""
    return a_task(name, "", *before, type="PYSPARK", params={"rawScript": script, **params})


def sql_task(name: str, script: str, *before: str, **params: object) -> dict[str, object]:
    return a_task(name, "", *before, type="SPARK_SQL", params={"rawScript": script, **params})


def udf_that(does: str) -> str:
    return f"""
import ctypes, os, sys
from pyspark.sql.functions import udf
spark.range(2).select(udf(lambda n: {does}, "string")("id")).collect()
"""


# As (node, state, reason code, what its reason says).
BAD: Mapping[str, tuple[dict[str, object], int, str | None, str]] = {
    "syntax": (spark_task("a", "def (:"), FAILURE, "PYTHON_ERROR", "SyntaxError"),
    "module": (
        spark_task("a", "import no_such_module"),
        FAILURE,
        "PYTHON_ERROR",
        "No module named 'no_such_module'",
    ),
    "file": (
        spark_task("a", "open('orders.csv')"),
        FAILURE,
        "PYTHON_ERROR",
        "No such file or directory: 'orders.csv'",
    ),
    "path": (
        spark_task("a", "spark.read.parquet('/no/such/orders').show()"),
        FAILURE,
        "DATA_ERROR",
        "/no/such/orders",
    ),
    "table": (
        spark_task("a", "spark.table('no_such_table').show()"),
        FAILURE,
        "ANALYSIS_ERROR",
        "`no_such_table`",
    ),
    "exit": (spark_task("a", "exit(3)"), FAILURE, "EXIT_CODE", "exit code 3"),
    "exit 0": (spark_task("a", "exit()"), SUCCESS, None, ""),
    "stop": (spark_task("a", "spark.stop()"), SUCCESS, None, ""),
    "own end": (
        spark_task("a", "import os; os.kill(os.getpid(), 9)"),
        FAILURE,
        "EXIT_CODE",
        "killed by signal 9",
    ),
    "crash": (spark_task("a", udf_that("ctypes.string_at(0)")), FAILURE, "PYTHON_ERROR", "UDF"),
    "udf": (spark_task("a", udf_that("1 // 0")), FAILURE, "PYTHON_ERROR", "ZeroDivisionError"),
    "profile": (
        spark_task("a", "pass", profile="big"),
        FAILURE,
        "CONFIGURATION",
        "no Spark profile 'big'; it has default, missing, unreachable, classic, connect",
    ),
    "master": (
        spark_task("a", "pass", profile="unreachable"),
        FAILURE,
        "SUBMIT_FAILED",
        "its master is spark://127.0.0.1:1",
    ),
    "jar": (
        spark_task("a", "pass", profile="missing"),
        FAILURE,
        "SUBMIT_FAILED",
        "there is no file /no/such/driver.jar",
    ),
    "conf key": (
        spark_task("a", "pass", conf={"spark.sql.ansi.enabled\nspark.jars": "/etc/passwd"}),
        FAILURE,
        "CONFIGURATION",
        "is no name of a setting",
    ),
    "conf value": (
        spark_task("a", "pass", conf={"spark.sql.ansi.enabled": "true\nspark.jars /etc/passwd"}),
        FAILURE,
        "CONFIGURATION",
        "a control character",
    ),
    "conf type": (
        spark_task("a", "pass", conf={"spark.sql.shuffle.partitions": "many"}),
        FAILURE,
        "CONFIGURATION",
        "spark.sql.shuffle.partitions must be a whole number",
    ),
    "conf that Spark alone refuses": (
        spark_task("a", "pass", conf={"spark.sql.shuffle.partitions": "-1"}),
        FAILURE,
        "CONFIGURATION",
        "must be positive",
    ),
    "conf of a driver": (
        spark_task("a", "pass", profile="default", conf={"spark.executor.memory": "64g"}),
        FAILURE,
        "CONFIGURATION",
        "put it into the profile, or take `profile: classic`",
    ),
    "conf of ours": (
        spark_task("a", "pass", conf={"spark.connect.authenticate.token": "mine"}),
        FAILURE,
        "CONFIGURATION",
        "is set by Orcaflow itself",
    ),
    "context": (
        spark_task("a", "spark.sparkContext.parallelize([1])", profile="connect"),
        FAILURE,
        "UNSUPPORTED",
        "profile: classic",
    ),
    "what changes the shared driver": (
        spark_task("a", "getattr(spark.sparkContext, 'add' + 'File')('/etc/hosts')"),
        FAILURE,
        "UNSUPPORTED",
        "addFile would change the Spark driver that this task shares",
    ),
    "sql table": (
        sql_task("a", "SELECT 1; SELECT * FROM no_such_table"),
        FAILURE,
        "ANALYSIS_ERROR",
        "`no_such_table`",
    ),
    "sql words": (sql_task("a", "SELEKT 1"), FAILURE, "ANALYSIS_ERROR", "SELEKT"),
    "sql text": (
        sql_task(
            "a",
            "CREATE TEMPORARY VIEW t AS SELECT 1; SELECT :x; SELECT * FROM t",
            localParams=[
                {"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "'; DROP VIEW t; --"}
            ],
        ),
        SUCCESS,
        None,
        "",
    ),
    "others": (
        a_task(
            "a",
            "",
            type="SPARK",
            params={
                "programType": "PYTHON",
                "mainJar": "job.py",
                "deployMode": "local",
                "others": "--proxy-user root --conf spark.driver.extraJavaOptions=-javaagent:/x.jar",
            },
        ),
        FAILURE,
        "CONFIGURATION",
        "others",
    ),
}


class SparkCluster(PrivateCluster):
    """A cluster and the Spark host of its only worker."""

    @property
    def host_directory(self) -> Path:
        (port,) = self.ports(Kind.WORKER)
        return own_folder(self.home, port)

    @property
    def host(self) -> int:
        """The pid of the host."""
        return listener(str(self.host_directory / SOCKET))

    def servers(self) -> list[int]:
        """The Java machines that the host keeps."""
        return [pid for pid, told in children(self.host).items() if SERVER in told]

    def forks(self) -> list[int]:
        """All else that the host has started: tasks, Pythons for UDFs, its own probes."""
        return [pid for pid in children(self.host) if pid not in self.servers()]

    def run(self, name: str, *nodes: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run nodes in one instance: state, reason code, reason and log of each attempt."""
        instance = self.begin(self.define(name, list(nodes)))
        self.await_end(instance)
        return self.tasks_of(instance, "state", "failure_reason", "reason", "log_path")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One master and one worker, whose Spark is small."""
    home = tmp_path_factory.mktemp("spark_tasks")
    settings = {
        "WORKER__LOG_LIMIT_BYTES": str(LOG_LIMIT_BYTES),
        # Files of scripts are compared after the end.
        "WORKER__WORKING_DIRECTORY_POLICY": "never",
        # Spark confirms a stop within it, however busy the machine is.
        "WORKER__KILL_GRACE_SECONDS": "100",
        "MASTER__STOP_DEADLINE_SECONDS": "120",
        "SPARK__PROFILES__DEFAULT__MASTER": "local[2]",
        "SPARK__PROFILES__DEFAULT__DRIVER_MEMORY": "512m",
        # Else many tasks at once would start a second one.
        "SPARK__PROFILES__DEFAULT__MAX_SERVERS": "1",
        **light_jvm.PROFILE,
        "SPARK__PROFILES__UNREACHABLE__MASTER": "spark://127.0.0.1:1",
        "SPARK__PROFILES__UNREACHABLE__START_TIMEOUT_SECONDS": "8",
        "SPARK__PROFILES__MISSING__JARS": "/no/such/driver.jar",
    }
    with private_cluster(home, **settings) as made:
        made.__class__ = SparkCluster
        assert isinstance(made, SparkCluster)
        made.start()
        yield made
        host = made.host
        started = process_start_time(host)
        made.daemons.stop_everything(now=True)
        # A worker that is stopped with its tasks ends its host.
        until(lambda: started is None or not is_alive(host, started))


@pytest.fixture(scope="module")
def good(cluster: SparkCluster) -> int:
    """A definition with a script and its UDF, and SQL after it."""
    definition = cluster.define(
        "good", [spark_task("first", UDF), sql_task("last", "SELECT 1 AS one", "first")]
    )
    assert cluster.await_end(cluster.begin(definition)) == SUCCESS
    return definition


@pytest.fixture(scope="module")
def bystander(cluster: SparkCluster, good: int) -> int:
    """A warm task that runs all the time, with a session."""
    patient = spark_task("patient", "import time\nspark.range(1).count()\ntime.sleep(3600)")
    instance = cluster.begin(cluster.define("bystander", [patient]))
    cluster.await_task(instance, RUNNING)
    return instance


@pytest.fixture
def _frame(cluster: SparkCluster, good: int, bystander: int) -> Iterator[None]:
    host = cluster.host
    with nothing_else_is_touched(cluster, good, bystander):
        yield
    assert cluster.host == host


@pytest.mark.usefixtures("_frame")
def test_whatever_is_wrong_with_a_task_ends_it_with_its_state_and_reason(
    cluster: SparkCluster,
) -> None:
    instances = {
        name: cluster.begin(cluster.define(f"bad: {name}", [node]))
        for name, (node, *_) in BAD.items()
    }
    for instance in instances.values():
        cluster.await_end(instance)
    found = {
        name: cluster.tasks_of(instance, "state", "failure_reason", "reason")
        for name, instance in instances.items()
    }
    unlike = {
        name: found[name]
        for name, (_, state, failure, says) in BAD.items()
        if len(found[name]) != 1
        or found[name][0][:2] != (state, failure)
        or says not in (found[name][0][2] or "")
    }
    assert unlike == {}


@pytest.mark.usefixtures("_frame")
def test_a_gigabyte_of_output_is_cut_off_and_harms_nobody(cluster: SparkCluster) -> None:
    script = "for _ in range(1024):\n    print('x' * (1 << 20))"
    (attempt,) = cluster.run("loud", spark_task("loud", script))
    state, failure, _, log_path = attempt
    assert (state, failure) == (SUCCESS, None)
    assert Path(log_path).stat().st_size < 2 * LOG_LIMIT_BYTES


@pytest.mark.usefixtures("_frame")
@pytest.mark.parametrize(
    ("name", "script"), [("endless python", "while True:\n    pass"), ("endless job", LONG_JOB)]
)
def test_an_endless_task_is_stopped_and_nothing_of_it_goes_on(
    cluster: SparkCluster, name: str, script: str
) -> None:
    begun = f"print('begun', flush=True)\n{script}"
    instance = cluster.begin(cluster.define(name, [spark_task("endless", begun)]))
    task, _ = cluster.await_task(instance, RUNNING)
    ((log_path,),) = cluster.tasks_of(instance, "log_path")
    until(lambda: "\nbegun\n" in Path(log_path).read_text(encoding="utf-8"))
    if script == LONG_JOB:
        until(lambda: bool(running_jobs(cluster.host_directory)))
    before = len(cluster.forks())
    ask_to_stop(cluster, instance)
    assert cluster.await_end(instance) == STOP
    assert cluster.tasks_of(instance, "state", "failure_reason") == [(KILL, None)]
    # It was told to end, and had: its end was reported after the server had ended its session.
    assert running_jobs(cluster.host_directory) == []
    assert task_processes(cluster.home, task) == []
    # A probe may be under way beside it.
    until(lambda: len(cluster.forks()) < before)


@pytest.mark.usefixtures("_frame")
def test_two_tasks_at_once_may_set_the_same_view_and_setting(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    def one_of_two(name: str, other: str, count: int) -> dict[str, object]:
        return spark_task(
            name,
            f"""
import os, time
spark.range({count}).createOrReplaceTempView("mine")
spark.conf.set("spark.sql.shuffle.partitions", "{count}")
open("{tmp_path}/{name}", "w").close()
while not os.path.exists("{tmp_path}/{other}"):
    time.sleep(0.01)
assert spark.table("mine").count() == {count}
assert spark.conf.get("spark.sql.shuffle.partitions") == "{count}"
""",
        )

    nodes = one_of_two("left", "right", 3), one_of_two("right", "left", 5)
    found = cluster.run("both", *nodes)
    assert [attempt[:3] for attempt in found] == [(SUCCESS, None, None)] * 2


@pytest.mark.usefixtures("_frame")
def test_a_day_is_replaced_while_another_task_adds_to_it(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    def script(text: str) -> str:
        return f"""
import os, time
from orcaflow.task import dataset, segments
flights = dataset("flights")
rows = spark.sql("SELECT timestamp'2026-11-20T00:00:00Z' + make_interval(0,0,0,0,CAST(id AS INT)) AS at,"
    " id AS n FROM range(24)")
def tell(name):
    open("{tmp_path}/" + name, "w").close()
def hear(name):
    while not os.path.exists("{tmp_path}/" + name):
        time.sleep(0.01)
{text}"""

    def a_writer(name: str, text: str, kind: str, **params: object) -> dict[str, object]:
        lock = {"dataset": "flights", "interval": "2026-11-20/P1D", "type": kind}
        return {**spark_task(name, script(text), **params), "locks": [lock]}

    first = a_writer(
        "first",
        """
with flights.append(time="at") as writer:
    writer.write(rows)
""",
        "APPEND",
        profile="classic",
        master="local[1]",
    )
    (done,) = cluster.run("a first load", first)
    assert done[0] == SUCCESS, done
    replace = a_writer(
        "replace",
        """
with flights.replace("2026-11-20/P1D", time="at") as writer:
    writer.write(rows.where("n < 10"))
    tell("replacing")
    hear("added")
""",
        "REPLACE",
    )
    add = a_writer(
        "add",
        """
hear("replacing")
with flights.append(time="at", granularity="DAY") as writer:
    writer.write(rows.selectExpr("at", "n + 100 AS n").limit(3))
tell("added")
if os.environ["ORCAFLOW_ATTEMPT"] == "1":
    os.kill(os.getpid(), 9)
""",
        "APPEND",
    )
    add |= {"maxRetryTimes": 1, "retryInterval": 0}
    replacing = cluster.begin(cluster.define("a backfill", [replace]))
    adding = cluster.begin(cluster.define("a late load", [add]))
    assert cluster.await_end(replacing) == SUCCESS
    assert cluster.await_end(adding) == SUCCESS
    assert [state for (state,) in sorted(cluster.tasks_of(adding, "state"))] == [FAILURE, SUCCESS]
    read = script("""
found = sorted(row["n"] for row in flights.frame(spark, "2026-11-20/P1D").collect())
assert found == [*range(10), 100, 101, 102], found
assert len(segments("flights").segments) == 1
""")
    compact = a_task(
        "compact",
        "",
        type="COMPACT",
        params={"dataset": "flights", "interval": "2026-11-20/P1D", "maxRowsPerSegment": 100},
    )
    found = cluster.run("a merge and a reader", compact, spark_task("read", read, "compact"))
    assert [each[0] for each in found] == [SUCCESS] * 2, found


def test_scripts_for_spark_submit_print_and_leave_the_recorded_lines_and_files(
    cluster: SparkCluster,
) -> None:
    """Run a sample of the scripts; `bin/test --long` runs all, and finds entries that are outdated."""
    recorded = expected.read()
    found = tasks.run(cluster, scripts(SAMPLE))
    kinds = {
        name: kind_of_difference(recorded[name], each.outcome, is_refusal=each.is_refusal)
        for name, each in found.items()
    }
    differing = {name: verdict(name, kind) for name, kind in kinds.items() if kind is not None}
    assert {name: (fault, found[name]) for name, fault in differing.items() if fault} == {}


def test_a_server_that_dies_fails_its_own_tasks_and_a_retry_finds_the_next(
    cluster: SparkCluster, good: int, tmp_path: Path
) -> None:
    host = cluster.host
    patient = f"""
import os, time
open("{tmp_path}/" + os.environ["ORCAFLOW_TASK_NAME"], "a").write("begun\\n")
if os.environ["ORCAFLOW_ATTEMPT"] == "1" or "retried" not in os.environ["ORCAFLOW_TASK_NAME"]:
    time.sleep(3600)
{UDF}
"""
    nodes = [
        spark_task("lost", patient),
        {**spark_task("retried", patient), "maxRetryTimes": 1, "retryInterval": 0},
    ]
    instance = cluster.begin(cluster.define("on a server", nodes))
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    (server,) = cluster.servers()
    os.kill(server, signal.SIGKILL)
    assert cluster.await_end(instance) == FAILURE
    attempts = cluster.tasks_of(instance, "name", "attempt", "state", "failure_reason", "reason")
    why = "the Spark server of profile default has died (signal 9)"
    assert sorted(attempts) == [
        ("lost", 1, FAILURE, "SERVER_LOST", why),
        ("retried", 1, FAILURE, "SERVER_LOST", why),
        ("retried", 2, SUCCESS, None, None),
    ]
    assert cluster.await_end(cluster.begin(good)) == SUCCESS
    assert cluster.host == host
    assert server not in cluster.servers()


def test_a_daemon_that_was_killed_finds_its_host_and_the_task_at_work(
    cluster: SparkCluster, good: int, tmp_path: Path
) -> None:
    host, servers = cluster.host, cluster.servers()
    script = f"""
import time, os
open("{tmp_path}/begun", "a").write("x")
while not os.path.exists("{tmp_path}/go"):
    time.sleep(0.01)
{UDF}
open("{tmp_path}/done", "a").write("x")
"""
    instance = cluster.begin(cluster.define("outlives", [spark_task("outlives", script)]))
    until((tmp_path / "begun").exists)
    (port,) = cluster.ports(Kind.WORKER)
    cluster.kill(Kind.WORKER, port)
    cluster.start_again(Kind.WORKER, port)
    (tmp_path / "go").touch()
    assert cluster.await_end(instance) == SUCCESS
    assert cluster.tasks_of(instance, "attempt", "state") == [(1, SUCCESS)]
    assert ((tmp_path / "begun").read_text(), (tmp_path / "done").read_text()) == ("x", "x")
    assert (cluster.host, cluster.servers()) == (host, servers)
    assert cluster.await_end(cluster.begin(good)) == SUCCESS
