"""A real standalone cluster: a Master and a Worker of two cores, as small as they can be."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from common.ports import free_port
from tests import light_jvm

_PATIENCE_SECONDS = 300.0


class StandaloneCluster:
    """Runs until it is closed."""

    def __init__(self, home: Path) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        self.spark = spec.submodule_search_locations[0]
        self._home = home
        self._processes: list[subprocess.Popen[bytes]] = []
        port, page = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.page = f"http://127.0.0.1:{page}"
        where = ("--host", "127.0.0.1")
        self._start("Master", *where, "--port", str(port), "--webui-port", str(page))
        self._until(lambda: self.sees()["status"] == "ALIVE")
        self._start(
            "Worker",
            *where,
            *("--port", "0", "--webui-port", "0", "--cores", "2", "--memory", "1200m"),
            *("--work-dir", str(home / "work"), self.master),
        )
        self._until(lambda: self.sees()["aliveworkers"] == 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def sees(self) -> dict[str, Any]:
        """The Master's page, as JSON."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def live(self) -> list[str]:
        """The ids of live applications."""
        return [each["id"] for each in self.sees()["activeapps"]]

    def state(self, app_id: str) -> str:
        seen = self.sees()
        apps = (*seen["activeapps"], *seen["completedapps"])
        return next((str(each["state"]) for each in apps if each["id"] == app_id), "")

    def _start(self, kind: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": self.spark,
            "SPARK_DAEMON_MEMORY": "192m",
            # Its port is the same for all, and would be taken.
            "SPARK_MASTER_OPTS": f"-Dspark.master.rest.enabled=false {light_jvm.flags()}",
            "SPARK_WORKER_OPTS": light_jvm.flags(),
            "SPARK_DAEMON_CLASSPATH": light_jvm.class_path(),
        }
        name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        with (self._home / f"{kind}-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    (f"{self.spark}/bin/spark-class", name, *arguments),
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
            )

    def _until(self, condition: Any) -> None:
        limit = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                if condition():
                    return
            except (OSError, ValueError):
                pass  # It is only starting.
            assert time.monotonic() < limit, "the cluster did not come up"
            time.sleep(0.1)
