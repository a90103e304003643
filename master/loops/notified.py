"""Notified reports of ended attempts, and the runs that ignore them until they are reloaded.

Any role of the database can forge a notification. A notified report therefore takes effect only if
the row confirms it. A *doubted* run had a step with a notified report refused. It ignores notified
reports until it is reloaded, so a flood of forged reports can't stop its progress. Used by
`master.loops.run_worker`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeVar

from common.model.instances import TaskReport
from common.model.states import TaskState
from master.engine.run import ProcessRun

log = logging.getLogger(__name__)

_Item = TypeVar("_Item")

_MOST: Final = 100_000
"""The limit of kept reports; the loop finds others in the rows."""


class NotifiedReports:
    """The notified reports of a run worker. Other threads may only call `add`."""

    def __init__(self) -> None:
        # `deque.append` and `popleft` are atomic.
        self._reports: deque[TaskReport] = deque()
        # Runs with a notified report among the events of this pass.
        self._hinted: set[int] = set()
        self._doubted: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._reports)

    def add(self, report: TaskReport) -> bool:
        """Keep a report; return False if the caller must read the rows instead."""
        if not report.state.is_finished or len(self._reports) >= _MOST:
            return False
        self._reports.append(report)
        return True

    def forget(self) -> None:
        """Drop all reports; no run is doubted any longer."""
        self._reports.clear()
        self._doubted.clear()

    def take(
        self, runs: Mapping[int, ProcessRun], *, most: int
    ) -> tuple[list[TaskReport], list[int]]:
        """Return the reports that a save can confirm, and the attempts whose rows must be read.

        A save can confirm a success without output, because it compares all of that report. It
        compares neither reasons nor outputs.
        """
        self._hinted.clear()
        hints: list[TaskReport] = []
        to_read: list[int] = []
        for report in drain(self._reports, most):
            if report.state is not TaskState.SUCCESS or report.has_output:
                to_read.append(report.task_instance_id)
            elif self._may_be_true(report, runs.get(report.process_instance_id)):
                self._hinted.add(report.process_instance_id)
                hints.append(report)
        return hints, to_read

    def loaded(self, run_ids: Iterable[int]) -> None:
        """Accept notified reports again for runs that were loaded."""
        self._doubted.difference_update(run_ids)

    def doubt(self, run_id: int) -> bool:
        """Doubt a run after a refused step; False if no notified report can be the reason."""
        if run_id not in self._hinted:
            return False
        log.warning("notified report was refused", extra={"process_instance_id": run_id})
        self._hinted.discard(run_id)
        self._doubted.add(run_id)
        return True

    def _may_be_true(self, report: TaskReport, run: ProcessRun | None) -> bool:
        """Return False for a report that does not match the run in memory."""
        if run is None or report.process_instance_id in self._doubted:
            return False
        task = run.tasks.get(report.name)
        return task is not None and task.attempt == report.attempt


def drain(queue: deque[_Item], most: int | None = None) -> list[_Item]:
    """Remove and return the items that a queue has now, `most` of them at most."""
    return [queue.popleft() for _ in islice(range(len(queue)), most)]
