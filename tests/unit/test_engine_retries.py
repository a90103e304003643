"""Retries and delays: when the next attempt is due."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.model.decisions import RetryTask, SubmitTask
from common.model.definitions import Backoff
from common.model.states import TaskState
from master.engine.events import RunOpened
from master.engine.retries import retry_due
from tests.builders import NOON, SOON, KeptRun, a_node, a_run, failed, lost, succeeded, tell

MINUTE = timedelta(minutes=1)


def waited(retries: int, interval: timedelta = MINUTE, **backoff: Any) -> timedelta:
    """How long the next attempt waits after so many retries."""
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
    (retry,) = tell(run, failed("a", at=NOON - timedelta(seconds=30)), now=NOON)
    assert isinstance(retry, RetryTask)
    assert retry.at == NOON + timedelta(seconds=30)


def test_the_interval_grows_with_the_retries_that_were_made_and_not_with_lost_workers() -> None:
    run = a_run("a", retries={"a": 3}, of_node={"a": {"backoff": Backoff(factor=10.0)}})
    tell(run, lost("a"))
    (retry,) = tell(run, failed("a", attempt=2))
    assert isinstance(retry, RetryTask)
    assert retry.at == NOON + MINUTE


def test_t48_after_a_failover_a_retry_is_due_when_it_was_promised() -> None:
    kept = KeptRun("a", retries={"a": 1})
    kept.tell(RunOpened())
    kept.tell(kept.end("a", TaskState.FAILURE))
    assert kept.forget(now=SOON - timedelta(microseconds=1)) == []
    (again,) = kept.forget(now=SOON)
    assert isinstance(again, SubmitTask)
    assert (again.attempt, again.retry_times) == (2, 1)


def test_a_delayed_task_is_submitted_with_the_time_until_which_it_is_held() -> None:
    run = a_run("a >> b", of_node={"b": {"delay": 5 * MINUTE}})
    (one,) = [each for each in tell(run, succeeded("a")) if isinstance(each, SubmitTask)]
    assert one.due_at == NOON + 5 * MINUTE


def test_a_retry_of_a_delayed_task_is_not_delayed_again() -> None:
    run = a_run("a", retries={"a": 1}, interval=timedelta(), of_node={"a": {"delay": MINUTE}})
    (again,) = [one for one in tell(run, failed("a")) if isinstance(one, SubmitTask)]
    assert again.due_at is None
