"""Loading and recovery: a run equals its rows, whoever made it live again and for what."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.dag import select
from common.model.control import Outcome
from common.model.decisions import Decision, FinishProcess, FinishTask, SubmitTask
from common.model.states import FailureStrategy, ProcessState, TaskDependType, TaskState
from master.engine.events import PauseRequested, RunOpened, TimerFired
from master.engine.load import load_run
from master.engine.task_run import ImpossibleError
from tests.builders import (
    NOON,
    SOON,
    KeptRun,
    a_dag,
    conditions,
    put_out,
    stop,
    succeeded,
    switch,
)

END = FailureStrategy.END
GOOD = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)


def kept(text: str, *, ends: dict[str, TaskState] | None = None, **of_run: Any) -> KeptRun:
    """A stored run in which these tasks have ended like this, and all others well, in order."""
    run = KeptRun(text, **of_run)
    run.deliver(RunOpened())
    for name in run.dag.names:
        if name in run.run.live:
            run.claim(name)
    for name in run.dag.names:
        if ends is not None and name in run.run.live:
            run.deliver(run.end(name, ends.get(name, TaskState.SUCCESS)))
    return run


def end(run: KeptRun, name: str, state: TaskState = TaskState.SUCCESS) -> list[Decision]:
    return run.deliver(run.end(name, state))


def submitted(decisions: list[Decision]) -> list[str]:
    return [one.name for one in decisions if isinstance(one, SubmitTask)]


def no_good(run: KeptRun) -> list[str]:
    """The tasks that a rerun of the failed ones sets aside."""
    return [name for name, state in run.states().items() if state not in GOOD]


FAILED = {"a": TaskState.FAILURE}


def test_t56_opening_a_run_that_was_taken_over_makes_no_second_attempt() -> None:
    run = kept("a; b >> c")
    assert run.forget() == []
    assert [(row.name, row.attempt) for row in run.rows] == [("a", 1), ("b", 1)]


def test_t56_a_report_that_was_not_settled_is_live_until_it_is_read() -> None:
    run = kept("a >> b")
    report = run.end("a", TaskState.SUCCESS)
    assert run.forget() == []
    assert submitted(run.deliver(report)) == ["b"]
    assert run.deliver(report) == []


def test_t56_an_attempt_that_was_made_up_for_is_late() -> None:
    run = kept("a >> b")
    late = succeeded("a")
    end(run, "a", TaskState.NEED_FAULT_TOLERANCE)
    assert run.deliver(late) == []
    assert [(row.attempt, row.valid) for row in run.rows] == [(1, False), (2, True)]


def test_t56_an_attempt_must_follow_the_one_before_it() -> None:
    run = kept("a")
    again = SubmitTask(
        name="a",
        attempt=3,
        retry_times=0,
        task_type="SHELL",
        task_json="{}",
        priority=run.nodes["a"].priority,
        worker_group_id=-1,
        max_retry_times=0,
        retry_interval=timedelta(),
    )
    for attempt in (1, 2, 3):
        with pytest.raises(ImpossibleError):
            run.run.apply(replace(again, attempt=attempt))
    # No attempt number may be skipped or used twice when a new attempt is due.
    run = kept("a", ends=FAILED)
    put_aside = replace(run.rows[0], valid=False)
    process = replace(run.process, state=ProcessState.RUNNING)
    due = load_run(run.run.ownership, process, [put_aside], dag=run.dag, nodes=run.nodes)
    for attempt in (1, 3):
        with pytest.raises(ImpossibleError):
            due.apply(replace(again, attempt=attempt))
    due.apply(replace(again, attempt=2))


def test_a_row_of_a_task_that_was_not_selected_is_impossible() -> None:
    run = kept("a; b")
    run.dag = select(run.dag, ["a"], TaskDependType.TASK_ONLY)
    with pytest.raises(ImpossibleError, match="there is a row of 'b', which was not selected"):
        run.load()


# Attempts that are set aside


def test_a_task_that_was_put_aside_runs_again_under_the_next_number() -> None:
    run = kept("a >> b; c", ends=FAILED)
    assert run.state() is ProcessState.FAILURE
    (again,) = run.restart(["a"])
    assert isinstance(again, SubmitTask)
    assert (again.name, again.attempt, again.retry_times) == ("a", 2, 0)


def test_a_recovery_keeps_every_good_result() -> None:
    run = kept("a >> b; c >> d", ends=FAILED)
    run.restart(no_good(run))
    end(run, "a")
    end(run, "b")
    assert run.state() is ProcessState.SUCCESS
    assert [row.attempt for row in run.rows if row.name in ("c", "d")] == [1, 1]


def test_a_task_that_was_put_aside_has_all_its_retries_again() -> None:
    run = KeptRun("a", retries={"a": 1}, interval=timedelta())
    run.deliver(RunOpened())
    end(run, "a", TaskState.FAILURE)
    end(run, "a", TaskState.FAILURE)
    run.restart(["a"])
    end(run, "a", TaskState.FAILURE)
    assert [(row.attempt, row.retry_times) for row in run.rows] == [(1, 0), (2, 1), (3, 0), (4, 1)]


def test_a_late_report_of_an_attempt_that_was_put_aside_changes_nothing() -> None:
    run = kept("b >> a >> d; c", ends=FAILED)
    run.restart(["a", "b"])
    # Its number is still the latest, but it no longer counts.
    assert run.deliver(succeeded("a")) == []
    assert run.phases()["a"] == "idle"


def test_a_task_that_was_done_before_is_not_run_again_by_its_upstream() -> None:
    run = kept("a >> b >> c; x", ends={"x": TaskState.FAILURE})
    run.restart(["a", "x"])
    assert submitted(end(run, "a")) == []
    end(run, "x")
    assert run.state() is ProcessState.SUCCESS


def test_a_promised_retry_below_what_was_put_aside_comes_after_it() -> None:
    run = kept("a >> b; c", retries={"b": 1})
    end(run, "a")
    end(run, "b", TaskState.FAILURE)
    run.deliver(PauseRequested())
    end(run, "c")
    assert run.state() is ProcessState.PAUSE
    assert submitted(run.restart(["a"], now=SOON)) == ["a"]
    assert submitted(end(run, "a")) == ["b"]
    assert [row.attempt for row in run.rows if row.name == "b"] == [1, 2]


# Rerunning failed tasks


def test_t70_a_recovery_with_nothing_to_recover_ends_at_once_as_it_was() -> None:
    run = kept("a >> b", ends={})
    assert run.state() is ProcessState.SUCCESS
    assert run.restart([]) == [FinishProcess(state=ProcessState.SUCCESS)]


def test_t70_a_recovery_with_nothing_to_recover_begins_nothing_that_can_not_run() -> None:
    run = kept("a >> b; c", ends=FAILED)
    assert run.restart([]) == [FinishProcess(state=ProcessState.FAILURE, reason="task 'a' failed")]


def test_t71_a_rerun_of_the_failed_also_runs_what_never_began() -> None:
    run = kept("a >> b; c >> d", strategy=END)
    end(run, "a", TaskState.FAILURE)
    end(run, "c")
    assert run.state() is ProcessState.FAILURE
    assert "d" not in run.states()
    assert submitted(run.restart(["a"])) == ["a", "d"]
    for name in ("a", "b", "d"):
        end(run, name)
    assert run.state() is ProcessState.SUCCESS
    assert sorted(run.states()) == ["a", "b", "c", "d"]


def test_t71_a_failover_after_a_recovery_goes_on_with_the_whole_selection() -> None:
    run = kept("a >> b; c >> d", strategy=END)
    end(run, "a", TaskState.FAILURE)
    end(run, "c")
    run.restart(["a"])
    assert run.forget() == []
    end(run, "d")
    end(run, "a")
    assert run.state() is ProcessState.RUNNING
    end(run, "b")
    assert run.state() is ProcessState.SUCCESS


def test_t71_a_recovery_of_a_pause_runs_what_was_ready_and_had_no_row() -> None:
    run = kept("a >> b")
    run.deliver(PauseRequested())
    end(run, "a")
    assert run.state() is ProcessState.PAUSE
    assert submitted(run.restart([])) == ["b"]


@pytest.mark.parametrize(
    ("mode", "start", "runs"),
    [
        (TaskDependType.TASK_POST, "b", "b c d"),
        (TaskDependType.TASK_PRE, "c", "a b c"),
        (TaskDependType.TASK_ONLY, "b c", "b c"),
    ],
)
def test_t72_a_recovery_keeps_the_selection_that_was_first_asked_for(
    mode: TaskDependType, start: str, runs: str
) -> None:
    run = KeptRun("a >> b >> c >> d; other")
    run.dag = select(a_dag("a >> b >> c >> d; other"), start.split(), mode)
    run.run = run.load()
    run.deliver(RunOpened())
    first, *others = runs.split()
    end(run, first, TaskState.FAILURE)
    assert run.state() is ProcessState.FAILURE
    run.restart([first])
    for name in (first, *others):
        end(run, name)
    assert run.state() is ProcessState.SUCCESS
    assert sorted(run.states()) == runs.split()


def test_t25_t27_an_upstream_that_is_not_selected_holds_nothing_up() -> None:
    run = KeptRun("a >> b >> c; x >> c")
    run.dag = select(run.dag, ["b"], TaskDependType.TASK_POST)
    run.run = run.load()
    assert submitted(run.deliver(RunOpened())) == ["b"]
    assert submitted(end(run, "b")) == ["c"]


def test_t30_what_was_skipped_for_one_run_is_free_for_the_next() -> None:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    run = kept("a >> c >> go mail", of_node=of_node, ends={})
    assert run.phases()["mail"] == "skipped"
    run.restart(["a", "c", "go"])
    assert run.phases()["mail"] == "idle"
    end(run, "a", TaskState.FAILURE)
    assert (run.phases()["go"], run.phases()["mail"]) == ("skipped", "live")


def test_t74_tasks_that_end_strategy_killed_run_again_after_a_rerun_of_the_failed() -> None:
    run = kept("a; b >> c", strategy=END)
    end(run, "a", TaskState.FAILURE)
    end(run, "b", TaskState.KILL)
    assert run.state() is ProcessState.FAILURE
    assert submitted(run.restart(no_good(run))) == ["a", "b"]


def test_t42_a_rerun_after_a_failed_branch_decides_the_branch_anew() -> None:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    run = kept(
        "a >> c >> go mail", of_node=of_node, ends={"a": TaskState.FAILURE, "mail": TaskState.KILL}
    )
    assert run.state() is ProcessState.FAILURE
    run.restart(no_good(run))
    end(run, "a")
    end(run, "go")
    assert run.state() is ProcessState.SUCCESS
    assert run.phases()["mail"] == "skipped"


def test_a_forced_success_is_a_success_for_what_is_downstream() -> None:
    run = kept("a >> b; c", ends=FAILED)
    run._change(run.row("a"), state=TaskState.FORCED_SUCCESS)
    assert submitted(run.restart(no_good(run))) == ["b"]
    end(run, "b")
    assert run.state() is ProcessState.SUCCESS


def test_a_forced_success_is_not_retried_though_a_retry_had_been_promised() -> None:
    run = kept("a >> b", retries={"a": 1})
    end(run, "a", TaskState.FAILURE)
    run.deliver(PauseRequested())
    run._change(run.row("a"), state=TaskState.FORCED_SUCCESS)
    assert submitted(run.restart([], now=SOON)) == ["b"]


# Repeat


def test_a_repeated_run_begins_from_its_heads_and_runs_all_again() -> None:
    run = kept("a >> b; c", ends={})
    assert submitted(run.restart(["a", "b", "c"])) == ["a", "c"]
    for name in ("a", "b", "c"):
        end(run, name)
    assert run.state() is ProcessState.SUCCESS
    assert [row.attempt for row in run.rows if row.valid] == [2, 2, 2]


# Chosen nodes alone


def test_only_the_chosen_nodes_run() -> None:
    run = kept("a >> b >> c", ends={})
    assert submitted(run.restart(["b"], scope=["b"])) == ["b"]
    assert end(run, "b") == [
        FinishTask(name="b", attempt=2, state=TaskState.SUCCESS, at=NOON),
        FinishProcess(state=ProcessState.SUCCESS),
    ]


def test_chosen_nodes_keep_their_order() -> None:
    run = kept("a >> b >> c", ends={})
    assert submitted(run.restart(["b", "c"], scope=["b", "c"])) == ["b"]
    assert submitted(end(run, "b")) == ["c"]


def test_a_chosen_node_runs_though_its_upstream_failed() -> None:
    run = kept("a >> b; c", ends=FAILED)
    assert submitted(run.restart([], scope=["b"])) == ["b"]


def test_the_end_of_chosen_nodes_counts_what_was_not_chosen() -> None:
    run = kept("a >> b; c", ends=FAILED)
    run.restart(["c"], scope=["c"])
    assert end(run, "c")[-1] == FinishProcess(state=ProcessState.FAILURE, reason="task 'a' failed")


def test_a_run_that_had_failed_succeeds_once_the_chosen_node_has() -> None:
    run = kept("a; b", ends=FAILED)
    run.restart(["a"], scope=["a"])
    assert end(run, "a")[-1] == FinishProcess(state=ProcessState.SUCCESS)


def test_what_never_ran_and_was_not_chosen_is_no_success() -> None:
    run = kept("a >> b", ends=FAILED)
    run.restart(["a"], scope=["a"])
    assert end(run, "a")[-1] == FinishProcess(
        state=ProcessState.FAILURE, reason="tasks that were not chosen have not succeeded"
    )


def test_a_failure_of_a_chosen_node_fails_the_run() -> None:
    run = kept("a; b", ends={})
    run.restart(["a"], scope=["a"])
    assert end(run, "a", TaskState.FAILURE)[-1] == FinishProcess(
        state=ProcessState.FAILURE, reason="task 'a' failed"
    )


def test_forbidden_nodes_below_a_chosen_one_are_done_when_it_is() -> None:
    run = kept("a >> f >> b", forbidden=["f"], ends={})
    run.restart(["a"], scope=["a"])
    assert end(run, "a")[-1] == FinishProcess(state=ProcessState.SUCCESS)


def test_a_chosen_node_is_given_what_its_upstream_has_put_out() -> None:
    run = kept("a >> b >> c; x", ends=None)
    run.deliver(run.end("a", TaskState.SUCCESS, var_pool=put_out(size="5")))
    end(run, "b")
    end(run, "c")
    end(run, "x")
    (again,) = run.restart(["c"], scope=["c"])
    assert isinstance(again, SubmitTask)
    assert again.input_pool == put_out(size="5")


def test_a_chosen_switch_is_chosen_by_what_its_upstream_has_put_out() -> None:
    of_node = {"s": switch(("${size} > 10", "big"), default="small")}
    run = kept("a >> s >> big small", of_node=of_node)
    run.deliver(run.end("a", TaskState.SUCCESS, var_pool=put_out(size="50")))
    end(run, "big")
    run.restart(["s"], scope=["s"])
    assert run.row("s").attempt == 2
    assert run.row("s").branch == ("big",)
    assert run.state() is ProcessState.SUCCESS


def test_chosen_conditions_look_at_upstream_that_was_not_chosen() -> None:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    run = kept("a >> c >> go mail", of_node=of_node, ends={})
    run.restart(["c"], scope=["c"])
    assert run.row("c").branch == ("go",)
    assert run.state() is ProcessState.SUCCESS


def test_a_chosen_branch_that_leads_elsewhere_leaves_its_targets_to_be_run() -> None:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    run = kept("a >> c >> go mail", of_node=of_node, ends={})
    run.restart(["a", "c"], scope=["a", "c"])
    end(run, "a", TaskState.FAILURE)
    assert run.row("c").branch == ("mail",)
    assert run.state() is ProcessState.FAILURE
    assert submitted(run.restart([])) == ["mail"]


def test_the_failure_of_a_chosen_node_that_conditions_look_at_fails_nothing() -> None:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    run = kept("a >> c >> go mail", of_node=of_node, ends={})
    run.restart(["a"], scope=["a"])
    assert end(run, "a", TaskState.FAILURE)[-1] == FinishProcess(state=ProcessState.SUCCESS)


def test_a_chosen_node_that_others_lead_to_is_not_skipped_by_a_chosen_branch() -> None:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    run = kept("a >> c >> go mail; b >> mail", of_node=of_node, ends={})
    assert submitted(run.restart(["c", "mail"], scope=["c", "mail"])) == ["mail"]


def test_under_end_a_failure_that_was_not_chosen_keeps_nothing_from_running() -> None:
    run = kept("a; b", strategy=END, ends={"b": TaskState.FAILURE})
    assert submitted(run.restart(["a"], scope=["a"])) == ["a"]


def test_chosen_nodes_survive_a_failover() -> None:
    run = kept("a >> b >> c", ends={})
    run.restart(["b"], scope=["b"])
    assert run.forget() == []
    end(run, "b")
    assert run.state() is ProcessState.SUCCESS


def test_a_late_report_of_a_node_that_was_not_chosen_changes_nothing() -> None:
    run = kept("a >> b", ends={})
    run.restart(["b"], scope=["b"])
    assert run.deliver(succeeded("a")) == []


def test_a_report_of_a_task_that_nobody_selected_is_impossible() -> None:
    run = kept("a >> b", ends={})
    run.restart(["b"], scope=["b"])
    with pytest.raises(ImpossibleError, match="can't have happened"):
        run.deliver(succeeded("z"))


def test_chosen_nodes_can_be_paused_stopped_and_retried() -> None:
    run = kept("a >> b", retries={"b": 1}, ends={})
    run.restart(["b"], scope=["b"])
    end(run, "b", TaskState.FAILURE)
    assert submitted(run.deliver(TimerFired(name="b", attempt=2), now=SOON)) == ["b"]
    run.deliver(stop())
    run.settle()
    assert run.state() is ProcessState.STOP
