"""The loop that reports ends: it keeps them until the tables answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from common.errors import ServiceUnreachableError
from common.model.failures import FailureReason
from common.model.spark import SparkFacts
from common.model.states import TaskState
from common.runtime import metrics
from common.store.worker.ports import AttemptEnd, ReportRefusedError
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


def test_an_end_and_a_start_wake_the_reporter() -> None:
    place = Place(slots=1)
    woken: list[str] = []
    for loop in place.worker.loops:
        place.worker.wakes.by_name[loop.name] = partial(woken.append, loop.name)
    place.join()
    task = place.submit()
    place.submit()
    place.worker.claims.run_once()
    woken.clear()
    place.worker.reporter.started(task, 17, 1.0)
    assert woken == ["report"]
    place.attempts.end(task)
    # The slot that is free again wakes the claim loop, for something waits for it.
    assert woken == ["report", "report", "claim"]


def a_worker_with(attempts: int) -> tuple[Place, list[int]]:
    """Run so many attempts."""
    place = Place(slots=20, batch=20)
    place.join()
    tasks = [place.submit() for _ in range(attempts)]
    place.worker.claims.run_once()
    assert place.attempts.started == tasks
    return place, tasks


def test_ends_that_come_fast_are_written_together() -> None:
    place, (first, second, third, *_) = a_worker_with(12)
    place.attempts.end(first)
    place.worker.reporter.run_once()
    assert place.state(first) is TaskState.SUCCESS
    woken: list[None] = []
    place.worker.wakes.by_name["report"] = lambda: woken.append(None)
    place.attempts.end(second)
    assert woken == [None]
    rest = place.worker.reporter.run_once()
    assert timedelta() < rest <= timedelta(milliseconds=10)
    place.attempts.end(third)
    # The loop looks again so soon that it need not be woken.
    assert woken == [None]
    assert {place.state(second), place.state(third)} == {TaskState.RUNNING}
    place.pass_time(0.01)
    place.worker.reporter.run_once()
    assert {place.state(second), place.state(third)} == {TaskState.SUCCESS}
    place.pass_time(0.01)
    place.attempts.end(place.attempts.started[3])
    assert woken == [None, None]


def test_ends_gather_longer_while_attempts_wait_for_their_start() -> None:
    place, (first, second, third, *_) = a_worker_with(12)
    place.attempts.waits = 20
    for task in (first, second):
        place.attempts.end(task)
        place.worker.reporter.run_once()
    place.pass_time(0.03)
    place.attempts.end(third)
    rest = place.worker.reporter.run_once()
    assert timedelta() < rest <= timedelta(milliseconds=10)
    # Now those that wait would no longer keep their successors waiting.
    place.attempts.waits = 10
    place.worker.reporter.run_once()
    assert {place.state(second), place.state(third)} == {TaskState.SUCCESS}


def test_an_end_beside_which_few_attempts_run_is_written_at_once() -> None:
    place, tasks = a_worker_with(8)
    for task in tasks:
        place.attempts.end(task)
        place.worker.reporter.run_once()
        assert place.state(task) is TaskState.SUCCESS


def test_a_worker_that_stops_writes_what_would_have_gathered() -> None:
    place, (first, second, *_) = a_worker_with(12)
    place.attempts.end(first)
    place.worker.reporter.run_once()
    place.attempts.end(second)
    place.worker.reporter.write_all()
    assert place.state(second) is TaskState.SUCCESS


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


def running_tasks(place: Place, count: int) -> list[int]:
    place.join()
    tasks = [place.submit() for _ in range(count)]
    place.worker.claims.run_once()
    return tasks


def report(place: Place, task: int, **changes: Any) -> None:
    end = AttemptEnd(task_instance_id=task, state=TaskState.SUCCESS, end_time=place.clock.now())
    place.worker.reporter.ended(replace(end, **changes))


def test_a_report_that_the_tables_refuse_keeps_no_other_back_and_becomes_a_failure(
    place: Place,
) -> None:
    first, bad, last = running_tasks(place, 3)
    report(place, first, exit_code=0)
    report(place, bad, exit_code=2**40, var_pool='[{"prop":"secret"}]')
    report(place, last, exit_code=0)
    place.worker.reporter.run_once()
    assert [place.state(each) for each in (first, bad, last)] == [
        TaskState.SUCCESS,
        TaskState.FAILURE,
        TaskState.SUCCESS,
    ]
    row = place.database.tasks.the(bad)
    assert row.reason is not None
    assert row.reason.startswith("its end could not be stored as it was reported: ")
    assert "out of range" in row.reason
    assert place.worker.reporter.unreported() == frozenset()


def test_an_end_whose_facts_are_refused_keeps_its_state(place: Place) -> None:
    task, killed = running_tasks(place, 2)

    def refuse(name: str, moment: str) -> None:
        if name == "report" and moment == "before" and place.database.tasks.the(task).ui_link:
            raise ReportRefusedError("a check of ui_link")

    place.database.commit_hook = refuse
    report(place, task, facts=SparkFacts(ui_link="http://a"), exit_code=0, var_pool="[]")
    report(place, killed, state=TaskState.KILL, exit_code=2**40)
    place.worker.reporter.run_once()
    row = place.database.tasks.the(task)
    assert (row.state, row.exit_code, row.var_pool) == (TaskState.SUCCESS, 0, "[]")
    assert row.reason == "its end could not be stored as it was reported: a check of ui_link"
    assert place.state(killed) is TaskState.KILL


def test_a_report_that_is_refused_in_every_form_is_kept_and_tried_again(place: Place) -> None:
    bad, good = running_tasks(place, 2)

    def refuse(name: str, moment: str) -> None:
        changed = [one.id for one in place.database.tasks if one.state == TaskState.SUCCESS]
        if name == "report" and moment == "before" and changed != [good]:
            raise ValueError("a trigger of somebody's")

    place.database.commit_hook = refuse
    report(place, bad)
    report(place, good)
    assert place.worker.reporter.run_once() > timedelta()
    assert (place.state(bad), place.state(good)) == (TaskState.RUNNING, TaskState.SUCCESS)
    assert place.worker.reporter.unreported() == {bad}
    place.database.commit_hook = lambda *_: None
    place.worker.reporter.run_once()
    assert place.state(bad) is TaskState.SUCCESS
    assert place.worker.reporter.unreported() == frozenset()


def test_a_process_that_the_tables_refuse_keeps_no_other_back(place: Place) -> None:
    bad, good = running_tasks(place, 2)
    place.worker.reporter.started(bad, 2**40, 1.0)
    place.worker.reporter.started(good, 17, 1.0)
    place.worker.reporter.run_once()
    assert [place.database.tasks.the(each).pid for each in (bad, good)] == [None, 17]
