"""Classic tasks: a private driver from its start to its end, by the program that a worker starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.model.failures import FailureReason
from common.model.spark import SparkFacts
from tests import light_jvm
from worker.spark.session import classic

pytestmark = pytest.mark.slow

PROGRAM = str(Path(classic.__file__))
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # Each driver lives for a moment: to compile lightly costs less than it saves.
    "spark.driver.extraJavaOptions": light_jvm.LIGHT,
}
_SEEN = {
    name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ
}


@dataclass(frozen=True, kw_only=True)
class End:
    """The results of a task that has ended."""

    code: int
    log: str
    reason: str
    facts: SparkFacts
    folder: Path

    def told(self) -> list[Any]:
        """The values that the script has printed for the test."""
        lines = self.log.splitlines()
        return [json.loads(line[2:]) for line in lines if line.startswith("= ")]


class Task:
    """A task whose process has been started."""

    def __init__(self, folder: Path, script: str, **job: Any) -> None:
        self.folder = folder
        path = folder / "job.py"
        prelude = "import json, os\ndef tell(*v):\n    print('=', json.dumps(v), flush=True)\n"
        path.write_text(prelude + textwrap.dedent(script))
        document = {
            "kind": "worker.spark.session.script",
            "name": "a test",
            "tag": "orcaflow-0123456789ab-1",
            "master": "local[2]",
            "conf": {**CONF, **job.pop("conf", {})},
            "script": str(path),
            "params": {"n": {"type": "INTEGER", "value": "3"}},
            "secrets": ["hush-hush"],
            **job,
        }
        self.job = folder / "task.json"
        self.job.write_text(json.dumps(document))
        self._log = (folder / "log").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-u", PROGRAM, str(self.job)],
            env={**_SEEN, "ORCAFLOW_SPARK_FACTS": str(folder / "facts")},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=folder,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def end(self) -> End:
        code = self.process.wait(400)
        self._log.close()
        reason, facts = self.folder / "task.reason", self.folder / "facts"
        return End(
            code=code,
            log=self.log,
            reason=reason.read_text() if reason.exists() else "",
            facts=SparkFacts.from_json(facts.read_bytes() if facts.exists() else b""),
            folder=self.folder,
        )


def run(folder: Path, script: str, **job: Any) -> End:
    return Task(folder, script, **job).end()


def until(is_so: Callable[[], bool]) -> None:
    """Look until it is so; fails when it is not so for very long."""
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        # Between looks at other processes' effects; no test's outcome depends on its length.
        time.sleep(0.05)


def session_of(pid: int) -> set[int]:
    """All processes of a session."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == pid and fields[0] != b"Z":
                found.add(int(entry.name))
    return found


def test_a_script_finds_its_session_and_leaves_nothing_but_what_it_said(tmp_path: Path) -> None:
    task = Task(
        tmp_path,
        """
        from pyspark.sql.functions import udf
        @udf("string")
        def where(n):
            import pyspark
            return pyspark.__file__
        tell(spark.range(params["n"] * 100).selectExpr("sum(id)").first()[0])
        tell(spark.range(1).select(where("id")).first()[0])
        tell(spark.conf.get("spark.my.token"), spark.sparkContext.appName)
        children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
        tell(*(open(f"/proc/{pid}/cmdline").read() for pid in children))
        tell(*(open(f"/proc/{pid}/environ").read() for pid in children))
        tell([name for name in os.environ if "GATEWAY" in name])
        tell(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
        conf = spark.sparkContext.getConf()
        tell(*(conf.get(f"spark.{key}") for key in ("authenticate", "driver.bindAddress")))
        import pathlib, urllib.error, urllib.request
        def status_of_page(**headers):
            address = f"{spark.sparkContext.uiWebUrl}/api/v1/applications"
            try:
                return urllib.request.urlopen(urllib.request.Request(address, headers=headers)).status
            except urllib.error.HTTPError as error:
                return error.code
        token = pathlib.Path("task.token").read_text()
        tell(status_of_page(), status_of_page(Authorization=f"Bearer {token}"))
        tell(isinstance(spark.sparkContext._accumulatorServer.server_address, str))
        """,
        conf={"spark.my.token": "hush-hush", "spark.ui.enabled": "true"},
    )
    end = task.end()
    assert end.code == 0, end.log
    total, where, (token, name), argv, environ, left, scratch, doors, pages, has_socket = end.told()
    assert scratch == [str(tmp_path / "task.tmp")]
    assert doors == ["true", "127.0.0.1"]
    assert pages == [403, 200]
    assert has_socket == [True]
    assert total == [44850]
    assert "pyspark.zip" not in where[0]
    assert (token, name) == ("hush-hush", "a test")
    assert len(argv) == 1
    assert not any("hush-hush" in each for each in (*argv, *environ))
    assert left == [[]]
    assert end.reason == ""
    assert session_of(task.process.pid) == set()
    kept = {each.name for each in tmp_path.iterdir()}
    assert kept - {"spark-warehouse", "artifacts"} == {"job.py", "log", "facts"}
    facts = end.facts
    assert facts.application_ids[0].startswith("local-")
    assert facts.progress.jobs_done >= 2
    assert facts.progress.tasks_done == facts.progress.tasks > 0
    assert facts.progress.rows_in >= 300
    assert facts.progress.executor_memory_bytes > 0
    assert facts.usage.run_seconds > 0
    assert facts.usage.cpu_seconds > 0
    assert facts.usage.core_seconds > 0
    assert facts.usage.peak_memory_bytes > 100_000_000
    assert facts.failure is None


def test_an_error_of_sparks_is_told_in_the_authors_words(tmp_path: Path) -> None:
    end = run(tmp_path, "def day():\n    return spark.table('nowhere')\nday()\n")
    assert end.code == 1
    trace = end.log[end.log.index("Traceback") :].splitlines()
    frames = [line.rpartition(", ")[2] for line in trace if line.startswith("  File")]
    assert frames == ["in <module>", "in day"]
    assert "JVM" not in end.log
    assert "\tat " not in end.log
    assert "TABLE_OR_VIEW_NOT_FOUND" in end.reason
    assert end.facts.failure is FailureReason.ANALYSIS_ERROR


def test_a_syntax_error_needs_no_driver(tmp_path: Path) -> None:
    end = run(tmp_path, "spark.range(\n", conf={"spark.master": "spark://127.0.0.1:1"})
    assert end.code == 1
    assert "SyntaxError: '(' was never closed" in end.reason
    assert end.facts.failure is FailureReason.PYTHON_ERROR
    assert end.facts.application_ids == ()


def test_a_driver_that_can_not_start_says_why(tmp_path: Path) -> None:
    end = run(tmp_path, "", master="nonsense")
    assert end.code == 1
    assert "Master must either be yarn" in end.reason
    assert end.facts.failure is FailureReason.CONFIGURATION
    assert [each.name for each in tmp_path.glob("task.*")] == ["task.reason"]


def test_without_java_there_is_a_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_SEEN, "JAVA_HOME", "/nowhere")
    end = run(tmp_path, "")
    assert end.code == 1
    assert "there is no java in /nowhere/bin" in end.reason
    assert end.facts.failure is FailureReason.CONFIGURATION


def test_a_driver_that_is_killed_explains_what_failed_for_it(tmp_path: Path) -> None:
    end = run(
        tmp_path,
        """
        import signal
        [jvm] = open(f"/proc/self/task/{os.getpid()}/children").read().split()
        os.kill(int(jvm), signal.SIGKILL)
        spark.range(1).collect()
        """,
    )
    assert end.code == 1
    assert "killed by signal 9" in end.reason
    assert end.facts.failure is FailureReason.KILLED


def test_nothing_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    task = Task(
        tmp_path,
        """
        from pyspark.sql.functions import udf
        @udf("long")
        def forever(n):
            print("= 1", flush=True)
            import time
            while True:
                time.sleep(1)
        spark.range(2).select(forever("id")).collect()
        """,
    )
    until(lambda: "= 1" in task.log)
    session = task.process.pid
    assert len(session_of(session)) > 3
    task.process.kill()
    task.end()
    until(lambda: session_of(session) == set())


def test_a_running_job_is_told_while_it_runs_and_an_authors_own_stop_is_an_end_like_any_other(
    tmp_path: Path,
) -> None:
    task = Task(
        tmp_path,
        """
        import time
        gate = os.path.abspath("gate")
        def held(n):
            while not os.path.exists(gate):
                time.sleep(0.05)
            return n
        print(spark.sparkContext.parallelize(range(8), 8).map(held).sum())
        spark.range(0, 10, 1, 1).write.parquet("out")
        spark.stop()
        raise SystemExit("hush-hush: enough")
        """,
    )

    def is_told() -> bool:
        facts = task.folder / "facts"
        told = SparkFacts.from_json(facts.read_bytes() if facts.exists() else b"")
        progress = told.progress
        return (progress.jobs_running, progress.tasks_running, progress.tasks) == (1, 2, 8)

    until(is_told)
    (tmp_path / "gate").touch()
    end = task.end()
    assert end.code == 1, end.log
    assert end.reason == "******: enough\n"
    assert end.facts.failure is FailureReason.EXIT_CODE
    assert end.facts.progress.tasks_done == 8 + 1
    assert end.facts.progress.rows_out == 10
