"""A worker's port that hands over logs of a folder, without the worker."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from common.clock import SystemClock
from common.log_access import PATH, LogGuard, LogQuestion
from common.runtime.health import HealthServer, Problem
from operations.log_pieces import Log, Piece
from operations.worker_logs import WorkerLog, ask
from worker.log_server import LogServer

KEY = bytes(range(32))
CLUSTER = "c0ffee"


class _Daemon:
    def problems(self) -> list[Problem]:
        return []


class Worker:
    """A worker's port with the logs of a home, whose attempts run as long as `running` says."""

    def __init__(
        self,
        root: Path,
        *,
        key: bytes = KEY,
        cluster: str = CLUSTER,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.running: set[int] = set()
        self.woken = threading.Event()
        self.logs = LogServer(
            root,
            guard=LogGuard(key, cluster=cluster),
            clock=SystemClock(),
            runs_here=lambda task: task in self.running,
            wake=self.woken.set,
        )
        self.server = HealthServer(_Daemon(), host="127.0.0.1", port=0, tls=tls)
        self.server.add(PATH, self.logs.answer)
        self.server.start()
        self.address = f"127.0.0.1:{self.server.port}"

    def log(self) -> Log:
        return Log(WorkerLog(self.address, (12, 34), key=KEY, cluster=CLUSTER))

    def ask(self, *, tls: ssl.SSLContext | None = None, **changes: int) -> Piece:
        question = replace(LogQuestion(instance=12, task=34), **changes)
        return ask(self.address, question, key=KEY, cluster=CLUSTER, tls=tls)

    def close(self) -> None:
        self.logs.close()
        self.server.stop()


@contextmanager
def serving(root: Path, *, key: bytes, cluster: str) -> Iterator[str]:
    """The address of a worker that hands these logs over."""
    made = Worker(root, key=key, cluster=cluster)
    try:
        yield made.address
    finally:
        made.close()
