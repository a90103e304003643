"""The limits of the machine: a bare loop over the same ZooKeeper and the same PostgreSQL.

For each task it inserts a row and commits, puts a znode into a queue, takes it out again by
a transaction that leaves a claim, marks the row and commits, starts the same probed script,
waits for its end, marks the row, notifies and commits. It knows no DAG, fences nothing, recovers
nothing and keeps no log, so nothing that does could be faster; what an honest scheduler adds is
what it costs. Rates are those of batches of twenty that share their commits and their round trips.

Each bench measures its own floor, turn by turn with Orcaflow, so that both meet the same moments of
the machine.
"""

from __future__ import annotations

import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg2
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from tests.bench.figures import rate
from tests.bench.moments import Moments, chain_gaps_ms, count, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

_QUEUE = "/floor/queue"
_CLAIMS = "/floor/claims"
_BATCH = 20
_SHELL = ("/bin/sh", "-c")


class Floor:
    """The loop and its connections."""

    def __init__(self, dsn: str, database: Any, zookeeper: Any, moments: Moments) -> None:
        self._dsn = dsn
        self._database = database
        self._cursor = database.cursor()
        self._zookeeper = zookeeper
        self._moments = moments

    def chain(self, length: int, script: str, interpreter: Sequence[str] = _SHELL) -> list[float]:
        """Run a script that reports its moments so many times in a line; the gaps in milliseconds.

        `{name}` in it stands for the task's name.
        """
        self._moments.forget()
        for number in range(length):
            self._run([script.replace("{name}", f"t{number}")], interpreter)
        seen = self._moments.until(
            lambda moments: count(moments, "end") == length, within=PATIENCE_SECONDS
        )
        return chain_gaps_ms(seen, length)

    def rate(self, waves: Sequence[int]) -> float:
        """Tasks a second of waves of tasks, each of which begins after the end of the one before."""
        began = time.monotonic()
        for wave in waves:
            for first in range(0, wave, _BATCH):
                self._run(["true"] * min(_BATCH, wave - first), _SHELL)
        return rate(sum(waves), time.monotonic() - began)

    def triggers(self, times: int) -> list[float]:
        """Milliseconds from the commit of a row to the start of a process, one after the other."""
        listening = psycopg2.connect(self._dsn)
        listening.autocommit = True
        try:
            with listening.cursor() as cursor:
                cursor.execute("LISTEN floor_command")
            return [self._trigger(listening) for _ in range(times)]
        finally:
            listening.close()

    def _trigger(self, listening: Any) -> float:
        self._moments.forget()
        row = self._insert()
        self._cursor.execute("SELECT pg_notify('floor_command', '')")
        self._database.commit()
        committed = time.monotonic()
        while not listening.notifies:
            select.select([listening], [], [], PATIENCE_SECONDS)
            listening.poll()
        listening.notifies.clear()
        self._run_inserted([row], [self._moments.probed(name="t0")], _SHELL)
        seen = self._moments.until(
            lambda moments: count(moments, "end") == 1, within=PATIENCE_SECONDS
        )
        return (of(seen, "begin")["t0"] - committed) * 1000

    def _run(self, scripts: list[str], interpreter: Sequence[str]) -> None:
        """Insert a row for each script and run these side by side."""
        ids = [self._insert() for _ in scripts]
        self._database.commit()
        self._run_inserted(ids, scripts, interpreter)

    def _run_inserted(self, ids: list[int], scripts: list[str], interpreter: Sequence[str]) -> None:
        """Run scripts whose rows are inserted already."""
        self._claim(ids)
        self._mark(ids, 1)
        processes = [
            subprocess.Popen([*interpreter, script], stdin=subprocess.DEVNULL) for script in scripts
        ]
        for process in processes:
            process.wait()
        self._cursor.execute("SELECT pg_notify('floor_ended', %s)", (str(ids[0]),))
        self._mark(ids, 7)

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
def bare(stage: Stage) -> Iterator[Floor]:
    """The loop over the servers of a stage."""
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
                "CREATE TABLE IF NOT EXISTS floor ("
                " id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                " state smallint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
            )
        database.commit()
        zookeeper.ensure_path(_QUEUE)
        zookeeper.ensure_path(_CLAIMS)
        yield Floor(stage.cluster.dsn, database, zookeeper, stage.moments)
    finally:
        zookeeper.stop()
        zookeeper.close()
        database.close()
