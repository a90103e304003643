"""The orders to the stream tasks of this worker, and their reports, as its tasks exchange them.

Tasks ask twice a second and are answered from memory. A report is written when it says something
new: a state or an order obeyed at once, mere progress every two seconds, and nothing new every half
minute, so that people see that the task lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Lock
from typing import Final, Protocol

from common.clock import Clock
from common.model.cluster import Node
from common.model.streams.tasks import RECORD_COUNTS, Orders, TaskReport
from common.runtime import metrics
from common.store.worker.stream_tasks import StreamWork
from worker.datasets.order_cache import OrderCache

_PROGRESS_SECONDS: Final = 2.0
_UNCHANGED_SECONDS: Final = 30.0
_ABSURD: Final = 2**53
"""More records than a task reads; a process of a tenant may report anything."""


class StreamTasks(Protocol):
    """`common.store.worker.stream_tasks.PostgresStreamTasks`."""

    def work(self, node: Node, task_instance_id: int) -> StreamWork | None: ...

    def orders(self, node: Node, task_instance_ids: Collection[int]) -> Mapping[int, Orders]: ...

    def report(self, node: Node, task_instance_id: int, report: TaskReport) -> bool: ...


@dataclass(slots=True, kw_only=True)
class _Page:
    """The reports of an attempt."""

    written: TaskReport | None = None
    written_at: float = 0.0
    counted: Mapping[str, int] | None = None
    """The counts of records of the last report, from which the metrics go on."""


class OrderBook:
    """Answers from any thread; one thread, a loop's, calls `look`."""

    def __init__(
        self, store: StreamTasks, *, node: Callable[[], Node | None], clock: Clock
    ) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self._pages: dict[int, _Page] = {}
        self.cache = OrderCache(store.orders, node=node, clock=clock)

    def work(self, task_id: int) -> StreamWork | None:
        """Return the work of an attempt; None if it is no stream task that runs here."""
        node = self.cache.trusted()
        found = self._store.work(node, task_id)
        if found is None:
            self.cache.check_standing(node)
        return found

    def orders(self, task_id: int, report: TaskReport | None) -> Orders | None:
        """Take note of a report; return the orders, None if the attempt has to end.

        `ServiceUnreachableError` if that can't be known just now.
        """
        orders = self.cache.orders(task_id)
        if orders is None or report is None:
            return orders
        with self._lock:
            page = self._pages.setdefault(task_id, _Page())
        _count(page, report)
        now = self._clock.monotonic()
        if _says_more(page, report, now):
            node = self.cache.trusted()
            if not self._store.report(node, task_id, report):
                self.cache.check_standing(node)
                self.cache.end(task_id)
                return None
            page.written, page.written_at = report, now
        return orders

    def look(self) -> timedelta:
        """Look for orders to all tasks that have asked lately; return how long to rest."""
        rest = self.cache.look()
        with self._lock:
            for task_id in [each for each in self._pages if each not in self.cache]:
                del self._pages[task_id]
        return rest


def _count(page: _Page, report: TaskReport) -> None:
    """Add the records since the last report to the metrics."""
    # The first report of a task has none; that of one that another worker process has known, some.
    before = report.counts if page.counted is None else page.counted
    for kind in RECORD_COUNTS:
        more = report.counts.get(kind, 0) - before.get(kind, 0)
        if 0 < more < _ABSURD:
            metrics.stream_records.labels(kind=kind).inc(more)
    page.counted = report.counts


def _says_more(page: _Page, report: TaskReport, now: float) -> bool:
    """Return True if a report has to be written now."""
    before = page.written
    if before is None or _but_progress(report) != _but_progress(before):
        return True
    patience = _UNCHANGED_SECONDS if report == before else _PROGRESS_SECONDS
    return now >= page.written_at + patience


def _but_progress(report: TaskReport) -> TaskReport:
    return replace(report, current={}, lag={}, counts={}, errors={})
