"""The orders to the stream tasks of this worker, and their reports, as its tasks exchange them.

Tasks ask twice a second and are answered from memory; one statement for all of them looks for
orders every few seconds, and at once when a master says that there are some. A report is written
when it says something new: a state or an order obeyed at once, mere progress every two seconds,
and nothing new every half minute, so that people see that the task lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Lock
from typing import Final, Protocol

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.streams.tasks import RECORD_COUNTS, Orders, TaskReport
from common.runtime import metrics
from common.store.worker.stream_tasks import StreamWork

_LOOK: Final = timedelta(seconds=5)
_LONGEST_REST: Final = timedelta(minutes=1)
_PROGRESS_SECONDS: Final = 2.0
_UNCHANGED_SECONDS: Final = 30.0
_FORGOTTEN_SECONDS: Final = 60.0
_ABSURD: Final = 2**53
"""More records than a task reads; a process of a tenant may report anything."""


class StreamTasks(Protocol):
    """`common.store.worker.stream_tasks.PostgresStreamTasks`."""

    def work(self, node: Node, task_instance_id: int) -> StreamWork | None: ...

    def orders(self, node: Node, task_instance_ids: Collection[int]) -> Mapping[int, Orders]: ...

    def report(self, node: Node, task_instance_id: int, report: TaskReport) -> bool: ...


@dataclass(slots=True, kw_only=True)
class _Page:
    """One attempt as it is known. `orders`: None once it does not run here any more."""

    orders: Orders | None
    asked_at: float
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
        self._node = node
        self._clock = clock
        self._lock = Lock()
        self._pages: dict[int, _Page] = {}
        self.wake: Callable[[], object] = lambda: None
        """Called when there is another task to look for."""

    def work(self, task_id: int) -> StreamWork | None:
        """Return the work of an attempt; None if it is no stream task that runs here."""
        node = self._trusted()
        found = self._store.work(node, task_id)
        if found is None:
            self._check_standing(node)
        return found

    def orders(self, task_id: int, report: TaskReport | None) -> Orders | None:
        """Take note of a report; return the orders, None if the attempt has to end.

        `ServiceUnreachableError` if that can't be known just now.
        """
        node = self._trusted()
        now = self._clock.monotonic()
        page = self._pages.get(task_id)
        if page is None:
            found = self._store.orders(node, [task_id]).get(task_id)
            if found is None:
                self._check_standing(node)
                return None
            with self._lock:
                page = self._pages.setdefault(task_id, _Page(orders=found, asked_at=now))
            # Orders may have come since, and their hint.
            self.wake()
        page.asked_at = now
        if page.orders is not None and report is not None:
            _count(page, report)
        if page.orders is not None and report is not None and _says_more(page, report, now):
            if not self._store.report(node, task_id, report):
                self._check_standing(node)
                page.orders = None
            else:
                page.written, page.written_at = report, now
        return page.orders

    def look(self) -> timedelta:
        """Look for orders to all tasks that have asked lately; return how long to rest."""
        now = self._clock.monotonic()
        with self._lock:
            for task_id, page in list(self._pages.items()):
                if page.asked_at + _FORGOTTEN_SECONDS < now:
                    del self._pages[task_id]
            asked = {task_id: page for task_id, page in self._pages.items() if page.orders}
        node = self._node()
        if not asked or node is None:
            return _LOOK if asked else _LONGEST_REST
        found = self._store.orders(node, asked)
        if self._node() != node:
            # The rows may have changed hands meanwhile.
            return timedelta()
        for task_id, page in asked.items():
            page.orders = found.get(task_id)
        return _LOOK

    def _check_standing(self, node: Node) -> None:
        """Raise if rows have changed hands: whoever is not there may still run here."""
        if self._node() != node:
            raise ServiceUnreachableError("this worker has just become another incarnation")

    def _trusted(self) -> Node:
        node = self._node()
        if node is None:
            raise ServiceUnreachableError("this worker has no session with ZooKeeper just now")
        return node


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
