"""Ends the task runs that hold a port at which a daemon of the cluster is to start.

`python -m worker.port_pass --home DIR --port N --server NAME`. It prints what it has ended
(`common.port_freeing.Freed`) as JSON, and exits with 0 if the port is free then. It ends:

* recorded attempts of this home's workers, if one of their processes holds the port. A note in the
  folder of the records gives the worker the reason for the end.
* processes of ended attempts (`keepChildren`) that hold the port. They have no record, but the mark
  of an attempt and the account of a tenant.
* attempts and processes of a tenant's account, one attempt at a time, if a socket of the account
  has the port and no process shows the socket. System calls keep a socket in many ways.

It never ends a process of root, of the daemon's account or of an owner of the servers' files,
unless the process belongs to a recorded attempt.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from common.clock import SystemClock
from common.port_freeing import Freed
from common.port_holders import hidden_accounts, processes_at
from common.ports import is_port_free
from common.tenant_accounts import AccountRules
from worker.processes.attempt_processes import (
    Seen,
    belonging,
    kill_exactly,
    lives,
    real_uid,
    scan,
    seen_now,
)
from worker.processes.marks import mark_seen
from worker.processes.records import Record, Records

NAME = "port-pass"
FREED, NOT_FREED = 0, 1
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104
_SECONDS: Final = 10.0
_REST: Final = 0.02


def main(arguments: list[str] | None = None) -> int:
    """Free one port; 1 if that is not possible."""
    parser = argparse.ArgumentParser(prog=NAME, description="Ends task runs that hold a port.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server", required=True, help="the name of what is to start there")
    options = parser.parse_args(arguments)
    passing = PortPass(options.home, options.port, server=options.server)
    sys.stdout.write(passing.run().to_json() + "\n")
    return FREED if is_port_free(options.port) else NOT_FREED


class PortPass:
    """Frees one port. `server` is the name of what is to start there."""

    def __init__(self, home: Path, port: int, *, server: str) -> None:
        self._home = home
        self._port = port
        self._server = server
        self._rules = AccountRules(home=home, minimum_uid=1, daemon_uid=os.geteuid())
        # Daemons of a cluster that runs within a task have the mark of that task.
        self._knows_marks = mark_seen(os.getpid()) is None
        self._task_ids: list[int] = []
        self._pids: list[int] = []

    def run(self) -> Freed:
        """End the holders until the port is free; return what was ended."""
        self._end_attempts_at_the_port()
        if not self._is_free():
            self._kill_left(self._holders())
        for uid in () if self._is_free() else sorted(hidden_accounts(self._port)):
            self._end_account(uid)
        return Freed(task_ids=tuple(self._task_ids), pids=tuple(self._pids))

    def _end_attempts_at_the_port(self) -> None:
        """End attempts that may have the socket, until the port is free."""
        while not self._is_free():
            holders = self._holders()
            found = (each for each in self._recorded() if holders and _is_of(each[1], holders))
            if not self._end_first(found, f"held the port {self._port} of {self._server}"):
                return

    def _end_account(self, uid: int) -> None:
        """End attempts of a tenant's account until the port is free, and then its other tasks'."""
        if not self._is_tenant(uid):
            return
        reason = f"its account hid a socket at the port {self._port} of {self._server}"
        while not self._is_free():
            found = (each for each in self._recorded() if _owner(each[1]) == uid)
            if not self._end_first(found, reason):
                break
        if not self._is_free():
            self._kill_left(each for each in scan() if real_uid(each.pid) == uid)

    def _kill_left(self, processes: Iterable[Seen]) -> None:
        """Kill the processes that ended attempts of tenants have left, among these."""
        left = [each for each in processes if self._is_left(each)]
        for each in left:
            kill_exactly(each)
        self._pids += [each.pid for each in left]
        _await(lambda: not any(map(lives, left)))

    def _is_left(self, process: Seen) -> bool:
        uid = real_uid(process.pid)
        is_marked = self._knows_marks and process.mark is not None
        return is_marked and uid is not None and self._is_tenant(uid)

    def _is_tenant(self, uid: int) -> bool:
        return self._rules.unfit_uid(uid) is None

    def _end_first(self, found: Iterable[tuple[Records, Record]], reason: str) -> bool:
        """End the first of these attempts; False if the list is empty or the end fails."""
        first = next(iter(found), None)
        if first is None:
            return False
        records, record = first
        # First, so that the worker does not miss it when it sees the end.
        records.note_end(record.task_instance_id, reason)
        if not _end(record):
            records.forget_end(record.task_instance_id)
            return False
        self._task_ids.append(record.task_instance_id)
        return True

    def _recorded(self) -> Iterator[tuple[Records, Record]]:
        """Yield the attempts of this home's workers that this program has not ended."""
        for folder in sorted((self._home / "tasks" / "records").glob("*")):
            if not folder.is_dir():
                continue
            records = Records(folder)
            for task_id in records.ids():
                record = records.read(task_id)
                if record is not None and task_id not in self._task_ids:
                    yield records, record

    def _holders(self) -> list[Seen]:
        found = [seen_now(pid) for pid in processes_at(self._port)]
        return [each for each in found if each is not None]

    def _is_free(self) -> bool:
        return is_port_free(self._port, _EVERY_ADDRESS)


def _is_of(record: Record, processes: list[Seen]) -> bool:
    paths = {record.execute_path: record.task_instance_id}
    return bool(belonging(processes, paths=paths, sessions={}))


def _owner(record: Record) -> int | None:
    try:
        return os.lstat(record.execute_path).st_uid
    except OSError:
        return None


def _end(record: Record) -> bool:
    """Kill the processes of an attempt; return True once none is left."""
    paths = {record.execute_path: record.task_instance_id}

    def has_ended() -> bool:
        found = belonging(scan(), paths=paths, sessions={}).get(record.task_instance_id, [])
        for each in found:
            kill_exactly(each)
        return not found

    return _await(has_ended)


def _await(has_ended: Callable[[], bool]) -> bool:
    """Wait for the end of killed processes; return False if they do not end in time."""
    clock = SystemClock()
    deadline = clock.monotonic() + _SECONDS
    while not has_ended():
        if clock.monotonic() > deadline:
            return False
        # They are not children of this process, so only their absence can be waited for.
        time.sleep(_REST)
    return True


if __name__ == "__main__":
    sys.exit(main())
