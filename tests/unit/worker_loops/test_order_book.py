"""Stream tasks ask often, and the tables are asked seldom."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.streams.tasks import OrderKind, Orders, TaskReport, TaskStatus
from common.runtime import metrics
from common.store.worker.stream_tasks import StreamWork
from tests.simulation.virtual_clock import VirtualClock
from worker.datasets.orders import OrderBook
from worker.loops.order_loop import OrderLoop

NODE = Node(address="w:1", incarnation=1)
READING = TaskReport(state=TaskStatus.READING, current={0: 5}, lag={0: 7})
PAUSE = Orders(version=1, command=OrderKind.PAUSE)


@dataclass
class Tables:
    """The rows of stream tasks, and the statements that were asked of them."""

    rows: dict[int, Orders] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    is_away: bool = False

    def work(self, node: Node, task_instance_id: int) -> StreamWork | None:
        self._ask("work")
        return None

    def orders(self, node: Node, task_instance_ids: Collection[int]) -> Mapping[int, Orders]:
        self._ask("orders")
        return {each: self.rows[each] for each in task_instance_ids if each in self.rows}

    def report(self, node: Node, task_instance_id: int, report: TaskReport) -> bool:
        self._ask(f"report {report.state}")
        return task_instance_id in self.rows

    def _ask(self, what: str) -> None:
        if self.is_away:
            raise ServiceUnreachableError("the tables are away")
        self.asked.append(what)


class Place:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.tables = Tables()
        self.node: Node | None = NODE
        self.book = OrderBook(self.tables, node=lambda: self.node, clock=self.clock)
        self.looks = 0
        self.loop = OrderLoop(self.book)
        self.look_at = 0.0
        self.book.cache.wake = self.hint

    def hint(self) -> None:
        self.look_at = self.clock.monotonic()

    def pass_seconds(
        self, seconds: int, *task_ids: int, report: TaskReport | None = READING
    ) -> None:
        """Have tasks ask twice a second, and the loop look when it wants to."""
        for _ in range(2 * seconds):
            self.clock.move_to(self.clock.elapsed + timedelta(seconds=0.5))
            for each in task_ids:
                self.book.orders(each, report)
            self.look()

    def look(self) -> None:
        now = self.clock.monotonic()
        if now >= self.look_at:
            self.look_at = now + self.loop.run_once().total_seconds()


@pytest.fixture
def place() -> Place:
    return Place()


def test_idle_tasks_cost_few_statements(place: Place) -> None:
    place.tables.rows = dict.fromkeys(range(4), Orders())
    place.pass_seconds(1, *range(4))
    place.tables.asked.clear()
    place.pass_seconds(60, *range(4))
    # One look for all every five seconds, and a sign of life of each every half minute.
    assert place.tables.asked.count("orders") == 12
    assert len(place.tables.asked) == 12 + 4 * 2
    place.pass_seconds(120)
    place.tables.asked.clear()
    place.pass_seconds(600)
    assert place.tables.asked == []


def test_orders_are_heard_at_a_hint_and_obedience_is_told_at_once(place: Place) -> None:
    place.tables.rows = {7: Orders()}
    assert place.book.orders(7, READING) == Orders()
    place.look()
    place.tables.rows[7] = PAUSE
    assert place.book.orders(7, READING) == Orders()
    place.hint()
    place.look()
    assert place.book.orders(7, READING) == PAUSE
    place.tables.asked.clear()
    place.book.orders(7, replace(READING, state=TaskStatus.PAUSED, obeyed=1))
    assert place.tables.asked == ["report PAUSED"]


def test_progress_is_written_every_two_seconds(place: Place) -> None:
    place.tables.rows = {7: Orders()}
    for offset in range(21):
        place.clock.move_to(timedelta(seconds=offset / 2))
        place.book.orders(7, replace(READING, current={0: offset}))
    assert place.tables.asked.count("report READING") == 6


def test_an_attempt_that_runs_here_no_more_is_told_so(place: Place) -> None:
    assert place.book.orders(7, None) is None
    place.tables.rows = {7: Orders(), 8: Orders()}
    assert (place.book.orders(7, READING), place.book.orders(8, READING)) == (Orders(), Orders())
    place.tables.rows.clear()
    # By its report, and by a look.
    assert place.book.orders(7, replace(READING, obeyed=1)) is None
    assert place.book.orders(8, READING) == Orders()
    place.look()
    assert place.book.orders(8, READING) is None


def test_nobody_is_told_to_end_while_the_worker_becomes_another(place: Place) -> None:
    place.tables.rows = {7: Orders()}
    assert place.book.orders(7, READING) == Orders()
    place.node = None
    with pytest.raises(ServiceUnreachableError):
        place.book.orders(7, READING)

    class Changing(Tables):
        """The rows are another incarnation's by now, and the worker is about to learn it."""

        def report(self, node: Node, task_instance_id: int, report: TaskReport) -> bool:
            place.node = replace(NODE, incarnation=2)
            return False

    place.node = NODE
    place.book = OrderBook(Changing(rows={7: Orders()}), node=lambda: place.node, clock=place.clock)
    with pytest.raises(ServiceUnreachableError):
        place.book.orders(7, READING)
    assert place.book.orders(7, None) == Orders()


def test_while_the_tables_are_away_tasks_go_on_with_their_orders(place: Place) -> None:
    place.tables.rows = {7: Orders()}
    place.book.orders(7, READING)
    place.tables.is_away = True
    place.clock.move_to(timedelta(seconds=1))
    assert place.book.orders(7, READING) == Orders()
    with pytest.raises(ServiceUnreachableError):
        place.book.orders(7, replace(READING, obeyed=1))
    with pytest.raises(ServiceUnreachableError):
        place.book.look()
    with pytest.raises(ServiceUnreachableError):
        place.book.work(7)
    place.tables.is_away = False
    assert place.book.orders(7, replace(READING, obeyed=1)) == Orders()


def test_records_are_counted_once_however_often_they_are_told(place: Place) -> None:
    def counted(kind: str) -> float:
        return metrics.REGISTRY.get_sample_value("ds_stream_records_total", {"kind": kind}) or 0

    place.tables.rows = {7: Orders(), 8: Orders()}
    before = counted("processed"), counted("unparseable")
    for total in (0, 10, 10, 25, 10**400, 25, 30):
        counts = {"processed": total, "unparseable": 2, "other": 5}
        place.book.orders(7, replace(READING, counts=counts))
    # Of this one another process of the worker has counted some.
    for total in (1000, 1003):
        place.book.orders(8, replace(READING, counts={"processed": total}))
    assert (counted("processed"), counted("unparseable")) == (before[0] + 33, before[1])
