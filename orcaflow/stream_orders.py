"""A stream task's end of its worker's socket: its work, the orders to it, and its reports.

Of the platform's own program for tasks of supervisors, and no part of `orcaflow.task`. All values
are documents of JSON, as `common.model.streams.tasks` reads and writes them. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orcaflow.datasets import AttemptEndedError, WorkerAwayError, asked

__all__ = ["AttemptEndedError", "Work", "WorkerAwayError", "orders", "work"]

_ANSWER_SECONDS: Final = 10.0
"""A worker that is stopped, or swaps, is as one that is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of this attempt. `spec` is the supervisor's specification, and may hold secrets.

    `secrets` holds the variables of the worker's environment that `spec` names and that are set.
    `connection` holds the properties of the connection that `spec` names, with secrets, or None.
    """

    name: str
    supervisor: str
    version: int
    group_id: int
    base_sequence: str
    assignment: Mapping[str, Any]
    spec: Mapping[str, Any]
    secrets: Mapping[str, str]
    connection: Mapping[str, str] | None
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
        secrets=found["secrets"],
        connection=found["connection"],
        orders=found["orders"],
    )


def orders(report: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Tell how far this attempt has come, and return the orders to it; to be called often.

    It does not wait: `WorkerAwayError` if the worker, or its database, is away just now. Then the
    task goes on with the orders that it has. `AttemptEndedError` if it has to end.
    """
    request = {"ask": "orders"} if report is None else {"ask": "orders", "report": report}
    found = asked(request, patience_seconds=0, answer_seconds=_ANSWER_SECONDS)
    told: Mapping[str, Any] = found["orders"]
    return told
