"""A stream task's conversation with its supervisor, by its worker's socket."""

from __future__ import annotations

from contextlib import suppress

from common.model.streams.tasks import Orders, TaskReport
from orcaflow import stream_orders


class WorkerConversation:
    """The orders to this attempt, and its reports. `AttemptEndedError` if it has to end."""

    def __init__(self) -> None:
        self._heard = Orders()

    def orders(self, known: int) -> Orders | None:
        """Return the last orders if their version is above `known`; never waits."""
        with suppress(stream_orders.WorkerAwayError):
            self._heard = Orders.of(stream_orders.orders())
        return self._heard if self._heard.version > known else None

    def report(self, report: TaskReport) -> None:
        """Tell how far the task has come; waits while the worker is away."""
        self._heard = Orders.of(stream_orders.report(report.document()))
