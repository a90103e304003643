"""The Spark host: one process beside each worker daemon that owns what is kept warm for tasks.

    python -P -m worker.spark.host --home DIR --port NUMBER --spark-home DIR

It has imported PySpark once, forks a process for each task and for each Python that a server wants
for UDFs, and runs the Connect servers whose sessions the tasks get. It is one thread that sleeps in
epoll, because a process with threads can't be forked safely; whatever would have to wait, such as
asking a server how it is, is done in a fork of its own, a *probe*.

It runs as the account whose tasks it serves, with all that it starts: the worker's own, or in mode
`tenant` that of one tenant, who has a host alone. So nobody reaches anything by it that their own
account could not reach.

It outlives its worker daemon, as tasks do: a daemon that comes back finds it, its servers and its
tasks at work. Once the daemon is gone and nothing runs, it ends by itself. What it started never
outlives it: the kernel ends its servers and forks along with it.

What it does all the time is `worker/spark/host/loop.py`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TextIO

from worker.spark.host import folders, host_log
from worker.spark.host.folders import SERVERS, SOCKET

_LOCK_REST = 0.05


def main(arguments: list[str] | None = None) -> int:
    """Serve until nobody needs it; 0 too if there is a host at this place already."""
    parser = argparse.ArgumentParser(prog="spark-host", description="Keeps Spark warm for tasks.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True, help="that of its worker daemon")
    parser.add_argument("--spark-home", required=True)
    parser.add_argument("--for-tenant", action="store_true", help="this account is a tenant's")
    parser.add_argument("--sweep", action="store_true", help="only remove what a host has left")
    options = parser.parse_args(arguments)
    directory = folders.own_folder(options.home, options.port)
    log = options.home / "logs" / f"spark-host-{options.port}.log"
    if options.for_tenant:
        # Nothing else of the worker's home is a tenant's.
        directory = folders.tenant_folder(directory, os.geteuid())
        log = directory / "host.log"
    host_log.write_to(log)
    with (directory / "lock").open("w") as lock:
        while not _is_locked(lock):
            if options.sweep or (directory / SOCKET).exists():
                return 0
            time.sleep(_LOCK_REST)  # The one before has closed its door, and is ending.
        for left in directory.glob(SERVERS):
            shutil.rmtree(left, ignore_errors=True)
        if options.sweep:
            # Of a host that was killed; who comes next must not take it for one at work.
            (directory / SOCKET).unlink(missing_ok=True)
            return 0
        # Here: a daemon that starts beside a host at work starts this program too, to sweep.
        from worker.spark.host.serving import serve

        serve(directory, spark_home=options.spark_home, for_tenant=options.for_tenant)
    return 0


def _is_locked(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
