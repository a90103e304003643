"""The hot statements of the store alone, by one client: tasks a second that pass through each.

- `claims`: SUBMITTED → RUNNING, twenty attempts a call and one.
- `reports`: RUNNING → SUCCESS, likewise.
- `saves`: an end settled and a successor submitted, in the transaction of twenty runs and of one.

The rows are those of two thousand runs in a database of its own on the stage's server, that no daemon
reads. The floor changes as many rows by the plainest statement that does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg2

from common.embedded.addresses import OWNER, SUPERUSER, postgres_address
from common.model.cluster import Node
from common.model.decisions import FinishTask, SubmitTask
from common.model.instances import Ownership
from common.model.states import Priority, TaskState
from common.store import schema
from common.store.connect import Engine, engine
from common.store.master.ports import Step
from common.store.master.runs import PostgresRunStore
from common.store.worker.ports import AttemptEnd, AttemptFolders
from common.store.worker.tasks import PostgresTaskStore
from tests.bench import definitions
from tests.bench.figures import Figure, rate
from tests.bench.stage import Stage

RUNS = 1_000
BATCHES = (1, 20)
_NAME = "orcaflow_bench_store"
WORKER = Node(address="10.255.0.2:1234", incarnation=3)
_MASTER = "10.255.0.1:5678"
FOLDERS = AttemptFolders(work="/tasks/exec", logs="/tasks/logs")
_TASK = definitions.one_task("task", "true")
_FILL = """
    TRUNCATE t_ds_process_instance, t_ds_task_instance, t_ds_process_definition RESTART IDENTITY CASCADE;
    INSERT INTO t_ds_process_definition (name, process_definition_json, release_state)
        VALUES ('store', '{}', 1);
    INSERT INTO t_ds_process_instance (name, process_definition_id, state, start_time, command_type,
            process_instance_json, executor_id, host, owner_incarnation, owner_epoch)
        SELECT 'run-' || n, 1, 1, now(), 0, '{}', 1, %(host)s, 1, 1
        FROM generate_series(1, %(runs)s) AS n;
    INSERT INTO t_ds_task_instance (name, task_type, process_definition_id, process_instance_id,
            task_json, state, submit_time)
        SELECT 't0', 'SHELL', 1, id, %(json)s, 0, now() FROM t_ds_process_instance ORDER BY id
"""
_CALLS = ("claims", "reports", "saves")


@dataclass(slots=True)
class _Bare:
    """The floor: rows of which a batch is changed in one statement and one transaction."""

    connection: Any

    def change(self, ids: Sequence[int]) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "UPDATE bare SET state = 1, at = now() WHERE id = ANY (%s)", (list(ids),)
            )
        self.connection.commit()


def measure(stage: Stage, runs: int) -> list[Figure]:
    rates: dict[str, list[float]] = {}
    with own_database(stage) as (store, dsn), closing(psycopg2.connect(dsn)) as connection:
        _prepare_bare(connection)
        for _ in range(runs):
            for batch in BATCHES:
                fill(connection)
                for name, call in zip(_CALLS, _calls(store), strict=True):
                    rates.setdefault(f"store.{name}_by_{batch}", []).append(_rate(call, batch))
                rates.setdefault(f"floor.store.changes_by_{batch}", []).append(
                    _rate(_Bare(connection).change, batch)
                )
    return [
        Figure(name=name, unit="tasks/s", values=tuple(values)) for name, values in rates.items()
    ]


@contextmanager
def own_database(stage: Stage) -> Iterator[tuple[Engine, str]]:
    """Make a database of the bench's own beside the cluster's; drop it on exit."""
    address = postgres_address(stage.cluster.home)
    administering = psycopg2.connect(address.seen_by(SUPERUSER).dsn)
    administering.autocommit = True
    with closing(administering), administering.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {_NAME} OWNER {OWNER}")
        own = replace(address, dbname=_NAME)
        made = engine(own.url)
        try:
            schema.upgrade(made, os_user="bench")
            yield made, own.dsn
        finally:
            made.dispose()
            cursor.execute(f"DROP DATABASE {_NAME} WITH (FORCE)")


def _prepare_bare(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE bare (id integer PRIMARY KEY, state smallint NOT NULL,"
            " at timestamptz NOT NULL DEFAULT now())"
        )
        cursor.execute("INSERT INTO bare SELECT n, 0 FROM generate_series(1, %s) AS n", (RUNS,))
    connection.commit()


def fill(connection: Any) -> None:
    """Make the runs anew; the ids of runs and of their first attempts are 1 and on."""
    with connection.cursor() as cursor:
        cursor.execute(_FILL, {"host": _MASTER, "runs": RUNS, "json": _TASK})
        cursor.execute("ANALYZE t_ds_process_instance, t_ds_task_instance")
    connection.commit()


def _calls(made: Engine) -> tuple[Callable[[Sequence[int]], object], ...]:
    """Each takes some of the runs; they must be called for all runs in this order."""
    # The setting of a worker in mode `single`, which is the default.
    tasks = PostgresTaskStore(made, checks_creators=False)
    runs = PostgresRunStore(made)

    def claim(ids: Sequence[int]) -> None:
        won = tasks.claim(WORKER, ids, folders=FOLDERS, now=datetime.now(UTC))
        assert len(won) == len(ids)

    def report(ids: Sequence[int]) -> None:
        now = datetime.now(UTC)
        ends = [
            AttemptEnd(task_instance_id=each, state=TaskState.SUCCESS, end_time=now, exit_code=0)
            for each in ids
        ]
        assert len(tasks.report(WORKER, ends)) == len(ids)

    def save(ids: Sequence[int]) -> None:
        now = datetime.now(UTC)
        saved = runs.save([_step(each, now) for each in ids])
        assert len(saved.offers) == len(ids)

    return claim, report, save


def _step(run: int, now: datetime) -> Step:
    return Step(
        ownership=Ownership(process_instance_id=run, host=_MASTER, epoch=1),
        decisions=(
            FinishTask(name="t0", attempt=1, state=TaskState.SUCCESS, at=now),
            SubmitTask(
                name="t1",
                attempt=1,
                retry_times=0,
                task_type="SHELL",
                task_json=_TASK,
                priority=Priority.MEDIUM,
                worker_group_id=-1,
                max_retry_times=0,
                retry_interval=timedelta(minutes=1),
            ),
        ),
        at=now,
    )


def _rate(call: Callable[[Sequence[int]], object], batch: int) -> float:
    began = time.monotonic()
    for first in range(1, RUNS + 1, batch):
        call(range(first, min(first + batch, RUNS + 1)))
    return rate(RUNS, time.monotonic() - began)
