"""Adds up what Spark says of jobs and stages: how far they are, what they moved, what they took.

Pure. Both kinds of session give the same documents, those of Spark's REST API, again and again and
in any order; each job and stage counts as it was seen last. Spark forgets old ones, this does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from common.model.spark import Progress

_SUMS: Final[Mapping[str, str]] = {
    "tasks_running": "numActiveTasks",
    "tasks_done": "numCompleteTasks",
    "tasks_failed": "numFailedTasks",
    "rows_in": "inputRecords",
    "bytes_in": "inputBytes",
    "rows_out": "outputRecords",
    "bytes_out": "outputBytes",
    "spill_bytes": "diskBytesSpilled",
    "shuffle_read_bytes": "shuffleReadBytes",
    "shuffle_write_bytes": "shuffleWriteBytes",
    "run_ms": "executorRunTime",
    "cpu_ns": "executorCpuTime",
}
_JOB_STATES: Final[Mapping[str, str]] = {
    "RUNNING": "jobs_running",
    "SUCCEEDED": "jobs_done",
    "FAILED": "jobs_failed",
}
_STAGE_STATES: Final[Mapping[str, str]] = {
    "ACTIVE": "stages_running",
    "COMPLETE": "stages_done",
    "FAILED": "stages_failed",
}
_SETTLED: Final = frozenset({"COMPLETE", "FAILED", "SKIPPED", "SUCCEEDED"})

_Counts = dict[str, int]


class Tally:
    """The sum of an application's jobs and stages so far, or of one session's part of it."""

    def __init__(self) -> None:
        self._settled: _Counts = {}
        self._settled_keys: set[tuple[str, int, int]] = set()
        self._open: dict[tuple[str, int, int], _Counts] = {}
        self._heap_bytes = 0

    def see_job(self, job: Mapping[str, Any]) -> None:
        """A job as Spark describes it."""
        status = str(job.get("status", ""))
        counts = {_JOB_STATES[status]: 1} if status in _JOB_STATES else {}
        self._see(("job", _count(job, "jobId"), 0), status, counts)

    def see_stage(self, stage: Mapping[str, Any]) -> None:
        """A stage as Spark describes it, or as much of that as is known."""
        status = str(stage.get("status", ""))
        counts = {name: _count(stage, key) for name, key in _SUMS.items()}
        if status in _STAGE_STATES:
            counts[_STAGE_STATES[status]] = 1
        if status == "FAILED":
            # Its tasks are done again by its next attempt, where they count.
            counts["tasks"] = counts["tasks_done"]
        elif status != "SKIPPED":
            counts["tasks"] = _count(stage, "numTasks")
        self._see(("stage", _count(stage, "stageId"), _count(stage, "attemptId")), status, counts)
        peaks = stage.get("peakExecutorMetrics")
        if isinstance(peaks, Mapping):
            self.see_heap(_count(peaks, "JVMHeapMemory"))

    def see_heap(self, used_bytes: int) -> None:
        """Note the heap that one executor uses now, or used at most."""
        self._heap_bytes = max(self._heap_bytes, used_bytes)

    def is_settled(self, stage_id: int) -> bool:
        """True if nothing more is to be heard of the first attempt of a stage."""
        return ("stage", stage_id, 0) in self._settled_keys

    @property
    def progress(self) -> Progress:
        """The progress so far."""
        total = self._total()
        named: dict[str, Any] = {name: total.get(name, 0) for name in _PROGRESS}
        return Progress(**named, executor_memory_bytes=self._heap_bytes)

    @property
    def core_seconds(self) -> float:
        """For how long tasks held a core."""
        return self._total().get("run_ms", 0) / 1e3

    @property
    def cpu_seconds(self) -> float:
        """For how long tasks kept one busy, in Java; a UDF's Python is not in it."""
        return self._total().get("cpu_ns", 0) / 1e9

    def _see(self, key: tuple[str, int, int], status: str, counts: _Counts) -> None:
        if key in self._settled_keys:
            return
        self._open[key] = counts
        if status in _SETTLED:
            self._settled_keys.add(key)
            _add(self._settled, self._open.pop(key))

    def _total(self) -> _Counts:
        total = dict(self._settled)
        for counts in list(self._open.values()):
            _add(total, counts)
        return total


_PROGRESS: Final = (
    "jobs_running",
    "jobs_done",
    "jobs_failed",
    "stages_running",
    "stages_done",
    "stages_failed",
    "tasks",
    *(name for name in _SUMS if name not in ("run_ms", "cpu_ns")),
)


def _add(total: _Counts, counts: _Counts) -> None:
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count


def _count(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    return value if isinstance(value, int) and value > 0 else 0
