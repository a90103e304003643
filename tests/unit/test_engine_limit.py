"""The number of tasks of one run that workers may hold at a time (`master.exec_task_num`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from common.model.decisions import SubmitTask
from common.model.states import Priority, ProcessState
from master.engine.events import PauseRequested, RunOpened, TimerFired
from master.engine.run import ProcessRun
from tests.builders import NOON, a_run, deliver, failed, succeeded


def a_limited_run(text: str, limit: int, **changes: object) -> ProcessRun:
    run = a_run(text, opened=False, **changes)  # type: ignore[arg-type]  # Handed on as given.
    run.task_limit = limit
    return run


def submitted(decisions: Sequence[object]) -> list[str]:
    return [one.name for one in decisions if isinstance(one, SubmitTask)]


def test_no_more_than_the_limit_are_submitted_and_the_next_follows_an_end() -> None:
    run = a_limited_run("a; b; c; d", 2)
    assert submitted(deliver(run, RunOpened())) == ["a", "b"]
    assert submitted(deliver(run, succeeded("a"))) == ["c"]
    assert submitted(deliver(run, failed("b"))) == ["d"]
    deliver(run, succeeded("c"), succeeded("d"))
    assert run.state is ProcessState.FAILURE


def test_the_more_urgent_goes_first_though_it_was_ready_later() -> None:
    run = a_limited_run("a >> x; b; c", 1, priorities={"x": Priority.HIGHEST})
    assert submitted(deliver(run, RunOpened())) == ["a"]
    assert submitted(deliver(run, succeeded("a"))) == ["x"]
    assert submitted(deliver(run, succeeded("x"))) == ["b"]


def test_a_promised_retry_keeps_its_place() -> None:
    run = a_limited_run("a; b", 1, retries={"a": 1})
    deliver(run, RunOpened())
    assert submitted(deliver(run, failed("a"))) == []
    later = NOON + timedelta(minutes=1)
    assert submitted(deliver(run, TimerFired(name="a", attempt=1), now=later)) == ["a"]
    assert submitted(deliver(run, succeeded("a", attempt=2))) == ["b"]


def test_t67_tasks_that_wait_in_the_master_take_nobodys_place() -> None:
    run = a_limited_run(
        "w1; w2; w3; a",
        1,
        of_node={name: {"task_type": "DEPENDENT"} for name in ("w1", "w2", "w3")},
    )
    assert submitted(deliver(run, RunOpened())) == ["w1", "w2", "w3", "a"]


def test_a_limited_run_that_pauses_keeps_what_waits_for_a_place() -> None:
    run = a_limited_run("a; b", 1)
    deliver(run, RunOpened(), PauseRequested(), succeeded("a"))
    assert run.state is ProcessState.PAUSE
    assert list(run.deferred) == ["b"]
