"""Pause, stop, time-out and deadline: their effect on a run, and its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.model.control import Outcome
from common.model.decisions import (
    AbandonTask,
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PauseProcess,
    PauseTask,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.definitions import PoolShare
from common.model.lock_needs import LockNeed
from common.model.states import FailureStrategy, ProcessState, TaskState
from master.engine.events import DeadlinePassed, Event, PauseRequested, RunOpened, TimerFired
from tests.builders import NOON, SOON, KeptRun, conditions, stop, succeeded, time_out

END = FailureStrategy.END
MINUTE = timedelta(minutes=1)


def kept(text: str, *running: str, **of_run: Any) -> KeptRun:
    """A stored run in which a worker has begun these tasks."""
    run = KeptRun(text, **of_run)
    run.deliver(RunOpened())
    for name in running:
        run.claim(name)
    return run


def end(run: KeptRun, name: str, state: TaskState = TaskState.SUCCESS) -> list[Decision]:
    return run.deliver(run.end(name, state))


def names(decisions: list[Decision], kind: type[KillTask | PauseTask | SubmitTask]) -> list[str]:
    return [one.name for one in decisions if isinstance(one, kind)]


# Pause


def test_t41_a_pause_withdraws_what_no_worker_has_begun() -> None:
    run = kept("a; b", "a")
    assert run.deliver(PauseRequested()) == [
        PauseProcess(),
        PauseTask(name="a", attempt=1),
        PauseTask(name="b", attempt=1),
    ]
    assert run.states() == {"a": TaskState.RUNNING, "b": TaskState.PAUSE}


def test_a_pause_lets_running_tasks_end() -> None:
    run = kept("a; b", "a")
    run.deliver(PauseRequested())
    run.settle()
    assert run.state() is ProcessState.READY_PAUSE
    end(run, "a")
    assert run.states() == {"a": TaskState.SUCCESS, "b": TaskState.PAUSE}
    assert run.state() is ProcessState.PAUSE


def test_what_becomes_ready_while_pausing_is_held() -> None:
    run = kept("a >> b", "a")
    run.deliver(PauseRequested())
    decisions = end(run, "a")
    assert names(decisions, SubmitTask) == []
    assert decisions[-1] == FinishProcess(state=ProcessState.PAUSE, reason="paused on request")


def test_t24_what_waits_for_a_paused_task_does_not_keep_the_process_alive() -> None:
    run = kept("a >> b")
    run.deliver(PauseRequested())
    run.settle()
    assert run.state() is ProcessState.PAUSE
    assert run.phases() == {"a": "paused", "b": "idle"}


@pytest.mark.parametrize("held", ["delay", "pools", "locks"])
def test_a_pause_withdraws_attempts_that_are_held_back(held: str) -> None:
    of_node = {
        "delay": {"delay": MINUTE},
        "pools": {"pools": (PoolShare(pool_id=1),)},
        "locks": {"locks": (LockNeed(dataset="ds", interval="2026-11-20/P1D"),)},
    }[held]
    run = kept("a", of_node={"a": of_node})
    run.deliver(PauseRequested())
    run.settle()
    assert run.state() is ProcessState.PAUSE


def test_a_pause_that_is_repeated_is_harmless() -> None:
    run = kept("a", "a")
    run.deliver(PauseRequested())
    assert run.deliver(PauseRequested()) == []


def test_t49_a_pause_keeps_a_promised_retry_and_ends_as_pause() -> None:
    run = kept("a", retries={"a": 1})
    end(run, "a", TaskState.FAILURE)
    assert run.deliver(PauseRequested()) == [
        PauseProcess(),
        FinishProcess(state=ProcessState.PAUSE, reason="paused on request"),
    ]
    assert run.row("a").retry_at == NOON + MINUTE


def test_t49_a_failure_while_pausing_still_is_promised_its_retry() -> None:
    run = kept("a", "a", retries={"a": 1})
    run.deliver(PauseRequested())
    decisions = end(run, "a", TaskState.FAILURE)
    assert isinstance(decisions[0], RetryTask)
    assert run.state() is ProcessState.PAUSE


def test_a_retry_that_is_due_while_pausing_waits_for_the_recovery() -> None:
    run = kept("a; b", "b", retries={"a": 1})
    end(run, "a", TaskState.FAILURE)
    run.deliver(PauseRequested())
    assert run.deliver(TimerFired(name="a", attempt=1), now=SOON) == []
    end(run, "b")
    assert run.state() is ProcessState.PAUSE


def test_a_recovery_after_a_pause_goes_on_with_what_was_promised_and_withdrawn_15611() -> None:
    run = kept("a >> c; b", retries={"a": 1})
    end(run, "a", TaskState.FAILURE)
    run.deliver(PauseRequested())
    run.settle()
    decisions = run.restart(["b"], now=SOON)
    assert [(one.name, one.attempt) for one in decisions if isinstance(one, SubmitTask)] == [
        ("b", 2),
        ("a", 2),
    ]
    # No worker was lost: no row may say so.
    assert [row.state for row in run.rows] == [
        TaskState.FAILURE,
        TaskState.PAUSE,
        TaskState.SUBMITTED,
        TaskState.SUBMITTED,
    ]


def test_a_worker_that_is_lost_while_pausing_is_made_up_for_after_the_recovery() -> None:
    run = kept("a", "a")
    run.deliver(PauseRequested())
    assert names(end(run, "a", TaskState.NEED_FAULT_TOLERANCE), SubmitTask) == []
    assert run.state() is ProcessState.PAUSE
    (again,) = run.restart([])
    assert isinstance(again, SubmitTask)
    assert (again.attempt, again.retry_times) == (2, 0)


def test_t49b_a_pause_with_nothing_left_ends_as_success() -> None:
    run = kept("a", "a")
    run.deliver(PauseRequested())
    end(run, "a")
    assert run.state() is ProcessState.SUCCESS


def test_a_pause_with_nothing_left_but_a_failure_ends_as_failure() -> None:
    run = kept("a >> b; c", "a", "c")
    run.deliver(PauseRequested())
    end(run, "a", TaskState.FAILURE)
    end(run, "c")
    assert run.state() is ProcessState.FAILURE


def test_a_pause_with_something_left_beside_a_failure_ends_as_pause() -> None:
    run = kept("a; c >> d", "a", "c")
    run.deliver(PauseRequested())
    end(run, "a", TaskState.FAILURE)
    end(run, "c")
    assert run.state() is ProcessState.PAUSE


def test_forbidden_and_skipped_tasks_are_settled_while_pausing() -> None:
    run = kept("a >> f >> b", "a", forbidden=["f"])
    run.deliver(PauseRequested())
    end(run, "a")
    assert run.phases()["f"] == "passed"
    assert run.state() is ProcessState.PAUSE


def test_a_pause_holds_a_branch_back() -> None:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    run = kept("a >> c >> go mail", "a", of_node=of_node)
    run.deliver(PauseRequested())
    end(run, "a")
    assert run.phases()["c"] == "idle"
    assert run.state() is ProcessState.PAUSE
    run.restart([])
    assert run.phases() == {"a": "succeeded", "c": "branched", "go": "live", "mail": "skipped"}


def test_under_end_a_failure_while_pausing_kills_what_is_live() -> None:
    run = kept("a; b", "a", "b", strategy=END)
    run.deliver(PauseRequested())
    assert names(end(run, "a", TaskState.FAILURE), KillTask) == ["b"]
    end(run, "b", TaskState.KILL)
    assert run.state() is ProcessState.FAILURE


def test_a_sub_process_that_was_paused_by_itself_pauses_its_parent_at_the_end() -> None:
    run = kept("a >> b; c", "a", "c")
    end(run, "a", TaskState.PAUSE)
    assert run.state() is ProcessState.RUNNING
    end(run, "c")
    assert run.state() is ProcessState.PAUSE


def test_a_pause_is_gone_on_with_after_a_failover() -> None:
    run = kept("a >> c; b", "a")
    run.deliver(PauseRequested())
    assert run.forget() == []
    run.settle()
    end(run, "a")
    assert run.state() is ProcessState.PAUSE


def test_t49b_a_pause_of_killed_tasks_allows_a_recovery() -> None:
    run = kept("a; b", "a", "b")
    run.deliver(PauseRequested())
    end(run, "a", TaskState.KILL)
    end(run, "b", TaskState.PAUSE)
    assert run.state() is ProcessState.PAUSE
    assert names(run.restart(["a", "b"]), SubmitTask) == ["a", "b"]


# Stop


def test_t49_a_stop_outranks_a_pause_and_kills_what_that_let_go_on() -> None:
    run = kept("a >> b", "a")
    run.deliver(PauseRequested())
    assert run.deliver(stop()) == [StopProcess(deadline=SOON), KillTask(name="a", attempt=1)]
    end(run, "a", TaskState.KILL)
    assert run.state() is ProcessState.STOP


def test_a_pause_that_comes_after_a_stop_changes_nothing() -> None:
    run = kept("a", "a")
    run.deliver(stop())
    assert run.deliver(PauseRequested()) == []
    assert run.state() is ProcessState.READY_STOP


def test_what_was_held_by_a_pause_is_not_begun_by_a_stop() -> None:
    run = kept("a >> b; c", "a", "c")
    run.deliver(PauseRequested())
    end(run, "a")
    assert names(run.deliver(stop()), SubmitTask) == []
    end(run, "c", TaskState.KILL)
    assert run.state() is ProcessState.STOP


def test_a_stop_ends_as_stop_even_if_something_has_failed() -> None:
    run = kept("a; b", "b")
    end(run, "a", TaskState.FAILURE)
    run.deliver(stop())
    end(run, "b", TaskState.KILL)
    assert run.state() is ProcessState.STOP


def test_a_stop_is_gone_on_with_after_a_failover_with_its_deadline() -> None:
    run = kept("a", "a")
    run.deliver(stop())
    assert run.forget() == []
    assert run.run.deadline == SOON
    assert run.deliver(stop(deadline=SOON + MINUTE)) == []
    end(run, "a", TaskState.KILL)
    assert run.state() is ProcessState.STOP


# Deadline


def test_a_deadline_abandons_what_has_not_ended_and_ends_the_run() -> None:
    run = kept("a >> c; b", "a", "b")
    run.deliver(stop())
    end(run, "b", TaskState.KILL)
    assert run.deliver(DeadlinePassed(), now=SOON) == [
        AbandonTask(name="a", attempt=1),
        FinishProcess(state=ProcessState.STOP, reason="stopped on request"),
    ]
    assert run.states() == {"a": TaskState.KILL, "b": TaskState.KILL}


def test_a_deadline_without_a_stop_is_late() -> None:
    run = kept("a", "a")
    assert run.deliver(DeadlinePassed()) == []
    run.deliver(PauseRequested())
    assert run.deliver(DeadlinePassed()) == []
    assert run.phases() == {"a": "live"}


def test_a_deadline_that_passes_after_the_end_is_late() -> None:
    run = kept("a")
    end(run, "a")
    assert run.deliver(DeadlinePassed()) == []


def test_a_deadline_is_kept_by_whoever_takes_the_run_over() -> None:
    run = kept("a", "a")
    run.deliver(stop())
    run.forget()
    assert run.deliver(DeadlinePassed(), now=SOON)[-1] == FinishProcess(
        state=ProcessState.STOP, reason="stopped on request"
    )


def test_an_abandoned_attempt_that_reports_after_all_changes_nothing() -> None:
    run = kept("a >> b", "a")
    run.deliver(stop(), DeadlinePassed())
    assert run.deliver(succeeded("a")) == []
    assert run.state() is ProcessState.STOP


def test_an_abandoned_attempt_is_run_afresh_by_a_recovery() -> None:
    run = kept("a >> b", "a")
    run.deliver(stop(), DeadlinePassed())
    assert names(run.restart(["a"]), SubmitTask) == ["a"]
    assert run.row("a").attempt == 2


# Time-out of the process


def test_a_process_that_timed_out_is_stopped_and_ends_as_failure() -> None:
    run = kept("a >> b", "a")
    assert run.deliver(time_out()) == [
        StopProcess(deadline=SOON, failing=True),
        KillTask(name="a", attempt=1),
    ]
    assert end(run, "a", TaskState.KILL) == [
        FinishTask(name="a", attempt=1, state=TaskState.KILL),
        FinishProcess(state=ProcessState.FAILURE, reason="it took longer than its time-out"),
    ]


def test_t46b_a_time_out_is_remembered_across_a_failover() -> None:
    run = kept("a", "a")
    run.deliver(time_out())
    run.forget()
    assert run.deliver(time_out()) == []
    end(run, "a", TaskState.KILL)
    assert run.state() is ProcessState.FAILURE


def test_a_time_out_does_not_outrun_a_stop() -> None:
    run = kept("a", "a")
    run.deliver(stop())
    assert run.deliver(time_out()) == []
    end(run, "a", TaskState.KILL)
    assert run.state() is ProcessState.STOP


def test_a_stop_after_a_time_out_still_ends_as_failure() -> None:
    run = kept("a", "a")
    run.deliver(time_out())
    assert run.deliver(stop()) == []
    end(run, "a", TaskState.KILL)
    assert run.state() is ProcessState.FAILURE


def test_a_process_times_out_while_it_is_pausing() -> None:
    run = kept("a", "a")
    run.deliver(PauseRequested())
    run.deliver(time_out())
    end(run, "a", TaskState.KILL)
    assert run.state() is ProcessState.FAILURE


def test_a_process_whose_last_task_succeeds_after_all_has_succeeded() -> None:
    run = kept("a", "a")
    run.deliver(time_out())
    end(run, "a")
    assert run.state() is ProcessState.SUCCESS


def test_a_time_out_gives_up_promised_retries() -> None:
    run = kept("a", retries={"a": 3})
    end(run, "a", TaskState.FAILURE)
    assert run.deliver(time_out()) == [
        StopProcess(deadline=SOON, failing=True),
        GiveUpRetry(name="a", attempt=1),
        FinishProcess(state=ProcessState.FAILURE, reason="it took longer than its time-out"),
    ]


def test_a_deadline_ends_a_process_that_timed_out_as_failure() -> None:
    run = kept("a", "a")
    run.deliver(time_out(), DeadlinePassed())
    assert run.state() is ProcessState.FAILURE


# Kills


def test_t21b_under_end_no_retry_is_promised_after_a_failure() -> None:
    run = kept("a; b", "a", "b", strategy=END, retries={"b": 1})
    end(run, "a", TaskState.FAILURE)
    decisions = end(run, "b", TaskState.FAILURE)
    assert not [one for one in decisions if isinstance(one, RetryTask)]


def test_t49_no_retry_is_promised_while_stopping() -> None:
    run = kept("a", "a", retries={"a": 1})
    run.deliver(stop())
    decisions = end(run, "a", TaskState.FAILURE)
    assert not [one for one in decisions if isinstance(one, RetryTask)]
    assert run.state() is ProcessState.STOP


def test_t23b_only_a_kill_that_was_asked_for_is_no_failure() -> None:
    asked, unasked = kept("a; b", "a", "b"), kept("a; b", "a", "b")
    asked.deliver(stop())
    end(asked, "a", TaskState.KILL)
    end(unasked, "a", TaskState.KILL)
    assert asked.phases()["a"] == "killed"
    assert unasked.phases()["a"] == "failed"


def test_t23b_a_kill_that_nobody_asked_for_is_a_failure_after_loading_too() -> None:
    run = kept("a; b", "a", "b")
    end(run, "a", TaskState.KILL)
    run.forget()
    assert run.phases()["a"] == "failed"
    end(run, "b")
    assert run.state() is ProcessState.FAILURE


@pytest.mark.parametrize("first", ["a", "b"])
def test_t21b_under_end_the_result_does_not_depend_on_which_failure_comes_first(
    first: str,
) -> None:
    run = kept("a; b; c >> d", "a", "b", "c", strategy=END, retries={"b": 1})
    second = "b" if first == "a" else "a"
    end(run, first, TaskState.FAILURE)
    end(run, second, TaskState.FAILURE)
    end(run, "c", TaskState.KILL)
    assert run.state() is ProcessState.FAILURE
    assert not [row for row in run.rows if row.attempt > 1]
    assert run.row("b").retry_at is None


@pytest.mark.parametrize(
    "events", [(PauseRequested(), stop()), (PauseRequested(), time_out()), (stop(), stop())]
)
def test_an_intent_is_held_against_one_column_of_a_row(events: tuple[Event, ...]) -> None:
    run = kept("a; b", "a")
    run.deliver(*events)
    assert run.row("a").kill_requested
    assert not run.row("a").pause_requested
    assert not run.run.tasks["a"].pause_requested
