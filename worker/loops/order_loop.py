"""Looks for orders to this worker's stream tasks; a loop with a step and no thread of its own."""

from __future__ import annotations

from datetime import timedelta

from worker.datasets.orders import OrderBook


class OrderLoop:
    """One statement now and then, and at once after a hint; none while no stream task runs."""

    name = "orders"

    def __init__(self, book: OrderBook) -> None:
        self._book = book

    def run_once(self) -> timedelta:
        """Look once; `ServiceUnreachableError` passes through."""
        return self._book.look()
