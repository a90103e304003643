"""A stream task's end of its worker's socket: its work, the orders to it, and its reports.

Of the platform's own program for tasks of supervisors, and no part of `orcaflow.task`. All values
are documents of JSON, as `common.model.streams.tasks` reads and writes them. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orcaflow.datasets import AttemptEndedError, WorkerAwayError, asked

__all__ = ["AttemptEndedError", "Work", "WorkerAwayError", "orders", "report", "work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of this attempt. `spec` is the supervisor's specification, and may hold secrets."""

    name: str
    supervisor: str
    version: int
    group_id: int
    base_sequence: str
    assignment: Mapping[str, Any]
    spec: Mapping[str, Any]
    orders: Mapping[str, Any]


def work() -> Work:
    """Return the work of this attempt; `AttemptEndedError` if it is no stream's task any more."""
    found = asked({"ask": "work"})
    return Work(
        name=found["name"],
        supervisor=found["supervisor"],
        version=found["version"],
        group_id=found["group_id"],
        base_sequence=found["base_sequence"],
        assignment=found["assignment"],
        spec=found["spec"],
        orders=found["orders"],
    )


def orders() -> Mapping[str, Any]:
    """Return the orders to this attempt; to be called often.

    It does not wait: `WorkerAwayError` if nobody answers just now, and then the task goes on with
    the orders that it has. `AttemptEndedError` if it has to end.
    """
    found = asked({"ask": "orders"}, patience_seconds=0)
    told: Mapping[str, Any] = found["orders"]
    return told


def report(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tell how far this attempt has come, and return the orders to it.

    Waits while the worker or its database is away; `AttemptEndedError` if the attempt has to end.
    """
    found = asked({"ask": "orders", "report": document})
    told: Mapping[str, Any] = found["orders"]
    return told
