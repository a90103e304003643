"""One of two volumes full: sixty runs on two workers, one of which has no room for logs.

The worker without room sees a volume of its own in a mount namespace that needs no privilege. Once
it keeps the usual reserve free, and so claims nothing; once it has no reserve, and learns of the
full volume by the first task that it can't start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.ports import free_port
from operations.daemons import Kind
from tests.bench.cluster import ROOT
from tests.bench.figures import Figure, Target
from tests.bench.strains import grounds
from tests.system.cluster import PrivateCluster, a_task, until

RUNS = 60
_ALONE = ("unshare", "--user", "--map-root-user", "--mount")
_LONGEST_SECONDS = 300.0
_FAILED = (
    "SELECT count(*) FROM t_ds_process_instance WHERE process_definition_id = %s AND state <> 7"
)
_ON_FULL = (
    "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = %s AND host LIKE %s"
)


def measure(runs: int) -> list[Figure]:
    figures: list[Figure] = []
    for name, reserve in (("reserve", "0.1"), ("no_reserve", "0")):
        failed: list[float] = []
        tried: list[float] = []
        took: list[float] = []
        for _ in range(runs):
            with grounds.cluster() as cluster:
                # The first one makes the folder for logs.
                definition = cluster.define("small", [a_task("a", "echo hello")])
                cluster.await_end(cluster.begin(definition))
                with _worker_without_room(cluster, reserve) as port:
                    began = time.monotonic()
                    grounds.put(cluster, definition, RUNS)
                    grounds.await_count(
                        cluster, grounds.ended(definition), RUNS + 1, within=_LONGEST_SECONDS
                    )
                    took.append(time.monotonic() - began)
                    failed.append(cluster.rows(_FAILED, definition)[0][0])
                    tried.append(cluster.rows(_ON_FULL, definition, f"%:{port}")[0][0])
        figures += [
            Figure(
                name=f"full_volume.{name}.failed",
                unit="runs",
                values=tuple(failed),
                target=Target(limit=0),
            ),
            Figure(name=f"full_volume.{name}.given_back", unit="attempts", values=tuple(tried)),
            Figure(name=f"full_volume.{name}.seconds", unit="s", values=tuple(took)),
        ]
    return figures


@contextmanager
def _worker_without_room(cluster: PrivateCluster, reserve: str) -> Iterator[int]:
    """Run a second worker whose volume for logs is full; its port."""
    port = free_port()
    logs = cluster.home / "tasks" / "logs"
    daemon = f"exec {sys.executable} -m worker.server --home '{cluster.home}' --port {port}"
    mounted = f"mount -t tmpfs -o size=64k tmpfs '{logs}' && {daemon}"
    with (cluster.home / "logs" / "full.out").open("wb") as output:
        worker = subprocess.Popen(
            [*_ALONE, "sh", "-c", mounted],
            cwd=ROOT,
            env={**os.environ, "ORCAFLOW_WORKER__RESERVED_DISK_GB": reserve},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: cluster.pid(Kind.WORKER, port) == worker.pid)
        _fill(Path(f"/proc/{worker.pid}/root{logs}"))
        yield port
    finally:
        worker.terminate()
        worker.wait(timeout=30)


def _fill(volume: Path) -> None:
    with (volume / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4096):
                pass
        except OSError:
            return  # It is full.
