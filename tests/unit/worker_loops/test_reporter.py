"""The loop that reports ends: it keeps them until the tables answer."""

from __future__ import annotations

from functools import partial

import pytest

from common.errors import ServiceUnreachableError
from common.model.failures import FailureReason
from common.model.states import TaskState
from common.runtime import metrics
from common.store.worker.ports import AttemptEnd
from tests.unit.worker_loops.place import Place


def test_failures_are_counted_by_their_reason_once_they_stand_in_the_tables(place: Place) -> None:
    place.join()
    task = place.submit()
    place.claim()
    end = AttemptEnd(
        task_instance_id=task,
        state=TaskState.FAILURE,
        end_time=place.clock.now(),
        failure=FailureReason.FETCH_FAILED,
    )
    labels = {"reason": "FETCH_FAILED"}
    before = metrics.REGISTRY.get_sample_value("ds_task_failures_total", labels) or 0
    for _ in range(2):
        # The tables refuse the second one, because the attempt has ended.
        place.worker.reporter.ended(end)
        place.worker.reporter.run_once()
    assert metrics.REGISTRY.get_sample_value("ds_task_failures_total", labels) == before + 1


def test_an_end_and_a_start_wake_the_reporter(place: Place) -> None:
    woken: list[str] = []
    for loop in place.worker.loops:
        place.worker.wakes.by_name[loop.name] = partial(woken.append, loop.name)
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    woken.clear()
    place.worker.reporter.started(task, 17, 1.0)
    assert woken == ["report"]
    place.attempts.end(task)
    # The slot that is free again wakes the claim loop.
    assert woken == ["report", "report", "claim"]


def test_an_end_is_kept_until_the_tables_answer_1477(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.attempts.end(task)
    place.no_answer("report", "before")
    with pytest.raises(ServiceUnreachableError):
        place.worker.reporter.run_once()
    assert place.worker.reporter.unreported() == {task}
    assert place.attempts.forgotten == []
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.SUCCESS
    assert place.attempts.forgotten == [task]


def test_an_end_whose_answer_was_lost_is_told_again_and_changes_nothing(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.attempts.end(task)
    place.no_answer("report", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.reporter.run_once()
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.SUCCESS
    assert place.attempts.forgotten == [task]


def test_an_end_of_an_attempt_that_was_given_to_others_is_dropped(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.database.update(place.database.tasks, task, worker_incarnation=99)
    place.attempts.end(task)
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.RUNNING
    assert place.worker.reporter.unreported() == frozenset()
