"""Retries and delays: the next attempt, its due time, and its memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.model.decisions import RetryTask, SubmitTask
from common.model.definitions import Backoff
from common.model.failures import FailureReason
from common.model.memory_factor import MAX_MEMORY_FACTOR
from common.model.retry_policy import MemoryRetry, RetryPolicy
from common.model.states import ProcessState, TaskState
from master.engine.events import RunOpened, TaskFailed, TaskKilled
from master.engine.retries import retry_due
from tests.builders import (
    NOON,
    SOON,
    KeptRun,
    a_node,
    a_run,
    deliver,
    failed,
    killed,
    lost,
    succeeded,
)

MINUTE = timedelta(minutes=1)


def waited(retries: int, interval: timedelta = MINUTE, **backoff: Any) -> timedelta:
    """The wait before the next attempt, after this many retries."""
    written = Backoff(**backoff) if backoff else None
    node = a_node("a", retry_interval=interval, backoff=written)
    return retry_due(node, ended=NOON, retries=retries, seed="1/a/1") - NOON


@pytest.mark.parametrize("retries", [0, 1, 50])
def test_t48_without_a_back_off_every_retry_waits_the_interval_to_the_microsecond(
    retries: int,
) -> None:
    assert waited(retries) == MINUTE


def test_a_back_off_grows_by_its_factor() -> None:
    assert [waited(retries, factor=3.0) / MINUTE for retries in range(4)] == [1, 3, 9, 27]


def test_a_back_off_grows_no_longer_than_its_longest() -> None:
    assert waited(5, factor=2.0, longest=5 * MINUTE) == 5 * MINUTE


def test_a_back_off_without_a_longest_does_not_outgrow_a_calendar() -> None:
    assert waited(1_000, factor=100.0) == timedelta(days=366)


def test_a_back_off_is_never_shorter_than_the_interval_of_its_author() -> None:
    assert waited(0, interval=timedelta(days=500), factor=2.0) == timedelta(days=500)


def test_a_back_off_of_no_interval_is_none() -> None:
    assert waited(9, interval=timedelta(), factor=2.0, jitter=1.0) == timedelta()


def test_chance_shifts_a_retry_by_its_share_at_most() -> None:
    node = a_node("a", retry_interval=MINUTE, backoff=Backoff(factor=1.0, jitter=0.2))
    waits = [
        retry_due(node, ended=NOON, retries=0, seed=f"{number}") - NOON for number in range(200)
    ]
    assert all(0.8 * MINUTE <= wait <= 1.2 * MINUTE for wait in waits)
    assert len(dict.fromkeys(waits)) > 190
    assert min(waits) < 0.9 * MINUTE
    assert max(waits) > 1.1 * MINUTE


def test_chance_is_the_same_for_the_same_attempt_on_every_machine() -> None:
    shift = waited(0, factor=1.0, jitter=1.0) - MINUTE
    assert shift == waited(0, factor=1.0, jitter=1.0) - MINUTE
    assert shift != timedelta()


def test_a_retry_is_counted_from_the_end_of_the_attempt_and_not_from_its_report() -> None:
    run = a_run("a", retries={"a": 1})
    (retry,) = deliver(run, failed("a", at=NOON - timedelta(seconds=30)), now=NOON)
    assert isinstance(retry, RetryTask)
    assert retry.at == NOON + timedelta(seconds=30)


def test_the_interval_grows_with_the_retries_that_were_made_and_not_with_lost_workers() -> None:
    run = a_run("a", retries={"a": 3}, of_node={"a": {"backoff": Backoff(factor=10.0)}})
    deliver(run, lost("a"))
    (retry,) = deliver(run, failed("a", attempt=2))
    assert isinstance(retry, RetryTask)
    assert retry.at == NOON + MINUTE


def test_t48_after_a_failover_a_retry_is_due_when_it_was_promised() -> None:
    kept = KeptRun("a", retries={"a": 1})
    kept.deliver(RunOpened())
    kept.deliver(kept.end("a", TaskState.FAILURE))
    assert kept.forget(now=SOON - timedelta(microseconds=1)) == []
    (again,) = kept.forget(now=SOON)
    assert isinstance(again, SubmitTask)
    assert (again.attempt, again.retry_times) == (2, 1)


def test_a_delayed_task_is_submitted_with_the_time_until_which_it_is_held() -> None:
    run = a_run("a >> b", of_node={"b": {"delay": 5 * MINUTE}})
    (one,) = [each for each in deliver(run, succeeded("a")) if isinstance(each, SubmitTask)]
    assert one.due_at == NOON + 5 * MINUTE


def test_a_retry_of_a_delayed_task_is_not_delayed_again() -> None:
    run = a_run("a", retries={"a": 1}, interval=timedelta(), of_node={"a": {"delay": MINUTE}})
    (again,) = [one for one in deliver(run, failed("a")) if isinstance(one, SubmitTask)]
    assert again.due_at is None


# Failures that are retried


OUT_OF_MEMORY, FETCH_FAILED = FailureReason.OUT_OF_MEMORY, FailureReason.FETCH_FAILED


def tried_again(event: TaskFailed | TaskKilled, **policy: Any) -> bool:
    """True if another attempt is promised after this end of the only task."""
    run = a_run("a", retries={"a": 2}, of_node={"a": {"retry_policy": RetryPolicy(**policy)}})
    return any(isinstance(each, RetryTask) for each in deliver(run, event))


def test_without_a_policy_every_failure_is_tried_again() -> None:
    assert tried_again(failed("a"))
    assert tried_again(killed("a"))
    assert all(
        tried_again(failed("a", failure=reason))
        for reason in set(FailureReason) - {FailureReason.NOT_GRANTED}
    )
    assert not tried_again(failed("a", failure=FailureReason.NOT_GRANTED))


def test_only_the_listed_reasons_are_tried_again() -> None:
    assert tried_again(failed("a", failure=FETCH_FAILED), retry_on=(FETCH_FAILED,))
    assert not tried_again(failed("a", failure=OUT_OF_MEMORY), retry_on=(FETCH_FAILED,))


def test_the_reasons_that_are_excluded_are_never_tried_again() -> None:
    assert not tried_again(failed("a", failure=FETCH_FAILED), no_retry_on=(FETCH_FAILED,))
    assert tried_again(failed("a", failure=OUT_OF_MEMORY), no_retry_on=(FETCH_FAILED,))


def test_a_failure_of_which_nothing_is_known_is_one_by_exit_code() -> None:
    reason = (FailureReason.EXIT_CODE,)
    assert tried_again(failed("a"), retry_on=reason)
    assert not tried_again(failed("a"), no_retry_on=reason)
    assert not tried_again(failed("a"), retry_on=(FETCH_FAILED,))


def test_a_kill_that_nobody_asked_for_is_one_by_its_reason_or_as_killed() -> None:
    reason = (FailureReason.KILLED,)
    assert tried_again(killed("a"), retry_on=reason)
    assert not tried_again(killed("a"), no_retry_on=reason)
    assert tried_again(killed("a", failure=OUT_OF_MEMORY), no_retry_on=reason)


def test_a_lost_worker_is_made_up_for_whatever_the_policy_says() -> None:
    policy = RetryPolicy(retry_on=(FETCH_FAILED,))
    run = a_run("a", of_node={"a": {"retry_policy": policy}})
    assert any(isinstance(each, SubmitTask) for each in deliver(run, lost("a")))


def test_a_failure_that_is_not_tried_again_ends_the_run_at_once() -> None:
    policy = RetryPolicy(no_retry_on=(FETCH_FAILED,))
    kept = KeptRun("a", retries={"a": 5}, of_node={"a": {"retry_policy": policy}})
    kept.deliver(RunOpened())
    kept.deliver(kept.end("a", TaskState.FAILURE, failure=FETCH_FAILED))
    assert kept.state() is ProcessState.FAILURE


# More memory


def memory_factors(
    *ends: tuple[TaskState, FailureReason | None], factor: float = 2.0, forget: bool = False
) -> list[float]:
    """The factor of each attempt, for these ends."""
    policy = RetryPolicy(memory=MemoryRetry(factor=factor, ceiling_mb=8192))
    kept = KeptRun(
        "a", retries={"a": 1000}, interval=timedelta(), of_node={"a": {"retry_policy": policy}}
    )
    kept.deliver(RunOpened())
    for state, failure in ends:
        kept.claim("a")
        report = kept.end("a", state, failure=failure)
        if forget:
            kept.forget()
        kept.deliver(report)
    return [row.memory_factor for row in kept.rows]


_NO_MEMORY = (TaskState.FAILURE, OUT_OF_MEMORY)


@pytest.mark.parametrize("forget", [False, True])
def test_each_time_the_memory_was_too_little_the_next_attempt_gets_more(forget: bool) -> None:
    ends = (_NO_MEMORY, (TaskState.KILL, OUT_OF_MEMORY), _NO_MEMORY)
    assert memory_factors(*ends, factor=1.5, forget=forget) == [1, 1.5, 2.25, 3.375]


def test_what_was_raised_stays_raised_whatever_follows() -> None:
    ends = (_NO_MEMORY, (TaskState.FAILURE, FETCH_FAILED), (TaskState.NEED_FAULT_TOLERANCE, None))
    assert memory_factors(*ends) == [1, 2, 2, 2]


def test_the_factor_never_outgrows_what_a_row_can_hold() -> None:
    assert memory_factors(*[_NO_MEMORY] * 300, factor=16.0)[-1] == MAX_MEMORY_FACTOR


def test_without_a_word_of_the_author_the_memory_stays_as_it_is() -> None:
    run = a_run("a", retries={"a": 1}, interval=timedelta())
    (again,) = [
        one
        for one in deliver(run, failed("a", failure=OUT_OF_MEMORY))
        if isinstance(one, SubmitTask)
    ]
    assert again.memory_factor == 1


def test_a_task_that_a_recovery_starts_afresh_starts_with_its_own_memory() -> None:
    policy = RetryPolicy(memory=MemoryRetry(ceiling_mb=8192))
    kept = KeptRun(
        "a", retries={"a": 1}, interval=timedelta(), of_node={"a": {"retry_policy": policy}}
    )
    kept.deliver(RunOpened())
    for _ in range(2):
        kept.deliver(kept.end("a", TaskState.FAILURE, failure=OUT_OF_MEMORY))
    kept.restart(["a"])
    assert [row.memory_factor for row in kept.rows] == [1, 2, 1]
