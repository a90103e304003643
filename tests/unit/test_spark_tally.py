"""Spark's reports of jobs and stages add up, however often and in whatever order they come."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from worker.spark.progress.connect_progress import rest_after
from worker.spark.progress.tally import Tally


def stage(number: int, status: str = "COMPLETE", **more: Any) -> dict[str, Any]:
    return {"stageId": number, "attemptId": 0, "status": status, **more}


def test_each_stage_counts_as_it_was_seen_last() -> None:
    tally = Tally()
    tally.see_stage(stage(1, "ACTIVE", numTasks=4, numActiveTasks=2, numCompleteTasks=1))
    tally.see_stage(stage(1, "COMPLETE", numTasks=4, numCompleteTasks=4, inputRecords=10))
    tally.see_stage(stage(2, "ACTIVE", numTasks=3, numActiveTasks=3))
    progress = tally.progress
    assert (progress.tasks, progress.tasks_done, progress.tasks_running) == (7, 4, 3)
    assert (progress.stages_done, progress.stages_running, progress.rows_in) == (1, 1, 10)


def test_a_skipped_stage_is_no_work() -> None:
    tally = Tally()
    tally.see_stage(stage(1, "SKIPPED", numTasks=200))
    assert tally.progress.tasks == 0
    assert tally.is_settled(1)


def test_tasks_of_a_failed_attempt_are_not_waited_for() -> None:
    tally = Tally()
    tally.see_stage(stage(1, "FAILED", numTasks=10, numCompleteTasks=3, numFailedTasks=1))
    tally.see_stage({**stage(1, "COMPLETE", numTasks=10, numCompleteTasks=10), "attemptId": 1})
    progress = tally.progress
    assert (progress.tasks, progress.tasks_done, progress.tasks_failed) == (13, 13, 1)
    assert (progress.stages_failed, progress.stages_done) == (1, 1)


def test_jobs_are_counted_by_how_they_stand() -> None:
    tally = Tally()
    for number, status in enumerate(("RUNNING", "SUCCEEDED", "FAILED", "UNKNOWN")):
        tally.see_job({"jobId": number, "status": status})
    progress = tally.progress
    assert (progress.jobs_running, progress.jobs_done, progress.jobs_failed) == (1, 1, 1)


def test_time_of_cores_and_of_the_processor_is_in_seconds() -> None:
    tally = Tally()
    tally.see_stage(stage(1, executorRunTime=1_500, executorCpuTime=250_000_000))
    assert (tally.core_seconds, tally.cpu_seconds) == (1.5, 0.25)


def test_the_largest_heap_is_kept() -> None:
    tally = Tally()
    tally.see_stage(stage(1, "ACTIVE", peakExecutorMetrics={"JVMHeapMemory": 300}))
    tally.see_heap(200)
    assert tally.progress.executor_memory_bytes == 300


def test_what_is_no_number_counts_nothing() -> None:
    tally = Tally()
    tally.see_stage(stage(1, inputRecords="many", inputBytes=-1, peakExecutorMetrics=None))
    progress = tally.progress
    assert (progress.rows_in, progress.bytes_in) == (0, 0)


@given(st.permutations([(n, s) for n in range(3) for s in ("ACTIVE", "COMPLETE")]), st.booleans())
def test_a_stage_that_is_complete_stays_so(seen: list[tuple[int, str]], twice: bool) -> None:
    tally = Tally()
    for number, status in seen * (1 + twice):
        tally.see_stage(stage(number, status, numTasks=2, numCompleteTasks=2, inputRecords=5))
    progress = tally.progress
    assert (progress.stages_done, progress.tasks_done, progress.rows_in) == (3, 6, 15)


def test_a_slow_answer_does_not_delay_the_next_request_for_minutes() -> None:
    assert [rest_after(cost) for cost in (0.0, 0.02, 5.0)] == [0.5, 1.0, 5.0]
