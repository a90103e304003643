"""A worker's host with a fake spark-submit, for tests of the end of applications."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from common.model.spark import SparkFacts
from common.spark_config import SparkConfig
from common.store.worker.ports import AttemptEnd
from tests.integration.managers.submit import MARK
from tests.integration.worker_host import Host
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.spark.managers.tags import Tags

CLUSTER = "0123456789ab"
KEY = "the key of all workers"
TAGS = Tags(cluster=CLUSTER, key=KEY)
OOM = 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat x.y(Z.java:1)\n'
"""The end of a driver's log."""
GRACE: Final = timedelta(minutes=2)
"""Longer than any end takes on a busy machine. `kill_runner` does what its end would do."""
_SUBMIT = Path(__file__).with_name("submit.py")


class Bench:
    """Runs SPARK tasks with the real launcher, supervisor and runner against a fake manager."""

    def __init__(
        self,
        home: Path,
        *,
        spark: SparkConfig,
        fake_url: str,
        master: str = "yarn",
    ) -> None:
        installation = home / "spark"
        (installation / "bin").mkdir(parents=True)
        submit = installation / "bin" / "spark-submit"
        submit.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {_SUBMIT} "$@"\n')
        submit.chmod(0o755)
        (home / "job.py").touch()
        self.home = home
        self.host = Host(
            home,
            grace=GRACE,
            settings=TaskSettings(
                spark_home=str(installation),
                environment=seen_by_tasks(os.environ),
                spark=spark,
                tags=TAGS,
            ),
        )
        self._conf = {"spark.fake.url": fake_url}
        self._master = master

    def close(self) -> None:
        """Kill all running attempts and close the supervisor."""
        self.host.supervisor.kill_all()
        self.host.until(lambda: not self.host.supervisor.running())
        self.host.supervisor.close()

    def begin(
        self,
        number: int = 1,
        *,
        mode: str = "cluster",
        conf: Mapping[str, str] | None = None,
        program: Mapping[str, str] | None = None,
        **row: Any,
    ) -> None:
        """Start an attempt with this task instance id."""
        python = {"programType": "PYTHON", "mainJar": str(self.home / "job.py")}
        params = {
            **(program or python),
            "master": self._master,
            "deployMode": mode,
            "conf": {**self._conf, **(conf or {})},
        }
        self.host.begin(self.host.task(number, task_type="SPARK", params=params, **row))

    def run(self, number: int = 1, **how: Any) -> AttemptEnd:
        self.begin(number, **how)
        return self.host.end_of(number)

    def kill(self, number: int = 1) -> AttemptEnd:
        """Request an attempt's end as a stop does."""
        self.host.supervisor.kill(number)
        return self.host.end_of(number)

    def kill_runner(self, number: int = 1) -> AttemptEnd:
        """Kill the attempt's program outright, as an out-of-memory killer does."""
        os.kill(self.runner(number), signal.SIGKILL)
        return self.host.end_of(number)

    def runner(self, number: int = 1) -> int:
        """The pid of the attempt's program."""
        directory = self.host.directory(number)
        self.host.until(lambda: pid_of_runner(directory) != 0)
        return pid_of_runner(directory)

    def wait_for(self, text: str, number: int = 1) -> None:
        """Let the supervisor work until the log has the text."""
        self.host.until(lambda: self.says(text, number))

    def says(self, text: str, number: int = 1) -> bool:
        try:
            return text in self.log(number)
        except FileNotFoundError:
            return False

    def log(self, number: int = 1) -> str:
        return self.host.log(number)

    def submissions(self, number: int = 1) -> int:
        return self.log(number).count(MARK)

    def facts(self, number: int = 1) -> SparkFacts:
        path = self.host.directory(number) / "spark-facts.json"
        return SparkFacts.from_json(path.read_bytes()) if path.exists() else SparkFacts()

    def tag(self, number: int = 1) -> str:
        return TAGS.of(number)


def pid_of_runner(directory: Path) -> int:
    """The pid of the program of the attempt in this directory; 0 if there is none."""
    return next((pid for pid in _pids() if _runs_job(pid, directory)), 0)


def yarn_tags(own: str) -> str:
    """The tags that an application of this attempt shows in YARN."""
    return f"{own},orcaflow-{CLUSTER}"


def labels(own: str) -> dict[str, str]:
    """The labels that its pod has in Kubernetes."""
    return {"orcaflow-attempt": own, "orcaflow-cluster": CLUSTER}


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _runs_job(pid: int, directory: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return "-m" in words[:4] and any(
        word.startswith(f"{directory}/spark_submit_") for word in words
    )
