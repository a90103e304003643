"""Sockets between Spark and its Python: where there are some, and where it stays with TCP."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.spark.jvm import python_sockets

FOLDER = Path("/var/lib/orcaflow/tasks/exec/1/2/3")


@pytest.mark.parametrize("master", ["local", "local[1]", "local[*]"])
def test_a_driver_that_runs_all_itself_has_its_sockets_in_its_folder(master: str) -> None:
    assert python_sockets.settings(FOLDER, master) == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(FOLDER),
    }


@pytest.mark.parametrize(
    "master", ["", "local-cluster[2,1,512]", "spark://h:7077", "yarn", "k8s://https://h"]
)
def test_executors_elsewhere_have_none(master: str) -> None:
    assert python_sockets.settings(FOLDER, master) == {}


def test_a_path_that_is_too_long_for_a_socket_has_none() -> None:
    assert python_sockets.settings(Path("/" + "x" * 59), "local") != {}
    assert python_sockets.settings(Path("/" + "x" * 60), "local") == {}
    assert python_sockets.settings(Path("/" + "ü" * 30), "local") == {}
