"""Runs that wait for their children, in the loop that owns both: room, ends and intents."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from common.errors import ServiceUnreachableError
from common.model.states import ProcessState, TaskState
from tests.builders import NOON, a_definition_json
from tests.one_master import MINUTE, OneMaster


def _with_child(master: OneMaster) -> tuple[int, int]:
    """A run with a running sub process; the ids of both runs."""
    master.database.insert(
        master.database.definitions,
        name="child",
        release_state=1,
        process_definition_json=a_definition_json("x"),
    )
    sub = {"type": "SUB_PROCESS", "params": {"processDefinitionName": "child"}}
    run = master.begin("sub >> b", of_task={"sub": sub})
    master.step()
    child = master.take_child()
    master.step()
    return run, child


def test_t67_tasks_that_wait_hold_up_no_other_and_take_no_thread(master: OneMaster) -> None:
    item = {"definitionId": 4711, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    group = {"relation": "AND", "dependItemList": [item]}
    dependence = {"relation": "AND", "dependTaskList": [group]}
    waiting = [f"wait{n}" for n in range(30)]
    dependent = {"type": "DEPENDENT", "dependence": dependence}
    run = master.begin(f"{' '.join(waiting)}; a >> b", of_task=dict.fromkeys(waiting, dependent))
    threads = threading.active_count()
    master.step()
    assert {task.state for task in master.attempts(run) if task.name in waiting} == {
        TaskState.RUNNING
    }
    for name in ("a", "b"):
        master.end(run, name)
        master.step()
    assert master.names(run)[-2:] == ["a", "b"]
    assert threading.active_count() == threads
    # The rest of the run only waits, so it takes no room from the runs it waits for.
    assert master.runs.active == 0


def test_a_dependent_that_a_person_has_passed_lets_its_run_continue(master: OneMaster) -> None:
    item = {"definitionId": 4711, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    group = {"relation": "AND", "dependItemList": [item]}
    dependence = {"relation": "AND", "dependTaskList": [group]}
    dependent = {"type": "DEPENDENT", "dependence": dependence}
    run = master.begin("wait >> b", of_task={"wait": dependent})
    master.step()
    waiting = master.valid(run, "wait")
    forced = int(TaskState.FORCED_SUCCESS)
    master.database.update(master.database.tasks, waiting.id, state=forced, end_time=NOON)
    for _ in range(4):
        master.later(timedelta(seconds=1))
    assert master.names(run) == ["wait", "b"]
    assert (master.valid(run, "wait").state, master.valid(run, "wait").settled) == (forced, True)


def test_a_parent_that_waits_for_its_child_takes_no_room_t36d(master: OneMaster) -> None:
    run, child = _with_child(master)
    assert master.names(child) == ["x"]
    # The parent gave its room back when only the child was left live in it.
    assert (master.runs.active, master.ends) == (1, 1)
    master.end(child, "x")
    master.step()
    assert (master.runs.active, master.ends) == (0, 2)
    master.deliver_notifications()
    master.step()
    assert master.names(run) == ["sub", "b"]
    assert master.runs.active == 1


def test_the_end_of_a_sub_process_is_a_report_to_its_parent(master: OneMaster) -> None:
    run, child = _with_child(master)
    master.end(child, "x", TaskState.FAILURE)
    master.step()
    assert master.state(child) is ProcessState.FAILURE
    master.deliver_notifications()
    master.step()
    assert master.valid(run, "sub").state == TaskState.FAILURE
    assert master.state(run) is ProcessState.FAILURE


def test_a_stop_is_passed_on_to_the_children_once_it_is_saved(master: OneMaster) -> None:
    run, child = _with_child(master)
    master.stop(run)
    master.runs.check_tables()
    master.store.asked.clear()
    master.step()
    assert master.saved[-1].intents
    assert master.process(child).wanted_state == ProcessState.STOP
    # Once for the pass before the intent, and once for the save with the intent.
    assert master.store.asked.count("propagate_intents") == 2
    master.later(MINUTE)
    master.deliver_notifications()
    master.step()
    assert master.state(child) is ProcessState.STOP
    assert master.state(run) is ProcessState.STOP


def test_an_intent_that_was_not_propagated_is_propagated_at_the_next_comparison(
    master: OneMaster,
) -> None:
    run, child = _with_child(master)
    master.stop(run)
    master.runs.check_tables()
    master.step()
    # As if this master had died in between.
    master.database.update(master.database.processes, child, wanted_state=None)
    master.step()
    assert master.process(child).wanted_state is None
    master.later(timedelta(seconds=1))
    assert master.process(child).wanted_state == ProcessState.STOP


def test_a_save_without_intents_passes_none_on(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.store.asked.clear()
    master.end(run, "a")
    master.step()
    assert master.store.asked == []


def test_an_intent_that_can_t_be_passed_on_costs_no_run_its_step(master: OneMaster) -> None:
    run, child = _with_child(master)
    master.later(timedelta(seconds=1))
    master.stop(run)
    master.runs.check_tables()
    master.store.broken = ("propagate_intents",)
    with pytest.raises(ServiceUnreachableError):
        master.step()
    master.store.broken = ()
    for _ in range(4):
        master.later(MINUTE)
        master.deliver_notifications()
    assert master.state(child) is ProcessState.STOP
    assert master.state(run) is ProcessState.STOP


def test_t36_a_run_that_only_waits_for_others_gives_its_room_back(master: OneMaster) -> None:
    master.database.insert(
        master.database.definitions,
        name="child",
        release_state=1,
        process_definition_json=a_definition_json("x"),
    )
    sub = {"type": "SUB_PROCESS", "params": {"processDefinitionName": "child"}}
    master.begin("s1 s2", of_task={"s1": sub, "s2": sub})
    master.step()
    master.take_child()
    master.take_child()
    # Runs to be opened count; the parent, which only waits, does not.
    assert (master.runs.active, master.ends) == (2, 1)
    master.step()
    assert (master.runs.active, master.ends) == (2, 1)
