"""A private cluster of several daemons, and samples of its processes and tables.

A process is sampled by `/proc`, the tables by a connection that no daemon uses.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from common.embedded.addresses import recorded_postgres
from tests.bench.definitions import layered
from tests.system.cluster import PrivateCluster, private_cluster

LOOK_SECONDS = 0.5


@contextmanager
def cluster(
    *, masters: int = 1, workers: int = 1, slots: int | None = None, **settings: str
) -> Iterator[PrivateCluster]:
    """A running cluster with these settings, given as the ends of ORCAFLOW_… variables."""
    with home() as folder, private_cluster(folder, **settings) as made:
        made.start(masters=masters, workers=workers, slots=slots)
        yield made


@contextmanager
def home() -> Iterator[Path]:
    """A folder for a cluster, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="orcaflow-strain-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def define_layered(made: PrivateCluster, name: str, widths: tuple[int, ...], script: str) -> int:
    return made.define(name, layered(widths, first_script=script, script=script))


def put(made: PrivateCluster, definition: int, times: int) -> None:
    """Insert this many commands in one transaction, of all five priorities in turn."""
    made.rows(
        "INSERT INTO t_ds_command"
        " (command_type, process_definition_id, command_param, process_instance_priority)"
        " SELECT 0, %s, '{}', n %% 5 FROM generate_series(1, %s) AS n",
        definition,
        times,
    )


def await_count(made: PrivateCluster, query: str, number: int, *, within: float) -> float:
    """Wait until a query for a number answers at least that; return the monotonic time."""
    deadline = time.monotonic() + within
    while True:
        ((found,),) = made.rows(query)
        if found >= number:
            return time.monotonic()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found} of {number} after {within:g} s: {query}")
        # Seldom, since each query loads the database under measurement.
        time.sleep(LOOK_SECONDS)


def ended(definition: int) -> str:
    """The query for the number of a definition's instances that have ended."""
    return (
        "SELECT count(*) FROM t_ds_process_instance"
        f" WHERE process_definition_id = {definition:d} AND end_time IS NOT NULL"
    )


def postgres_cpu_seconds(made: PrivateCluster) -> float:
    """The CPU time of the embedded server and of all its backends, ended ones included."""
    server = recorded_postgres(made.home)
    assert server is not None
    postmaster = psutil.Process(server.pid)
    own = postmaster.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in postmaster.children():
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue  # Counted among the postmaster's children from now on.
        total += times.user + times.system
    return total
