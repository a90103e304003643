"""The steps of a topology's task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.model.topologies import RunState, Wanted
from worker.spark.topology.life import (
    LONGEST_REST_SECONDS,
    Standing,
    Step,
    next_step,
    rest_seconds,
    switched_off,
)

ACTIVE = Wanted(number=1)
INACTIVE = replace(ACTIVE, number=2, active=False)
KILLED = replace(ACTIVE, number=2, killed=True, wait_seconds=30)
REBALANCED = replace(ACTIVE, number=2, rebalanced=2, wait_seconds=30)
RUNNING = Standing(applied=ACTIVE, running=True)
OFF = replace(RUNNING, emitting=False)
NOW = 1_000.0


def step(standing: Standing, wanted: Wanted, now: float = NOW) -> Step:
    return next_step(standing, wanted, now, most_failures=2)


@pytest.mark.parametrize(
    ("standing", "wanted", "expected"),
    [
        (Standing(applied=ACTIVE), ACTIVE, Step.START),
        (RUNNING, ACTIVE, Step.NOTHING),
        (RUNNING, INACTIVE, Step.SWITCH_OFF),
        (OFF, INACTIVE, Step.NOTHING),
        (OFF, ACTIVE, Step.SWITCH_ON),
        # Another version of the code: first the batch that runs is done.
        (replace(RUNNING, stale=True), ACTIVE, Step.SWITCH_OFF),
        (replace(OFF, stale=True, busy=True), ACTIVE, Step.NOTHING),
        (replace(OFF, stale=True), ACTIVE, Step.RENEW),
        # A kill and a rebalance wait behind the spouts' end.
        (RUNNING, KILLED, Step.SWITCH_OFF),
        (replace(OFF, drain_since=NOW - 29), KILLED, Step.NOTHING),
        (replace(OFF, drain_since=NOW - 30), KILLED, Step.END),
        (replace(OFF, drain_since=NOW - 30, busy=True), KILLED, Step.END),
        (RUNNING, REBALANCED, Step.SWITCH_OFF),
        (replace(OFF, drain_since=NOW - 29), REBALANCED, Step.NOTHING),
        (replace(OFF, drain_since=NOW - 30, busy=True), REBALANCED, Step.NOTHING),
        (replace(OFF, drain_since=NOW - 30), REBALANCED, Step.RESHAPE),
        # Off already, as an inactive one is: the wait begins with the order.
        (OFF, KILLED, Step.SWITCH_OFF),
    ],
)
def test_the_next_step(standing: Standing, wanted: Wanted, expected: Step) -> None:
    assert step(standing, wanted) is expected


def test_a_batch_that_failed_is_tried_again_after_a_while_and_then_given_up() -> None:
    failed = replace(RUNNING, running=False, failures=2, failed_at=NOW)
    assert step(failed, ACTIVE, NOW + 1.9) is Step.NOTHING
    assert step(failed, ACTIVE, NOW + 2) is Step.START
    assert step(replace(failed, failures=3), ACTIVE) is Step.GIVE_UP
    # Whoever kills it needs no good batch any more.
    assert step(replace(failed, failures=3), KILLED) is Step.SWITCH_OFF


def test_late_starts_of_python_count_as_failures_only_after_many_of_them() -> None:
    failed = RUNNING.failed(NOW, is_late=False)
    assert (failed.failures, failed.failed_at, failed.busy) == (1, NOW, False)
    late = RUNNING
    for _ in range(10):
        late = late.failed(NOW, is_late=True)
        assert late.failures == 0
    assert step(replace(late, running=False), ACTIVE, NOW) is Step.START
    assert [late.failed(NOW, is_late=each).failures for each in (True, False)] == [1, 1]


def test_a_failed_batch_is_done_before_a_rebalance() -> None:
    off = replace(OFF, running=False, drain_since=NOW - 60, failures=1, failed_at=NOW)
    assert step(off, REBALANCED, NOW) is Step.NOTHING
    assert step(off, REBALANCED, NOW + 1) is Step.START


def test_what_a_lost_task_has_left_is_begun_before_a_rebalance() -> None:
    off = replace(OFF, running=False, drain_since=NOW - 60)
    assert step(off, REBALANCED) is Step.START
    # A kill needs no good batch.
    assert step(off, KILLED) is Step.END


@pytest.mark.parametrize("wanted", [ACTIVE, REBALANCED])
def test_a_batch_that_failed_is_done_by_the_next_version(wanted: Wanted) -> None:
    failed = replace(OFF, running=False, drain_since=NOW, failures=1, failed_at=NOW, stale=True)
    assert step(failed, wanted) is Step.RENEW


def test_rests_grow_to_a_bound() -> None:
    assert [rest_seconds(failures) for failures in (0, 1, 2, 3, 7)] == [0, 1, 2, 4, 60]
    assert rest_seconds(1_000) == LONGEST_REST_SECONDS


def test_spouts_are_off_since_the_first_order_to_drain() -> None:
    drained = switched_off(RUNNING, KILLED, NOW)
    assert (drained.emitting, drained.drain_since) == (False, NOW)
    assert switched_off(drained, KILLED, NOW + 5).drain_since == NOW
    assert switched_off(RUNNING, INACTIVE, NOW).drain_since is None


@pytest.mark.parametrize(
    ("standing", "state"),
    [
        (Standing(applied=ACTIVE), RunState.STARTING),
        (RUNNING, RunState.RUNNING),
        (OFF, RunState.PAUSED),
        (replace(OFF, drain_since=NOW), RunState.DRAINING),
        (replace(RUNNING, running=False, failed_at=NOW), RunState.WAITING),
    ],
)
def test_the_state_in_a_report(standing: Standing, state: RunState) -> None:
    assert standing.state is state
