"""The decisions of the engine, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from common.model.decisions import (
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.states import FailureStrategy, Priority, ProcessState, TaskState
from master.engine.events import RunOpened, TimerFired
from master.engine.run import ProcessRun
from master.engine.task_run import ImpossibleError, TaskPhase
from tests.builders import NOON, SOON, a_run, deliver, failed, killed, lost, stop, succeeded


def submitted(decisions: Sequence[object]) -> list[str]:
    return [one.name for one in decisions if isinstance(one, SubmitTask)]


def phases(run: ProcessRun) -> dict[str, str]:
    return {name: task.phase.value for name, task in run.tasks.items()}


def test_opening_a_new_run_submits_its_heads() -> None:
    run = a_run("a >> c; b >> c", opened=False)
    assert submitted(deliver(run, RunOpened())) == ["a", "b"]


def test_opening_a_run_twice_submits_nothing_twice() -> None:
    run = a_run("a >> b")
    assert deliver(run, RunOpened()) == []


def test_a_task_starts_when_all_its_upstream_has_succeeded_and_not_before() -> None:
    run = a_run("a b >> c")
    assert submitted(deliver(run, succeeded("a"))) == []
    assert submitted(deliver(run, succeeded("b"))) == ["c"]


def test_released_tasks_are_submitted_by_priority_then_in_the_order_written() -> None:
    run = a_run("a >> x y z", priorities={"z": Priority.HIGHEST})
    assert submitted(deliver(run, succeeded("a"))) == ["z", "x", "y"]


def test_the_last_success_finishes_the_process_in_the_same_step() -> None:
    run = a_run("a >> b")
    deliver(run, succeeded("a"))
    assert deliver(run, succeeded("b")) == [
        FinishTask(name="b", attempt=1, state=TaskState.SUCCESS, at=NOON),
        FinishProcess(state=ProcessState.SUCCESS),
    ]


def test_under_continue_other_branches_go_on_after_a_failure() -> None:
    run = a_run("a >> c; b >> d")
    assert deliver(run, failed("a")) == [FinishTask(name="a", attempt=1, state=TaskState.FAILURE)]
    assert submitted(deliver(run, succeeded("b"))) == ["d"]
    end = deliver(run, succeeded("d"))[-1]
    assert end == FinishProcess(state=ProcessState.FAILURE, reason="task 'a' failed")


def test_t21_a_failure_ends_nothing_while_a_retry_is_promised() -> None:
    run = a_run("a; b", retries={"b": 1})
    deliver(run, failed("b"))
    deliver(run, failed("a"))
    assert not run.is_over
    deliver(run, TimerFired(name="b", attempt=1), now=NOON + timedelta(minutes=1))
    assert deliver(run, succeeded("b", attempt=2))[-1] == FinishProcess(
        state=ProcessState.FAILURE, reason="task 'a' failed"
    )


def test_t21b_under_end_a_failure_kills_the_live_and_gives_up_promised_retries() -> None:
    run = a_run("a; b; c >> d", strategy=FailureStrategy.END, retries={"b": 3})
    deliver(run, failed("b"))
    assert deliver(run, failed("a")) == [
        FinishTask(name="a", attempt=1, state=TaskState.FAILURE),
        GiveUpRetry(name="b", attempt=1),
        KillTask(name="c", attempt=1),
    ]
    end = deliver(run, killed("c"))
    assert end[-1] == FinishProcess(state=ProcessState.FAILURE, reason="tasks 'a', 'b' failed")
    assert phases(run)["d"] == "idle"


def test_under_end_a_task_that_succeeds_after_all_releases_nothing() -> None:
    run = a_run("a; c >> d", strategy=FailureStrategy.END)
    deliver(run, failed("a"))
    decisions = deliver(run, succeeded("c"))
    assert submitted(decisions) == []
    assert run.state is ProcessState.FAILURE


def test_a_failed_task_with_retries_left_is_promised_another_attempt() -> None:
    run = a_run("a", retries={"a": 2})
    due = NOON + timedelta(minutes=1)
    assert deliver(run, failed("a")) == [
        RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=due)
    ]
    assert run.next_retry() == (due, "a")


def test_t48_a_retry_is_due_at_the_interval_and_not_a_moment_before() -> None:
    run = a_run("a", retries={"a": 1})
    deliver(run, failed("a"))
    due = NOON + timedelta(minutes=1)
    early = deliver(run, TimerFired(name="a", attempt=1), now=due - timedelta(microseconds=1))
    assert early == []
    (again,) = deliver(run, TimerFired(name="a", attempt=1), now=due)
    assert isinstance(again, SubmitTask)
    assert (again.attempt, again.retry_times) == (2, 1)


def test_t48_a_timer_that_fires_twice_submits_one_attempt() -> None:
    run = a_run("a", retries={"a": 5}, interval=timedelta())
    deliver(run, failed("a"))
    assert deliver(run, TimerFired(name="a", attempt=1)) == []
    assert run.tasks["a"].attempt == 2


def test_a_retry_without_interval_is_submitted_in_the_same_step() -> None:
    run = a_run("a", retries={"a": 1}, interval=timedelta())
    assert submitted(deliver(run, failed("a"))) == ["a"]


def test_a_task_fails_for_good_when_its_retries_are_used_up() -> None:
    run = a_run("a", retries={"a": 1}, interval=timedelta())
    deliver(run, failed("a"))
    assert deliver(run, failed("a", attempt=2))[-1] == FinishProcess(
        state=ProcessState.FAILURE, reason="task 'a' failed"
    )


def test_a_stream_task_that_is_lost_with_its_worker_fails_and_is_not_repeated() -> None:
    run = a_run("read", of_node={"read": {"task_type": "STREAM"}})
    assert submitted(deliver(run, lost("read"))) == []
    assert run.state is ProcessState.FAILURE


def test_a_range_that_is_lost_with_its_worker_is_read_again() -> None:
    node = {"task_type": "STREAM", "task_json": '{"params": {"spec": {"type": "kafka"}}}'}
    run = a_run("read", of_node={"read": node})
    assert submitted(deliver(run, lost("read"))) == ["read"]


def test_a_lost_worker_costs_an_attempt_but_no_retry() -> None:
    run = a_run("a")
    decisions = deliver(run, lost("a"))
    assert isinstance(decisions[-1], SubmitTask)
    assert (decisions[-1].attempt, decisions[-1].retry_times) == (2, 0)
    deliver(run, succeeded("a", attempt=2))
    assert run.state is ProcessState.SUCCESS


def test_a_late_report_of_an_abandoned_attempt_changes_nothing() -> None:
    run = a_run("a >> b")
    deliver(run, lost("a"))
    assert deliver(run, succeeded("a", attempt=1)) == []
    assert phases(run) == {"a": "live", "b": "idle"}


def test_a_repeated_report_changes_nothing() -> None:
    run = a_run("a >> b")
    deliver(run, succeeded("a"))
    assert deliver(run, succeeded("a")) == []


def test_a_report_of_an_attempt_that_was_never_made_is_impossible() -> None:
    run = a_run("a >> b")
    with pytest.raises(ImpossibleError, match="can't have happened"):
        deliver(run, succeeded("b"))
    with pytest.raises(ImpossibleError, match="can't have happened"):
        deliver(run, succeeded("a", attempt=7))


def test_t23_a_kill_that_nobody_asked_for_is_a_failure_with_its_retries() -> None:
    run = a_run("a >> b", retries={"a": 1}, interval=timedelta())
    assert submitted(deliver(run, killed("a"))) == ["a"]
    deliver(run, killed("a", attempt=2))
    assert run.state is ProcessState.FAILURE


def test_a_stop_kills_what_is_live_and_ends_when_all_have_ended() -> None:
    run = a_run("a b >> c")
    assert deliver(run, stop()) == [
        StopProcess(deadline=SOON),
        KillTask(name="a", attempt=1),
        KillTask(name="b", attempt=1),
    ]
    deliver(run, killed("a"))
    assert run.state is ProcessState.READY_STOP
    assert deliver(run, killed("b"))[-1] == FinishProcess(
        state=ProcessState.STOP, reason="stopped on request"
    )


def test_a_stop_that_is_repeated_is_harmless() -> None:
    run = a_run("a")
    deliver(run, stop())
    assert deliver(run, stop()) == []


def test_t49_a_stop_gives_up_a_promised_retry_and_ends_as_stop() -> None:
    run = a_run("a", retries={"a": 3})
    deliver(run, failed("a"))
    assert deliver(run, stop()) == [
        StopProcess(deadline=SOON),
        GiveUpRetry(name="a", attempt=1),
        FinishProcess(state=ProcessState.STOP, reason="stopped on request"),
    ]


def test_a_stop_that_comes_after_the_last_task_was_done_ends_as_success() -> None:
    run = a_run("a")
    deliver(run, stop())
    deliver(run, succeeded("a"))
    assert run.state is ProcessState.SUCCESS


def test_a_lost_worker_is_no_reason_to_submit_again_while_stopping() -> None:
    run = a_run("a")
    deliver(run, stop())
    assert submitted(deliver(run, lost("a"))) == []
    assert run.state is ProcessState.STOP


def test_a_forbidden_task_is_passed_without_an_attempt() -> None:
    run = a_run("a >> f >> b", forbidden=["f"])
    decisions = deliver(run, succeeded("a"))
    assert PassForbidden(name="f") in decisions
    assert submitted(decisions) == ["b"]


def test_t26_a_forbidden_task_waits_for_all_its_upstream() -> None:
    run = a_run("a b >> f >> c", forbidden=["f"])
    assert submitted(deliver(run, succeeded("a"))) == []
    assert submitted(deliver(run, succeeded("b"))) == ["c"]


def test_a_process_of_forbidden_tasks_alone_succeeds_at_once() -> None:
    run = a_run("a >> b", forbidden=["a", "b"], opened=False)
    assert deliver(run, RunOpened())[-1] == FinishProcess(state=ProcessState.SUCCESS)


def test_t24_what_waits_for_a_killed_task_does_not_keep_the_process_alive() -> None:
    run = a_run("a >> b")
    deliver(run, killed("a"))
    assert run.state is ProcessState.FAILURE
    assert run.tasks["b"].phase is TaskPhase.IDLE


def test_nothing_is_decided_after_the_end() -> None:
    run = a_run("a")
    deliver(run, succeeded("a"))
    assert deliver(run, RunOpened(), stop(), succeeded("a"), lost("a")) == []


def test_the_story_ends_with_the_latest_events() -> None:
    run = a_run("a")
    deliver(run, succeeded("a"))
    assert "TaskSucceeded" in " ".join(run.story())
    assert "FinishProcess" in run.story()[-1]


def test_a_wide_fan_is_submitted_in_one_bounded_step_1532() -> None:
    names = " ".join(f"t{index}" for index in range(5_000))
    run = a_run(f"root >> {names}")
    assert len(submitted(deliver(run, succeeded("root")))) == 5_000
