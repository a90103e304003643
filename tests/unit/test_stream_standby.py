"""A stream task without work: it asks for some, until it gets it or is to stop."""

from __future__ import annotations

from common.model.streams.tasks import OrderKind, Orders, TaskReport, TaskStatus
from worker.spark.streaming.standby import awaited_work


class Supervisor:
    """Gives orders in turn, the last one again and again; its worker is away for None."""

    def __init__(self, *orders: Orders | None) -> None:
        self._orders = list(orders)
        self.reports: list[TaskReport] = []

    def tell(self, report: TaskReport) -> Orders | None:
        self.reports.append(report)
        return self._orders.pop(0) if len(self._orders) > 1 else self._orders[0]


def test_a_standby_says_that_it_is_one_and_takes_the_first_work() -> None:
    supervisor = Supervisor(None, Orders())
    work = iter((None, "work"))
    assert awaited_work(supervisor, lambda: next(work)) == "work"
    assert {each.state for each in supervisor.reports} == {TaskStatus.STANDBY}


def test_a_standby_that_is_stopped_asks_for_no_work() -> None:
    supervisor = Supervisor(Orders(version=1, command=OrderKind.STOP))
    assert awaited_work(supervisor, lambda: "work") is None
