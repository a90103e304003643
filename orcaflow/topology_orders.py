"""A topology's task's end of its worker's socket: its work, what people want, and its reports.

Of the platform's own program for topologies, and no part of `orcaflow.topology`. Standard library
and `common.model` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.model.topologies import Code, Report, Wanted
from orcaflow.datasets import AttemptEndedError, WorkerAwayError, asked

__all__ = ["AttemptEndedError", "Work", "WorkerAwayError", "tell", "watch", "work"]

_ANSWER_SECONDS: Final = 10.0
"""A worker that is stopped, or swaps, is as one that is away."""
_WATCH_SECONDS: Final = 30.0
"""Longer than a worker has a question wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of this attempt. `report`: the last of any attempt, None before the first.

    `folder` is the topology's own, for what outlives an attempt; another generation has another.
    """

    name: str
    version: int
    generation: int
    code: Code
    wanted: Wanted
    report: Report | None
    folder: Path


def work() -> Work:
    """Return the work of this attempt, with the newest version of the code.

    It may be asked again, for a newer version. `AttemptEndedError` if this is no topology's attempt
    any more; `DatasetError` if another attempt runs the topology.
    """
    found = asked({"ask": "topology"})
    return Work(
        name=found["name"],
        version=found["version"],
        generation=found["generation"],
        code=Code.of(found["code"]),
        wanted=Wanted.of(found["wanted"]),
        report=None if found["report"] is None else Report.of(found["report"]),
        folder=Path(found["folder"]),
    )


def tell(report: Report | None) -> Wanted:
    """Tell how far this attempt has come, and return what people want; to be called often.

    It does not wait: `WorkerAwayError` if the worker, or its database, is away just now. Then the
    task goes on as it is. `AttemptEndedError` if it has to end.
    """
    told = None if report is None else report.document()
    found = asked(
        {"ask": "topology_report", "report": told},
        patience_seconds=0,
        answer_seconds=_ANSWER_SECONDS,
    )
    return Wanted.of(found["wanted"])


def watch(number: int) -> int:
    """Wait, some seconds at most, until people want something else than what has this number.

    Returns the number of what they want then. `WorkerAwayError` and `AttemptEndedError` as for
    `tell`.
    """
    found = asked(
        {"ask": "topology_watch", "number": number},
        patience_seconds=0,
        answer_seconds=_WATCH_SECONDS,
    )
    return number if found["outcome"] == "unchanged" else Wanted.of(found["wanted"]).number
