"""Looks for orders to this worker's tasks; loops with a step and no thread of their own."""

from __future__ import annotations

from datetime import timedelta

from worker.datasets.orders import OrderBook
from worker.datasets.topologies import TopologyDesk


class OrderLoop:
    """One statement now and then, and at once after a hint; none while no stream task runs."""

    name = "orders"

    def __init__(self, book: OrderBook) -> None:
        self._book = book

    def run_once(self) -> timedelta:
        """Look once; `ServiceUnreachableError` passes through."""
        return self._book.look()


class TopologyOrderLoop:
    """The same for topologies."""

    name = "topology-orders"

    def __init__(self, desk: TopologyDesk) -> None:
        self._desk = desk

    def run_once(self) -> timedelta:
        """Look once; `ServiceUnreachableError` passes through."""
        return self._desk.look()
