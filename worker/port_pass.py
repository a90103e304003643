"""Ends the task run that holds a port at which a daemon of the cluster is to start.

`python -m worker.port_pass --home DIR --port N --server NAME`. If the holder of
the port is a process of a task run of which a worker of this home has a record, it ends all
processes of that attempt, prints its id and exits with 0. Otherwise it exits with 1, and ends no
process. A note beside the record gives the worker the reason of the attempt's end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from common.clock import SystemClock
from common.port_holders import processes_at
from common.ports import is_port_free
from worker.processes.attempt_processes import Seen, belonging, kill_exactly, scan, seen_now
from worker.processes.records import Record, Records

NAME = "port-pass"
FREED, NOT_FREED = 0, 1
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104
_SECONDS: Final = 10.0
_REST: Final = 0.02


def main(arguments: list[str] | None = None) -> int:
    """Free one port; 1 if that is not possible."""
    parser = argparse.ArgumentParser(prog=NAME, description="Ends the task run that holds a port.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server", required=True, help="the name of what is to start there")
    options = parser.parse_args(arguments)
    ended = end_holder(
        options.home, options.port, f"held the port {options.port} of {options.server}"
    )
    if ended is None or not is_port_free(options.port):
        return NOT_FREED
    sys.stdout.write(f"{ended}\n")
    return FREED


def end_holder(home: Path, port: int, reason: str) -> int | None:
    """End task runs of workers of this home until none keeps a port; return the last one's id.

    Usually there is one. Of several that may have the socket, each is ended until the port is free.
    """
    ended: list[int] = []
    while (holder := _holder(home, port, ended)) is not None:
        records, record = holder
        # First, so that the worker does not miss it when it sees the end.
        records.note_end(record.task_instance_id, reason)
        if not _end(record):
            records.forget_end(record.task_instance_id)
            break
        ended.append(record.task_instance_id)
        if is_port_free(port, _EVERY_ADDRESS):
            break
    return ended[-1] if ended else None


def _holder(home: Path, port: int, ended: Collection[int]) -> tuple[Records, Record] | None:
    found = [seen_now(pid) for pid in processes_at(port)]
    holders = [each for each in found if each is not None]
    for records, record in _recorded(home) if holders else ():
        if record.task_instance_id not in ended and _is_of(record, holders):
            return records, record
    return None


def _recorded(home: Path) -> list[tuple[Records, Record]]:
    folders = sorted((home / "tasks" / "records").glob("*"))
    found = [Records(folder) for folder in folders if folder.is_dir()]
    read = [(records, records.read(task_id)) for records in found for task_id in records.ids()]
    return [(records, record) for records, record in read if record is not None]


def _is_of(record: Record, processes: list[Seen]) -> bool:
    paths = {record.execute_path: record.task_instance_id}
    return bool(belonging(processes, paths=paths, sessions={}))


def _end(record: Record) -> bool:
    """Kill the processes of an attempt; return True once none is left."""
    clock = SystemClock()
    deadline = clock.monotonic() + _SECONDS
    paths = {record.execute_path: record.task_instance_id}
    while found := belonging(scan(), paths=paths, sessions={}):
        for each in found[record.task_instance_id]:
            kill_exactly(each)
        if clock.monotonic() > deadline:
            return False
        # They are not children of this process, so only their absence can be waited for.
        time.sleep(_REST)
    return True


if __name__ == "__main__":
    sys.exit(main())
