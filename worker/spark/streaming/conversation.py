"""A stream task's conversation with its supervisor, by its worker's socket."""

from __future__ import annotations

from common.model.streams.tasks import Orders, TaskReport
from orcaflow import stream_orders


class WorkerConversation:
    """The orders to this attempt, and its reports. `AttemptEndedError` if it has to end."""

    def tell(self, report: TaskReport) -> Orders | None:
        """Tell how far the task has come, and return the orders; None if nobody hears it."""
        try:
            return Orders.of(stream_orders.orders(report.document()))
        except stream_orders.WorkerAwayError:
            return None
