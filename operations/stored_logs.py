"""Reads logs of tasks from the store that workers have filled (`log_store`)."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock
from typing import Final

from common.errors import SchedulerError
from common.log_store.process import LogStoreError, LogStoreProcess
from common.store.cluster import cluster_token
from operations.log_pieces import Piece
from operations.session import Session

_lock: Final = Lock()
_processes: Final[dict[tuple[str, str], LogStoreProcess]] = {}


class StoredLog:
    """The source of a log in the store, as far as it is there."""

    def __init__(
        self, process: LogStoreProcess, ids: tuple[int, int], *, patience: timedelta
    ) -> None:
        """`ids`: of the process instance and the attempt."""
        self._process = process
        self._ids = ids
        self._patience = patience

    def piece(self, start: int, most: int, wait_seconds: int = 0) -> Piece:
        """Return some bytes; it never waits for more."""
        del wait_seconds
        instance, task = self._ids
        found = self._process.read(instance, task, start=start, most=most, patience=self._patience)
        if found is None:
            raise LogStoreError("the log is not in the store of logs any more")
        return Piece(found.body, found.size, min(start, found.size))


def stored_log(
    session: Session, ids: tuple[int, int], tried: list[str], *, patience: timedelta
) -> StoredLog | None:
    """Return the log of an attempt in the store; else None, and `tried` is told why."""
    url = session.config.log_store
    if not url:
        return None
    try:
        process = _process(url, cluster_token(session.engine))
        instance, task = ids
        found = process.read(instance, task, start=0, most=0, patience=patience)
    except SchedulerError as error:
        tried.append(str(error))
        return None
    if found is None:
        tried.append("the store of logs (nothing of it is there)")
        return None
    return StoredLog(process, ids, patience=patience)


def _process(url: str, cluster: str) -> LogStoreProcess:
    """Return the one process for a store, which is started when it is first asked."""
    with _lock:
        key = url, cluster
        if key not in _processes:
            _processes[key] = LogStoreProcess(url, cluster=cluster)
        return _processes[key]


def close_stores() -> None:
    """End the processes; another one is started when a store is asked again."""
    with _lock:
        for each in _processes.values():
            each.close()
        _processes.clear()
