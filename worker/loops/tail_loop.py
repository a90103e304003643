"""Keeps the last words of failed attempts in the tables, for when this host is gone.

After their report, so that no run waits for it, and for failures alone: a success costs nothing. A
worker that dies in between has not kept them. A loop with a step, and no thread of its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from common.log_files import open_by_ids
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, LogTail, TaskStore

_TAIL_BYTES: Final = 16 * 1024
_MOST_WAITING: Final = 10_000
_AT_ONCE: Final = 50
_IDLE: Final = timedelta(hours=1)
_BREATH: Final = timedelta(milliseconds=100)


class TailLoop:
    """Takes reported ends by `reported`, from any thread."""

    name = "tails"

    def __init__(
        self, store: TaskStore, *, logs: Path, wake: Callable[[], None] = lambda: None
    ) -> None:
        """`logs`: the folder of all logs of this home."""
        self._store = store
        self._logs = logs
        self._wake = wake
        self._waiting: deque[int] = deque(maxlen=_MOST_WAITING)

    def reported(self, ends: Sequence[AttemptEnd]) -> None:
        """Have the last words kept of those of these attempts that have failed."""
        failed = [each.task_instance_id for each in ends if each.state is TaskState.FAILURE]
        if failed:
            self._waiting.extend(failed)
            self._wake()

    def run_once(self) -> timedelta:
        """Keep some; return the time to rest. `ServiceUnreachableError` passes through."""
        ids = [self._waiting[place] for place in range(min(_AT_ONCE, len(self._waiting)))]
        if not ids:
            return _IDLE
        places = self._store.log_places(ids)
        tails = [
            tail
            for task, instance in sorted(places.items())
            if (tail := self._tail(instance, task))
        ]
        if tails:
            self._store.keep_tails(tails)
        # Only now: what an outage kept from being written is tried again.
        for _ in ids:
            self._waiting.popleft()
        return _BREATH if self._waiting else _IDLE

    def _tail(self, process_instance_id: int, task_instance_id: int) -> LogTail | None:
        try:
            file = open_by_ids(self._logs, process_instance_id, task_instance_id)
        except OSError:
            return None
        try:
            size = os.fstat(file).st_size
            tail = os.pread(file, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        except OSError:
            return None
        finally:
            os.close(file)
        return LogTail(task_instance_id=task_instance_id, size=size, tail=tail)
