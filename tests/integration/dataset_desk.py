"""A worker's end of the socket for datasets, without the rest of a worker, for tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from common.clock import SystemClock
from common.model.intervals import read_interval
from common.model.lock_needs import group_of_run
from common.model.locks import LockRequest, LockType
from common.store.streams.locks import request_locks
from common.store.worker.datasets import PostgresDatasetStore
from common.store.worker.stream_tasks import PostgresStreamTasks
from common.store.worker.tasks import PostgresTaskStore
from common.store.worker.topologies import PostgresTopologies
from orcaflow.datasets import Allocation, Files
from tests.integration.store_races.racing import WORKER, a_run, claim, submit
from worker.datasets.answering import DatasetAnswers
from worker.datasets.folders import DatasetFolders
from worker.datasets.orders import OrderBook
from worker.datasets.server import DatasetServer
from worker.datasets.topologies import TopologyDesk, TopologyFolders
from worker.workspace import remove_directory

CLUSTER = "0123456789ab"
DAY = "2026-11-20/P1D"


class Desk:
    """Serves attempts that tests let in; one after the other asks in this process."""

    def __init__(self, home: Path, engine: Engine, patch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.running: set[int] = set()
        # The variables that streams may read. A specification names the variables that it gets.
        self.variables = {"STREAM_OTHER": "of another stream"}
        self.folders = DatasetFolders(home / "datasets", cluster=CLUSTER, for_tenants=False)
        self._patch = patch
        self.orders = OrderBook(
            PostgresStreamTasks(engine), node=lambda: WORKER, clock=SystemClock()
        )
        self.topologies = TopologyDesk(
            PostgresTopologies(engine),
            TopologyFolders(home / "topologies", cluster=CLUSTER, for_tenants=False),
            node=lambda: WORKER,
            clock=SystemClock(),
        )
        answers = DatasetAnswers(
            PostgresDatasetStore(engine),
            self.folders,
            orders=self.orders,
            topologies=self.topologies,
            remove=remove_directory,
            environment=self.variables,
        )
        self.server = DatasetServer(
            home / "run",
            key=b"k" * 32,
            answer=answers.answer,
            runs_here=self.running.__contains__,
            uid_of=lambda _task: os.geteuid(),
            clock=SystemClock(),
            for_tenants=False,
        )
        self.topologies.cache.changed = self.server.answer_again
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self.server.run_once()

    def enter(self, task_id: int) -> None:
        """Be the process of this attempt from now on."""
        for name, value in self.let_in(task_id).items():
            self._patch.setenv(name, value)

    def let_in(self, task_id: int) -> dict[str, str]:
        """Serve this attempt; return the variables that its process needs."""
        self.running.add(task_id)
        return {"ORCAFLOW_TASK_INSTANCE_ID": str(task_id), **self.server.variables(task_id)}

    def close(self) -> None:
        self._stopping.set()
        self.server.stop()
        self._thread.join()
        self.server.close()


@contextmanager
def desk(home: Path, engine: Engine, patch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(home, engine, patch)
    try:
        yield made
    finally:
        made.close()


def written(place: Allocation, name: str = "part.parquet", content: str = "rows") -> str:
    """Write a file of a write; its name."""
    path = place.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return name


def some_files(place: Allocation, interval: str, name: str = "part.parquet") -> Files:
    return Files(interval, [written(place, name)], rows=10)


def lock(
    made: Engine,
    task_id: int,
    ds: str,
    kind: LockType,
    *,
    interval: str = DAY,
    priority: int = 50,
) -> None:
    with made.begin() as db:
        run = PostgresTaskStore(made).log_places([task_id])[task_id]
        request = LockRequest(
            dataset=ds,
            group_id=group_of_run(run),
            interval=read_interval(interval),
            type=kind,
            priority=priority,
        )
        assert isinstance(request_locks(db, task_id, [request]), tuple)


def an_attempt(made: Engine, definition_id: int = 1, project_id: int = 1) -> int:
    (task_id,) = submit(made, a_run(made, definition_id, project_id), "load")
    assert claim(made, WORKER, [task_id]) == [task_id]
    return task_id
