"""The attempts that this worker has accepted and whose end has not been reported yet.

An attempt stands here before it has a process, and until the report of its end; that makes it the
part of the supervisor's knowledge that other threads may read, under one lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from common.clock import Clock
from common.runtime import metrics
from common.store.worker.ports import AttemptEnd
from worker.attempts import Ended
from worker.processes.results import REASON_CHARS, Result

log = logging.getLogger(__name__)

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The facts that are known of every attempt; the type is for the metrics."""

    task_type: str = _UNKNOWN
    complement: bool = False
    execute_path: str = ""


class AcceptedAttempts:
    """The table of accepted attempts, and the one place that reports ends."""

    def __init__(self, *, ended: Ended, clock: Clock) -> None:
        self._report_ended = ended
        self._clock = clock
        self._lock = Lock()
        self._accepted: dict[int, _Accepted] = {}
        self._facts_files: dict[int, Path] = {}
        self._unlogged: list[AttemptEnd] = []

    @property
    def number_unlogged(self) -> int:
        """The reported ends that no line of the log tells of yet."""
        return len(self._unlogged)

    def add(
        self,
        task_instance_id: int,
        *,
        task_type: str = _UNKNOWN,
        complement: bool = False,
        execute_path: str = "",
    ) -> None:
        """Count an attempt as running from now on."""
        with self._lock:
            self._accepted[task_instance_id] = _Accepted(task_type, complement, execute_path)

    def add_facts_file(self, task_instance_id: int, path: Path | None) -> None:
        """Note the file in which an attempt may tell of its Spark application, if it has one."""
        if path is not None:
            with self._lock:
                self._facts_files[task_instance_id] = path

    def running(self) -> frozenset[int]:
        """Return the attempts whose end has not been reported."""
        with self._lock:
            return frozenset(self._accepted)

    def uid_of(self, task_instance_id: int) -> int | None:
        """Return the uid of a running attempt; None if its directory does not exist.

        The owner of the directory is the attempt's account, even if a former incarnation started
        the attempt.
        """
        with self._lock:
            path = self._accepted.get(task_instance_id, _Accepted()).execute_path
        try:
            return os.lstat(path).st_uid
        except OSError:
            return None

    def __len__(self) -> int:
        """The number of attempts whose end has not been reported."""
        return len(self._accepted)

    def yielding(self) -> frozenset[int]:
        """Return those of `running` that belong to complements."""
        with self._lock:
            return frozenset(key for key, each in self._accepted.items() if each.complement)

    def facts_files(self) -> Mapping[int, Path]:
        """Return the facts file of each attempt that has one."""
        with self._lock:
            return dict(self._facts_files)

    def report(self, task_instance_id: int, result: Result, *, pid: int | None) -> None:
        """Report the end of an attempt, which is not counted from then on."""
        reason = result.reason
        if reason is not None:
            # PostgreSQL takes no NUL; a reason may quote what a task's author wrote.
            reason = reason.replace("\0", "\\0")[:REASON_CHARS]
        with self._lock:
            task_type = self._accepted.pop(task_instance_id, _Accepted()).task_type
            self._facts_files.pop(task_instance_id, None)
        end = AttemptEnd(
            task_instance_id=task_instance_id,
            state=result.state,
            end_time=self._clock.now(),
            exit_code=result.exit_code,
            pid=pid,
            reason=reason,
            var_pool=result.var_pool,
            facts=result.facts,
            quality=result.quality,
            failure=result.failure,
        )
        metrics.task_attempts.labels(state=result.state.name, type=task_type).inc()
        self._unlogged.append(end)
        # Last: the thread that reports waits for the interpreter until this one rests.
        self._report_ended(end)

    def log_ends(self) -> None:
        """Log the ends that have been reported; when nothing else is to be done."""
        ends, self._unlogged = self._unlogged, []
        for end in ends:
            log.info(
                "attempt ended",
                extra={
                    "task_instance_id": end.task_instance_id,
                    "state": end.state.name,
                    "exit_code": end.exit_code,
                    "reason": end.reason,
                },
            )
