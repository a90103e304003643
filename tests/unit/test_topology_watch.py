"""The watch of a topology's task: it has the task ask, and survives whatever the worker does."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from orcaflow.datasets import AttemptEndedError
from worker.spark.topology import watch as module
from worker.spark.topology.watch import Watch


class Worker:
    """Answers each question with what a test puts."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[int] = SimpleQueue()
        self.answers: SimpleQueue[int | Exception | None] = SimpleQueue()

    def watch(self, number: int) -> int | None:
        self.asked.put(number)
        answer = self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_task_is_woken_by_each_change_and_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REST_SECONDS", 0.0)
    worker = Worker()
    woken: SimpleQueue[int] = SimpleQueue()
    with Watch(worker.watch, 3, lambda: woken.put(0)):
        for answer, asks_next in ((3, 3), (None, 3), (4, 4), (9, 9), (0, 0)):
            worker.asked.get()
            worker.answers.put(answer)
            assert worker.asked.get() == asks_next
            worker.asked.put(asks_next)
        assert woken.qsize() == 3
        worker.asked.get()
        worker.answers.put(AttemptEndedError("ended"))
        for _ in range(4):
            woken.get()
    assert worker.asked.empty()


def test_a_watch_that_is_over_asks_no_more() -> None:
    worker = Worker()
    watch = Watch(worker.watch, 3, lambda: None)
    with watch:
        worker.asked.get()
    worker.answers.put(4)
    watch.join()
    assert worker.asked.empty()
