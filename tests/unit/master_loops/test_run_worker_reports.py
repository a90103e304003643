"""Ends of tasks reach the loop that owns runs: by notification, by comparison, with their outputs."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from common.errors import ServiceUnreachableError
from common.model.failures import FailureReason
from common.model.instances import TaskReport
from common.model.states import ProcessState, TaskState
from common.store.worker.ports import AttemptEnd
from tests.builders import NOON
from tests.one_master import MINUTE, WORKER, OneMaster


def test_a_notification_brings_the_reason_by_which_a_retry_is_decided(master: OneMaster) -> None:
    policy = {"maxRetryTimes": 3, "retryInterval": 1, "retryOn": ["FETCH_FAILED"]}
    run = master.begin("a", of_task={"a": policy})
    master.step()
    master.end(run, "a", TaskState.FAILURE, failure=FailureReason.FETCH_FAILED)
    master.step()
    assert master.state(run) is ProcessState.RUNNING
    master.later(MINUTE)
    master.end(run, "a", TaskState.FAILURE, failure=FailureReason.ANALYSIS_ERROR)
    master.step()
    assert master.state(run) is ProcessState.FAILURE
    assert master.names(run) == ["a", "a"]


def test_a_notification_of_a_run_that_is_being_stepped_is_not_lost(master: OneMaster) -> None:
    run = master.begin("a b >> c")
    master.step()
    master.end(run, "a")
    # Read by another thread while the save of the first report is running.
    master.amid_the_next_save(lambda: master.end(run, "b"))
    assert master.step() == timedelta()
    master.step()
    assert master.names(run) == ["a", "b", "c"]


def test_a_notification_of_somebody_else_s_run_is_not_read(master: OneMaster) -> None:
    run = master.begin("a")
    master.step()
    woken = master.wakes
    master.runs.reported(
        TaskReport(
            process_instance_id=run + 1,
            task_instance_id=99,
            name="a",
            attempt=1,
            state=TaskState.SUCCESS,
            end_time=NOON,
        )
    )
    assert master.wakes == woken
    assert master.step() > timedelta()


def test_a_lost_notification_costs_a_comparison_and_nothing_more(master: OneMaster) -> None:
    run = master.begin("a")
    master.step()
    task = master.claim(run, "a")
    end = AttemptEnd(task_instance_id=task, state=TaskState.SUCCESS, end_time=master.clock.now())
    master.tasks.report(WORKER, [end])
    assert master.step() <= timedelta(seconds=1)
    assert master.state(run) is ProcessState.RUNNING
    master.later(timedelta(seconds=1))
    assert master.state(run) is ProcessState.SUCCESS


def test_a_run_without_a_notification_is_found_by_comparison(master: OneMaster) -> None:
    run = master.begin("a")
    master.start()
    master.step()
    assert master.names(run) == ["a"]


OUTPUT = '[{"prop": "x", "direct": "OUT", "type": "VARCHAR", "value": "7"}]'


def test_what_a_task_put_out_is_read_from_its_row(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a", var_pool=OUTPUT)
    master.step()
    assert json.loads(master.valid(run, "b").input_pool or "") == [
        {"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "7"}
    ]


def test_only_a_report_with_an_output_costs_a_query(master: OneMaster) -> None:
    run = master.begin("a >> b >> c")
    master.step()
    master.store.asked.clear()
    master.end(run, "a")
    master.step()
    assert master.store.asked == []
    master.end(run, "b", var_pool=OUTPUT)
    master.step()
    assert master.store.asked == ["reports"]
    assert master.names(run) == ["a", "b", "c"]


def test_a_report_whose_output_is_not_to_be_had_yet_is_not_acted_on(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a", var_pool=OUTPUT)
    master.store.broken = ("reports",)
    with pytest.raises(ServiceUnreachableError):
        master.step()
    assert master.names(run) == ["a"]
    master.store.broken = ()
    master.later(MINUTE)
    assert master.valid(run, "b").input_pool is not None


@pytest.mark.parametrize("state", [state for state in TaskState if not state.is_finished])
def test_a_notification_that_speaks_of_no_end_is_no_report(
    master: OneMaster, state: TaskState
) -> None:
    run = master.begin("a")
    master.step()
    report = TaskReport(
        process_instance_id=run,
        task_instance_id=1,
        name="a",
        attempt=1,
        state=state,
        end_time=NOON,
    )
    master.runs.reported(report)
    master.step()
    assert master.state(run) is ProcessState.RUNNING


def test_an_end_that_a_person_has_written_by_hand_costs_no_other_run_a_thing(
    master: OneMaster,
) -> None:
    odd, good = master.begin("a >> b"), master.begin("a")
    master.step()
    task = master.claim(odd, "a")
    forced = int(TaskState.FORCED_SUCCESS)
    master.database.update(master.database.tasks, task, state=forced, end_time=NOON)
    for _ in range(4):
        master.later(timedelta(seconds=1))
    master.end(good, "a")
    master.step()
    assert master.state(good) is ProcessState.SUCCESS
    # No decision fits the row, and a run that can't continue is ended.
    assert master.state(odd) is ProcessState.FAILURE


def test_a_paused_attempt_is_reported_as_such(master: OneMaster) -> None:
    run = master.begin("a b")
    master.step()
    master.pause(run)
    master.runs.check_tables()
    master.step()
    # A withdrawn attempt is settled by its own report, like any other.
    master.later(MINUTE)
    assert master.state(run) is ProcessState.PAUSE
    assert [task.state for task in master.attempts(run)] == [TaskState.PAUSE, TaskState.PAUSE]
