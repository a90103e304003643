"""What a Connect server is started with. The program that stands for it ends at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from worker.spark.connect_server import ConnectServer, ServerPlan
from worker.spark.jvm import Command


class Started:
    """A server of a master, with what it was to be started with."""

    def __init__(
        self, directory: Path, master: str, *, conf: Mapping[str, str] | None = None, **seen: str
    ) -> None:
        plan = ServerPlan(
            profile="default",
            revision="1",
            master=master,
            conf=conf or {},
            jars="",
            packages="",
            driver_memory="1g",
            python=sys.executable,
            start_timeout=60,
        )
        self.server = ConnectServer(
            plan,
            key=1,
            directory=directory,
            command=self._command,
            environment=seen,
            asker=("ask",),
        )
        self.server.process.wait()

    def _command(
        self, conf: Mapping[str, str], directory: Path, environment: Mapping[str, str]
    ) -> Command:
        self.conf, self.environment = conf, environment
        return Command(argv=("/bin/true",), environment=environment, archive=None)


@pytest.mark.parametrize("seen", [{}, {"SPARK_LOCAL_IP": "10.0.0.1"}])
def test_a_server_without_executors_elsewhere_is_reached_from_here_alone(
    tmp_path: Path, seen: dict[str, str]
) -> None:
    made = Started(tmp_path / "server", "local[2]", conf={}, **seen)
    assert made.conf["spark.driver.host"] == "127.0.0.1"
    assert made.conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert made.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert made.server.ui_link.startswith("http://127.0.0.1:")


def test_executors_elsewhere_reach_the_driver_of_a_server(tmp_path: Path) -> None:
    made = Started(tmp_path / "server", "spark://there:7077")
    assert "spark.driver.host" not in made.conf
    assert "spark.driver.bindAddress" not in made.conf
    assert "SPARK_LOCAL_IP" not in made.environment
    assert made.conf["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert made.server.ui_link.startswith("http://127.0.0.1:")


def test_a_host_of_several_addresses_says_which_one(tmp_path: Path) -> None:
    made = Started(tmp_path / "server", "spark://there:7077", SPARK_LOCAL_IP="10.0.0.1")
    assert made.environment["SPARK_LOCAL_IP"] == "10.0.0.1"
    assert made.server.ui_link.startswith("http://10.0.0.1:")
