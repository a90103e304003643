"""Ends the attempts and left processes whose programs have a socket that they must not have.

Used from outside the supervisor's thread: by the program that frees a port of a daemon, and by the
loop that protects the ports of Spark drivers. A note in the folder of the records gives the worker
the reason for the end of an attempt.

It never ends a process of root, of the daemon's account or of an owner of the servers' files,
unless the process belongs to a recorded attempt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from common.clock import SystemClock
from common.tenant_accounts import AccountRules
from worker.processes.attempt_processes import (
    Seen,
    belonging,
    kill_exactly,
    lives,
    real_uid,
    scan,
)
from worker.processes.marks import mark_seen
from worker.processes.records import Record, Records

_SECONDS: Final = 10.0
_REST: Final = 0.02


class SocketOwners:
    """The attempts of a home's workers, and the processes that ended attempts have left."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._rules = AccountRules(home=home, minimum_uid=1, daemon_uid=os.geteuid())
        # Daemons of a cluster that runs within a task have the mark of that task.
        self._knows_marks = mark_seen(os.getpid()) is None
        self._task_ids: list[int] = []
        self._pids: list[int] = []

    @property
    def task_ids(self) -> tuple[int, ...]:
        """The attempts that were ended."""
        return tuple(self._task_ids)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of no attempt that were killed."""
        return tuple(self._pids)

    def is_tenant(self, uid: int) -> bool:
        """Return whether tasks of tenants may have this account."""
        return self._rules.unfit_uid(uid) is None

    def recorded(self, processes: list[Seen]) -> list[Record]:
        """Return the attempts that these processes belong to."""
        return [record for _, record in self._recorded() if _is_of(record, processes)]

    def has_attempt_of(self, uid: int) -> bool:
        """Return True if there is an attempt of this account that was not ended here."""
        return any(_owner(record) == uid for _, record in self._recorded())

    def end_attempt_of(self, processes: list[Seen], reason: str) -> bool:
        """End the first attempt that one of these processes belongs to.

        Return False if there is no such attempt, or if its processes cannot be killed.
        """
        found = (each for each in self._recorded() if processes and _is_of(each[1], processes))
        return self._end_first(found, reason)

    def end_account(self, uid: int, reason: str, *, until: Callable[[], bool]) -> None:
        """End the attempts of a tenant's account one by one, then what others have left."""
        if not self.is_tenant(uid):
            return
        while not until():
            found = (each for each in self._recorded() if _owner(each[1]) == uid)
            if not self._end_first(found, reason):
                break
        if not until():
            self.kill_left(each for each in scan() if real_uid(each.pid) == uid)

    def kill_left(self, processes: Iterable[Seen]) -> None:
        """Kill the processes that ended attempts of tenants have left, among these."""
        self._kill_of_tenants(
            each for each in processes if self._knows_marks and each.mark is not None
        )

    def kill_servers(self, servers: Iterable[Seen]) -> None:
        """Kill the Spark servers of tenants. They belong to no attempt and have no mark."""
        self._kill_of_tenants(servers)

    def _kill_of_tenants(self, processes: Iterable[Seen]) -> None:
        killed = [each for each in processes if self._is_of_tenant(each)]
        for each in killed:
            kill_exactly(each)
        self._pids += [each.pid for each in killed]
        _await(lambda: not any(map(lives, killed)))

    def _is_of_tenant(self, process: Seen) -> bool:
        uid = real_uid(process.pid)
        return uid is not None and self.is_tenant(uid)

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
        """Yield the attempts of this home's workers that were not ended here."""
        for folder in sorted((self._home / "tasks" / "records").glob("*")):
            if not folder.is_dir():
                continue
            records = Records(folder)
            for task_id in records.ids():
                record = records.read(task_id)
                if record is not None and task_id not in self._task_ids:
                    yield records, record


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
