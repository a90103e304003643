"""The daemon's end of a Spark host, with a small program in the place of the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.worker_host import PATIENCE_SECONDS, Signpost
from worker.loops.followed_host import FollowedHost
from worker.spark.host import folders

_HOST = """
import os, socket, sys
os.chdir(sys.argv[1])
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[2])
server.listen()
with open(sys.argv[3], "w") as told:
    told.write("listens\\n")
link = server.accept()[0]
while (read := link.recv(65_536)) and b"stop" not in read:
    pass
"""


@contextmanager
def a_host_that_is_followed(folder: Path) -> Iterator[tuple[FollowedHost, subprocess.Popen[bytes]]]:
    """Follow a program that ends when it is stopped by its daemon, or when the link ends."""
    place = folder / "host"
    place.mkdir()
    signpost = Signpost(folder / "signpost")
    process = subprocess.Popen(
        [sys.executable, "-c", _HOST, str(place), folders.SOCKET, str(signpost.path)]
    )
    followed = FollowedHost(
        folder=place,
        mode=folders.PRIVATE,
        argv=("false",),
        environment={},
        document="{}",
        account=None,
        clock=lambda: 0.0,
    )
    try:
        assert signpost.wait() == "listens"
        followed.run_once()
        assert followed.is_followed
        yield followed, process
    finally:
        signpost.close()
        followed.close()
        process.kill()
        process.wait()


@pytest.mark.parametrize("end", [FollowedHost.stop, FollowedHost.close])
def test_x86_a_spark_host_that_a_task_has_stopped_ends_with_its_worker(
    tmp_path: Path, end: Callable[[FollowedHost], None]
) -> None:
    with a_host_that_is_followed(tmp_path) as (followed, process):
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        end(followed)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
