"""The loss of all workers with 300 running tasks, of which one worker comes back.

The daemons of three workers are killed with everything below them, as if their computers had gone.
When all of their attempts have been failed over, one of them is started again and has to run
everything with a third of the slots. `dispatched` is the most attempts that began within a second;
the processor's shares are those of PostgreSQL from the worker's return until the backlog is gone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from operations.daemons import Kind
from tests.bench.figures import Figure, Target, rate
from tests.bench.strains import grounds
from tests.system.cluster import PrivateCluster, task_processes, until

WORKERS, SLOTS = 3, 100
TASKS = WORKERS * SLOTS
INSTANCES = 6
_TASK_SECONDS = 15
_LONGEST_SECONDS = 300.0
_SAMPLE_SECONDS = 1.0
_IN_STATE = (
    "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = {} AND state = {}"
)
_RUNNING, _LOST = 1, 8
# Tasks without one lost attempt and one that succeeded, none charged as a retry.
_WRONG = """
    SELECT count(*) FROM (
        SELECT 1 FROM t_ds_task_instance WHERE process_definition_id = %s
        GROUP BY process_instance_id, name
        HAVING array_agg(state ORDER BY attempt) <> '{8,7}' OR max(retry_times) > 0
    ) AS task
"""
_BEGUN = """
    SELECT extract(epoch FROM start_time)::float8 FROM t_ds_task_instance
    WHERE process_definition_id = %s AND attempt = 2 ORDER BY start_time
"""


def measure(runs: int) -> list[Figure]:
    given_up: list[float] = []
    cleared: list[float] = []
    dispatched: list[float] = []
    hundred: list[float] = []
    wrong: list[float] = []
    peaks: list[float] = []
    means: list[float] = []
    with grounds.cluster(workers=WORKERS, slots=SLOTS) as cluster:
        for turn in range(runs):
            definition = grounds.define_layered(
                cluster, f"lost {turn}", (TASKS // INSTANCES,), f"exec sleep {_TASK_SECONDS}"
            )
            grounds.put(cluster, definition, INSTANCES)
            _await_state(cluster, definition, _RUNNING)
            _lose_workers(cluster)
            died = time.monotonic()
            given_up.append(_await_state(cluster, definition, _LOST) - died)
            first, *others = cluster.ports(Kind.WORKER)
            back = time.monotonic()
            cluster.start_again(Kind.WORKER, first)
            shares = _shares_until_ended(cluster, definition)
            cleared.append(time.monotonic() - back)
            peaks.append(max(shares))
            means.append(sum(shares) / len(shares))
            begun = [row[0] for row in cluster.rows(_BEGUN, definition)]
            dispatched.append(most_in_a_second(begun))
            hundred.append(rate(SLOTS - 1, begun[SLOTS - 1] - begun[0]))
            ((found,),) = cluster.rows(_WRONG, definition)
            wrong.append(found)
            for port in others:
                cluster.start_again(Kind.WORKER, port)
    return [
        Figure(name="lost.given_up", unit="s", values=tuple(given_up)),
        Figure(name="lost.cleared", unit="s", values=tuple(cleared)),
        Figure(name="lost.wrong", unit="tasks", values=tuple(wrong), target=Target(limit=0)),
        Figure(name="lost.dispatched", unit="in a second", values=tuple(dispatched)),
        Figure(name="lost.dispatch_rate", unit="attempts/s", values=tuple(hundred)),
        Figure(name="lost.postgres_peak", unit="% of a core", values=tuple(peaks)),
        Figure(
            name="lost.postgres_mean",
            unit="% of a core",
            values=tuple(means),
            target=Target(limit=80),
        ),
    ]


def _await_state(cluster: PrivateCluster, definition: int, state: int) -> float:
    query = _IN_STATE.format(definition, state)
    return grounds.await_count(cluster, query, TASKS, within=_LONGEST_SECONDS)


def _lose_workers(cluster: PrivateCluster) -> None:
    """kill -9 of every worker with its warden and its tasks."""
    pids = [pid for (kind, _), pid in cluster.pids().items() if kind is Kind.WORKER]
    below = [each.pid for pid in pids for each in psutil.Process(pid).children(recursive=True)]
    for port in cluster.ports(Kind.WORKER):
        cluster.kill(Kind.WORKER, port)
    for pid in (*below, *task_processes(cluster.home)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: task_processes(cluster.home) == [])


def _shares_until_ended(cluster: PrivateCluster, definition: int) -> list[float]:
    """PostgreSQL's share of a processor in each second, until all instances have ended."""
    shares: list[float] = []
    deadline = time.monotonic() + _LONGEST_SECONDS
    at, used = time.monotonic(), grounds.postgres_cpu_seconds(cluster)
    while cluster.rows(grounds.ended(definition)) != [(INSTANCES,)]:
        if time.monotonic() > deadline:
            raise TimeoutError("the backlog has not cleared")
        # The window over which processor time is counted.
        time.sleep(_SAMPLE_SECONDS)
        now, used_now = time.monotonic(), grounds.postgres_cpu_seconds(cluster)
        shares.append(100 * rate(1, now - at) * (used_now - used))
        at, used = now, used_now
    return shares


def most_in_a_second(moments: Sequence[float]) -> float:
    """The most of these ordered moments that lie within one second."""
    most, first = 0, 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= 1:
            first += 1
        most = max(most, last - first + 1)
    return float(most)
