"""Failure reasons: one word for each cause, for which a retry policy can ask.

The sentence for people stands beside it, in the row's `reason`. The names are stored
(`t_ds_task_instance.failure_reason`) and written in definitions (`retryOn`), so they stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from common.model.states import TaskState


class FailureReason(StrEnum):
    """The kinds of failure that an author may want to treat differently."""

    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    """A Java heap, a container's limit or the host's memory was too small."""
    FETCH_FAILED = "FETCH_FAILED"
    """Shuffle data was lost with an executor; another attempt may succeed."""
    EXECUTOR_LOST = "EXECUTOR_LOST"
    """Executors died too often, for another cause than memory or a fetch."""
    ANALYSIS_ERROR = "ANALYSIS_ERROR"
    """Spark refused the query: a table, a column, a type, SQL that can't be parsed."""
    PYTHON_ERROR = "PYTHON_ERROR"
    """The author's Python raised, on the driver or in a UDF; or could not be compiled."""
    DATA_ERROR = "DATA_ERROR"
    """Spark could not read or convert data: a missing path, a corrupt file, an overflow."""
    DATA_QUALITY = "DATA_QUALITY"
    """A rule of a DATA_QUALITY task that blocks was broken."""
    UNSUPPORTED = "UNSUPPORTED"
    """The code needs a private driver (the JVM, RDDs): profile `classic`."""
    SUBMIT_FAILED = "SUBMIT_FAILED"
    """No application was started: the master, a jar, a queue, the Spark server."""
    SERVER_LOST = "SERVER_LOST"
    """The Spark server died or ended the session under the task."""
    KILLED = "KILLED"
    """A person killed the application at its manager; a stop by Orcaflow is no failure."""
    NO_SPACE = "NO_SPACE"
    """The volume of the log or of the attempt's directory was full when it failed."""
    TIMED_OUT = "TIMED_OUT"
    """The task's own time-out."""
    CONFIGURATION = "CONFIGURATION"
    """The task can't be run as it is written: its parameters, its profile, its files."""
    NOT_GRANTED = "NOT_GRANTED"
    """The task's project may not use an object, such as a tenant, data source or dataset."""
    CONDITION_FALSE = "CONDITION_FALSE"
    """The expression of a CONDITIONS task is false, so its other branch was taken."""
    SUB_PROCESS_FAILED = "SUB_PROCESS_FAILED"
    """The process instance that a SUB_PROCESS task began has failed."""
    UPSTREAM_FAILED = "UPSTREAM_FAILED"
    """A run or a task that a DEPENDENT task waits for has failed, or will not come."""
    EXIT_CODE = "EXIT_CODE"
    """The process ended with a code other than 0, and nothing else is known."""


UNEXPLAINED: Final[Mapping[int, FailureReason]] = {
    TaskState.FAILURE: FailureReason.EXIT_CODE,
    TaskState.KILL: FailureReason.KILLED,
}
"""The failure reason when nothing is known but the attempt's state."""
