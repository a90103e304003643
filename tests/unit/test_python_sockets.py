"""Sockets between Spark and its Python: which settings a driver gets, and for which paths."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from worker.spark.jvm.python_sockets import SocketFolder

ENABLED, FOLDER = (f"spark.python.unix.domain.socket.{each}" for each in ("enabled", "dir"))
SHORT = Path("/var/lib/orcaflow/tasks/exec/1/2/3")
NAME = ".123e4567-e89b-12d3-a456-426614174000.sock"


@pytest.mark.parametrize("master", ["local", "local[1]", "local[*]"])
def test_a_driver_that_runs_all_itself_has_its_sockets_in_its_folder(master: str) -> None:
    with SocketFolder(SHORT) as sockets:
        assert sockets.settings(master) == {ENABLED: "true", FOLDER: str(SHORT)}


@pytest.mark.parametrize(
    "master", ["", "local-cluster[2,1,512]", "spark://h:7077", "yarn", "k8s://https://h"]
)
def test_executors_elsewhere_have_none(master: str) -> None:
    with SocketFolder(SHORT) as sockets:
        assert sockets.settings(master) == {}


@pytest.mark.parametrize("name", ["x" * 100, "ü" * 60])
def test_x113_a_path_that_is_too_long_for_a_socket_is_used_by_a_short_one(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with SocketFolder(folder) as sockets, socket.socket(socket.AF_UNIX) as door:
        settings = sockets.settings("local[2]")
        assert settings[ENABLED] == "true"
        door.bind(f"{settings[FOLDER]}/{NAME}")
        door.listen()
        assert [each.name for each in folder.iterdir()] == [NAME]
        # Other processes of the account use the path too.
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        other = (sys.executable, "-I", "-S", "-c", connect, f"{settings[FOLDER]}/{NAME}")
        assert subprocess.run(other, check=False).returncode == 0
    assert not os.path.lexists(settings[FOLDER])


def test_a_folder_that_somebody_replaced_by_a_link_is_not_used(tmp_path: Path) -> None:
    link = tmp_path / ("x" * 100)
    link.symlink_to("/")
    with pytest.raises(OSError, match="x" * 100):
        SocketFolder(link)
