"""Retries, intents and deadlines in the loop that owns runs: each is acted on in its time."""

from __future__ import annotations

from datetime import timedelta

from common.model.states import ProcessState, TaskState
from master.loops.run_worker import RunWorkerConfig
from tests.builders import NOON
from tests.one_master import MINUTE, OneMaster


def test_a_retry_is_submitted_when_it_is_due_and_the_loop_rests_until_then(
    master: OneMaster,
) -> None:
    run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    master.step()
    assert master.later(MINUTE - timedelta(milliseconds=300)) == timedelta(milliseconds=300)
    assert master.names(run) == ["a"]
    master.later(timedelta(milliseconds=300))
    assert master.names(run) == ["a", "a"]


def test_every_promised_retry_of_a_run_comes_though_one_timer_is_armed(master: OneMaster) -> None:
    again = {"maxRetryTimes": 1, "retryInterval": 1}
    run = master.begin("a b c", of_task={"a": again, "b": again, "c": again})
    master.step()
    for name in ("c", "a", "b"):
        master.end(run, name, TaskState.FAILURE)
        master.later(timedelta(seconds=10))
    for _ in range(6):
        master.later(timedelta(seconds=10))
    assert master.names(run) == ["a", "b", "c", "c", "a", "b"]


def test_a_promised_retry_survives_a_restart(master: OneMaster) -> None:
    run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    master.step()
    master.start()
    master.later(timedelta(seconds=59))
    assert master.names(run) == ["a"]
    master.later(timedelta(seconds=1))
    assert master.names(run) == ["a", "a"]


def test_a_far_retry_does_not_gather_a_timer_for_each_step_of_its_run(master: OneMaster) -> None:
    names = [f"t{index}" for index in range(40)]
    run = master.begin(
        f"a {' '.join(names)}", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 100}}
    )
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    for name in names:
        master.step()
        master.end(run, name)
    master.step()
    assert len(master.runs._timers) == 1


def test_a_stop_that_is_wanted_is_found_by_comparison(master: OneMaster) -> None:
    run = master.begin("a b >> c")
    master.step()
    running = master.claim(run, "a")
    master.stop(run)
    master.runs.check_tables()
    master.step()
    assert master.state(run) is ProcessState.READY_STOP
    assert master.valid(run, "b").state == TaskState.KILL
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]
    master.end(run, "a", TaskState.KILL)
    master.later(MINUTE)
    assert master.state(run) is ProcessState.STOP


def test_a_pause_that_is_wanted_is_found_by_comparison(master: OneMaster) -> None:
    run = master.begin("a b >> c")
    master.step()
    master.claim(run, "a")
    master.pause(run)
    master.runs.check_tables()
    master.step()
    assert master.state(run) is ProcessState.READY_PAUSE
    assert master.valid(run, "b").state == TaskState.PAUSE
    master.end(run, "a")
    master.later(MINUTE)
    assert master.state(run) is ProcessState.PAUSE
    assert master.names(run) == ["a", "b"]


def test_a_stop_outranks_the_pause_that_was_wanted_before_it(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    running = master.claim(run, "a")
    for request in (master.pause, master.stop):
        request(run)
        master.runs.check_tables()
        master.step()
    assert master.state(run) is ProcessState.READY_STOP
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]


def test_a_process_that_took_too_long_ends_as_a_failure(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    running = master.claim(run, "a")
    master.database.update(master.database.processes, run, timeout=1, timeout_strategy=1)
    master.clock.move_to(MINUTE)
    assert master.timeouts.time_out(now=master.clock.now()) == 1
    master.runs.check_tables()
    master.step()
    assert master.state(run) is ProcessState.READY_STOP
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]
    master.end(run, "a", TaskState.KILL)
    master.step()
    assert master.state(run) is ProcessState.FAILURE
    assert "longer than its time-out" in str(master.process(run).state_reason)


def test_a_stop_is_over_by_its_deadline_whatever_workers_do() -> None:
    master = OneMaster(config=RunWorkerConfig(stop_deadline=timedelta(seconds=5)))
    run = master.begin("a >> b")
    master.step()
    master.claim(run, "a")
    master.stop(run)
    master.runs.check_tables()
    master.step()
    assert master.later(timedelta(seconds=4.7)) == timedelta(seconds=0.3)
    assert master.state(run) is ProcessState.READY_STOP
    master.later(timedelta(seconds=0.3))
    assert master.state(run) is ProcessState.STOP
    assert master.valid(run, "a").state == TaskState.KILL


def test_a_deadline_counts_from_the_intent_and_survives_a_restart() -> None:
    master = OneMaster(config=RunWorkerConfig(stop_deadline=timedelta(seconds=5)))
    run = master.begin("a")
    master.step()
    master.claim(run, "a")
    master.stop(run)
    master.clock.move_to(timedelta(seconds=3))
    master.runs.check_tables()
    master.step()
    master.start()
    master.later(timedelta(seconds=1.9))
    assert master.state(run) is ProcessState.READY_STOP
    master.later(timedelta(seconds=0.1))
    assert master.state(run) is ProcessState.STOP


def test_a_deadline_that_is_left_in_a_row_does_not_keep_the_loop_busy(master: OneMaster) -> None:
    run = master.begin("a")
    master.step()
    master.database.update(master.database.processes, run, wanted_deadline=NOON)
    master.start()
    assert master.step() == timedelta(seconds=1)
    assert not master.runs._timers


def test_a_timer_of_a_run_that_has_ended_since_changes_nothing() -> None:
    master = OneMaster(config=RunWorkerConfig(stop_deadline=timedelta(seconds=5)))
    run = master.begin("a")
    master.step()
    master.claim(run, "a")
    master.stop(run)
    master.runs.check_tables()
    master.step()
    master.end(run, "a", TaskState.KILL)
    master.step()
    ended = master.process(run)
    master.later(timedelta(seconds=9))
    assert master.process(run) == ended
