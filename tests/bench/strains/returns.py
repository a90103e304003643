"""Outages of ZooKeeper under load: how soon work starts after its return, and what was lost.

Two masters and two workers run a steady stream of short tasks. ZooKeeper is killed again and again,
each time for longer than daemons trust their sessions, and is started again. `first_start` is the
time from the moment at which its port accepts connections, which is before it serves sessions, to
the next start of an attempt;
`slow_starts` counts the outages in which that took more than two seconds. An attempt that ended as
lost is a false alarm, since no worker was away.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import psycopg2

from common.embedded.addresses import recorded_zookeeper
from tests.bench.figures import Figure, Target
from tests.bench.strains import grounds
from tests.system.cluster import PrivateCluster

_MOST_SECONDS = 2.0
_SHORTEST, _LONGEST = 8.0, 12.0
_RUNS_PER_SECOND = 10
_BETWEEN_SECONDS = 6.0
_LOOK_SECONDS = 0.01
_PATIENCE_SECONDS = 120.0
_FIRST = """
    SELECT extract(epoch FROM min(start_time))::float8 FROM t_ds_task_instance
    WHERE process_definition_id = %s AND worker_incarnation IS NOT NULL AND start_time >= %s
"""
_LOST = "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = %s AND state = 8"


def measure(runs: int) -> list[Figure]:
    """Measure as many outages as there are runs."""
    firsts: list[float] = []
    lengths = random.Random(38)
    with grounds.cluster(masters=2, workers=2, slots=10) as cluster:
        definition = grounds.define_layered(cluster, "stream", (1,), "exec sleep 0.1")
        with _stream_of_runs(cluster, definition):
            for _ in range(runs):
                time.sleep(_BETWEEN_SECONDS)
                returned = _outage(cluster, lengths.uniform(_SHORTEST, _LONGEST))
                firsts.append(_first_start(cluster, definition, returned) - returned)
        ((lost,),) = cluster.rows(_LOST, definition)
    slow = sum(each > _MOST_SECONDS for each in firsts)
    return [
        Figure(name="returns.first_start", unit="s", values=tuple(firsts)),
        Figure(name="returns.slow_starts", unit="outages", values=(slow,), target=Target(limit=0)),
        Figure(name="returns.lost", unit="attempts", values=(lost,), target=Target(limit=0)),
    ]


@contextmanager
def _stream_of_runs(cluster: PrivateCluster, definition: int) -> Iterator[None]:
    """Insert commands at a steady rate, on a separate thread and connection."""
    over = threading.Event()

    def put() -> None:
        connection = psycopg2.connect(cluster.dsn)
        connection.autocommit = True
        with connection.cursor() as cursor:
            while not over.wait(1 / _RUNS_PER_SECOND):
                cursor.execute(
                    "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
                    " VALUES (0, %s, '{}')",
                    (definition,),
                )
        connection.close()

    thread = threading.Thread(target=put, name="commands")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _outage(cluster: PrivateCluster, seconds: float) -> float:
    """Kill ZooKeeper, and start it after this time; return when it took connections again."""
    server = recorded_zookeeper(cluster.home)
    assert server is not None
    assert cluster.daemons.stop_one("zookeeper", None, now=True)
    time.sleep(seconds)
    returned: list[float] = []

    def look() -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not returned and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((server.host, server.port)):
                returned.append(time.time())
                return
            time.sleep(_LOOK_SECONDS)

    looking = threading.Thread(target=look, name="return")
    looking.start()
    cluster.daemons.start_zookeeper()
    looking.join()
    return returned[0]


def _first_start(cluster: PrivateCluster, definition: int, returned: float) -> float:
    """Return the time at which the first attempt was claimed after the return."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    since = datetime.fromtimestamp(returned, UTC)
    while time.monotonic() < deadline:
        ((found,),) = cluster.rows(_FIRST, definition, since)
        if found is not None:
            return float(found)
        time.sleep(grounds.LOOK_SECONDS)
    raise TimeoutError("nothing has started since the return of ZooKeeper")
