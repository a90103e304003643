"""The limits of the machine: a bare loop over the same ZooKeeper and the same PostgreSQL.

For each task it inserts a row and commits, puts a znode into a queue, takes it out again by
a transaction that leaves a claim, marks the row and commits, starts the same probed shell script,
waits for its end, marks the row, notifies and commits. It knows no DAG, fences nothing, recovers
nothing and keeps no log, so nothing that does could be faster; what an honest scheduler adds is
what it costs. Rates are those of batches of twenty that share their commits and their round trips.
"""

from __future__ import annotations

import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from tests.bench import chain, fan, layered
from tests.bench.figures import Figure, percentile, rate
from tests.bench.moments import count, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

_QUEUE = "/floor/queue"
_CLAIMS = "/floor/claims"
_BATCH = 20
_TRIGGERS = 50


def measure(stage: Stage, runs: int) -> list[Figure]:
    with _bare(stage) as floor:
        chains = [_chain(stage, floor) for _ in range(runs)]
        fans = [_rate(floor, [fan.WIDTH]) for _ in range(runs)]
        waves = [width * layered.INSTANCES for width in layered.LAYERS]
        layers = [_rate(floor, waves) for _ in range(runs)]
        triggers = [_trigger(stage, floor) for _ in range(runs)]
    return [
        *chain.figures("floor.chain", chains, None, None),
        Figure(name="floor.fan_rate", unit="tasks/s", values=tuple(fans)),
        Figure(name="floor.layered_rate", unit="tasks/s", values=tuple(layers)),
        Figure(name="floor.trigger_p50", unit="ms", values=tuple(triggers)),
    ]


class _Floor:
    """The loop's connections."""

    def __init__(self, database: Any, zookeeper: Any) -> None:
        self._database = database
        self._cursor = database.cursor()
        self._zookeeper = zookeeper

    def run(self, scripts: list[str]) -> None:
        """Insert a row for each script and run these side by side."""
        ids = [self._insert() for _ in scripts]
        self._database.commit()
        self.run_inserted(ids, scripts)

    def run_inserted(self, ids: list[int], scripts: list[str]) -> None:
        """Run scripts whose rows are inserted already."""
        self._claim(ids)
        self._mark(ids, 1)
        processes = [
            subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.DEVNULL)
            for script in scripts
        ]
        for process in processes:
            process.wait()
        self._cursor.execute("SELECT pg_notify('floor_ended', %s)", (str(ids[0]),))
        self._mark(ids, 7)

    def insert_command(self) -> None:
        """Insert a row and notify its listener."""
        self._insert()
        self._cursor.execute("SELECT pg_notify('floor_command', '')")
        self._database.commit()

    def last_row(self) -> int:
        self._cursor.execute("SELECT max(id) FROM floor")
        return int(self._cursor.fetchone()[0])

    def _insert(self) -> int:
        self._cursor.execute("INSERT INTO floor (state) VALUES (0) RETURNING id")
        return int(self._cursor.fetchone()[0])

    def _mark(self, ids: list[int], state: int) -> None:
        self._cursor.execute(
            "UPDATE floor SET state = %s, at = now() WHERE id = ANY (%s)", (state, ids)
        )
        self._database.commit()

    def _claim(self, ids: list[int]) -> None:
        names = [str(row) for row in ids]
        created = [self._zookeeper.create_async(f"{_QUEUE}/{name}") for name in names]
        for request in created:
            request.get()
        pending = []
        for name in names:
            transaction = self._zookeeper.transaction()
            transaction.delete(f"{_QUEUE}/{name}")
            transaction.create(f"{_CLAIMS}/{name}", ephemeral=True)
            pending.append(transaction.commit_async())
        for request in pending:
            request.get()
        for name in names:
            self._zookeeper.delete_async(f"{_CLAIMS}/{name}")


@contextmanager
def _bare(stage: Stage) -> Iterator[_Floor]:
    database = psycopg2.connect(stage.cluster.dsn)
    zookeeper = KazooClient(
        hosts=stage.cluster.zookeeper,
        auth_data=[("digest", stage.cluster.digest)],
        default_acl=CREATOR_ALL_ACL,
    )
    zookeeper.start()
    try:
        with database.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE floor (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                " state smallint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
            )
        database.commit()
        zookeeper.ensure_path(_QUEUE)
        zookeeper.ensure_path(_CLAIMS)
        yield _Floor(database, zookeeper)
    finally:
        zookeeper.stop()
        zookeeper.close()
        database.close()


def _chain(stage: Stage, floor: _Floor) -> list[float]:
    stage.moments.forget()
    for number in range(chain.LENGTH):
        floor.run([stage.moments.probed(name=f"t{number}")])
    seen = stage.moments.until(
        lambda moments: count(moments, "end") == chain.LENGTH, within=PATIENCE_SECONDS
    )
    return chain.gaps_ms(seen)


def _rate(floor: _Floor, waves: list[int]) -> float:
    began = time.monotonic()
    for wave in waves:
        for first in range(0, wave, _BATCH):
            floor.run(["true"] * min(_BATCH, wave - first))
    return rate(sum(waves), time.monotonic() - began)


def _trigger(stage: Stage, floor: _Floor) -> float:
    listening = psycopg2.connect(stage.cluster.dsn)
    listening.autocommit = True
    try:
        with listening.cursor() as cursor:
            cursor.execute("LISTEN floor_command")
        latencies: list[float] = []
        for _ in range(_TRIGGERS):
            stage.moments.forget()
            floor.insert_command()
            committed = time.monotonic()
            while not listening.notifies:
                select.select([listening], [], [], PATIENCE_SECONDS)
                listening.poll()
            listening.notifies.clear()
            floor.run_inserted([floor.last_row()], [stage.moments.probed(name="t0")])
            seen = stage.moments.until(
                lambda moments: count(moments, "end") == 1, within=PATIENCE_SECONDS
            )
            latencies.append((of(seen, "begin")["t0"] - committed) * 1000)
        return percentile(latencies, 50)
    finally:
        listening.close()
