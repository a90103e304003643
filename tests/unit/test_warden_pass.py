"""A warden's pass while PostgreSQL is away: it ends with the last process, and waits for no server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from common import config
from common.clock import SystemClock
from common.ports import free_port
from worker import warden_pass
from worker.processes.attempt_processes import MARKER
from worker.processes.records import Record, Records


@pytest.mark.parametrize("left", [True, False])
def test_a_warden_of_a_stopped_cluster_stays_only_while_something_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    monkeypatch.setattr(warden_pass, "_left", lambda _home, _port: left)
    # The embedded server was stopped, so there is no address to be tried.
    stopped = config.load(overrides={"home": str(tmp_path)})
    found = warden_pass.one_pass(stopped, host="127.0.0.1", port=1234, daemon=2**22)
    assert found == (warden_pass.AGAIN if left else warden_pass.DONE)


# PostgreSQL of another host, which is out of reach: nothing listens at the port.

WORKER_PORT = 1234


class Scene:
    """A worker's home, and a process of an attempt that its daemon has left behind."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.directory = home / "attempt"
        self.directory.mkdir()
        records = Records(home / "tasks" / "records" / str(WORKER_PORT))
        record = Record(
            task_instance_id=7,
            task_type="SHELL",
            execute_path=str(self.directory),
            log_path=str(home / "log"),
        )
        os.close(records.begin(record))
        environment = {"PATH": os.defpath, MARKER: str(self.directory)}
        self.process = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        # It echoes one line: from then on it is seen with its environment.
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def passes(self, **overrides: str) -> int:
        found = config.load(overrides={"home": str(self.home), **overrides})
        return warden_pass.one_pass(found, host="127.0.0.1", port=WORKER_PORT, daemon=2**22)

    def out_of_reach_for(self, time: timedelta) -> None:
        """Have the last pass that reached PostgreSQL be as long ago as that."""
        since = SystemClock().monotonic() - time.total_seconds()
        (unreached,) = (self.home / "run").glob("*.unreached")
        unreached.write_text(f"{since}\n", encoding="ascii")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A worker on a host of its own, whose daemon is dead."""
    (tmp_path / "run").mkdir()
    scene = Scene(tmp_path)
    with scene.process:
        yield scene
        scene.process.kill()


def test_a_host_that_is_cut_off_from_postgresql_ends_its_attempts_after_its_patience(
    scene: Scene,
) -> None:
    away = {"database.url": f"postgresql+psycopg2://nobody@127.0.0.1:{free_port()}/none"}
    assert scene.passes(**away) == warden_pass.AGAIN
    assert scene.process.poll() is None
    scene.out_of_reach_for(warden_pass.PATIENCE)
    assert scene.passes(**away) == warden_pass.AGAIN
    assert scene.process.wait() == -signal.SIGKILL
    assert scene.passes(**away) == warden_pass.DONE


def test_attempts_whose_embedded_server_is_gone_run_to_their_end(scene: Scene) -> None:
    assert scene.passes() == warden_pass.AGAIN
    (scene.home / "run" / f"{warden_pass.NAME}-{WORKER_PORT}.unreached").write_text("0\n")
    assert scene.passes() == warden_pass.AGAIN
    assert scene.process.stdin is not None
    scene.process.stdin.close()
    assert scene.process.wait() == 0
    assert scene.passes() == warden_pass.DONE
