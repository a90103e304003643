"""EXECUTE_TASK: chosen nodes of an instance run again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.model.instances import TaskRow
from common.model.plans import Plan
from common.model.states import ProcessState, TaskDependType
from tests.unit.commands.planning import a_definition, planned, read, why
from tests.unit.commands.recoveries import (
    BAD,
    CONDITIONS,
    DONE,
    EXECUTE,
    a_task,
    an_instance,
    restarted,
)


def executed(
    names: str, *tasks: TaskRow, mode: TaskDependType = TaskDependType.TASK_ONLY, **columns: Any
) -> Plan:
    command = read(
        json.dumps({"ProcessInstanceId": 12, "StartNodeNameList": names}),
        command_type=int(EXECUTE),
        task_depend_type=int(mode),
    )
    instance = an_instance(ProcessState.FAILURE, *tasks, shape="a >> b >> c; d", **columns)
    return planned(command, a_definition(), instance=instance)


ALL_DONE = tuple(a_task(name) for name in "abcd")


@pytest.mark.parametrize(
    ("mode", "scope"),
    [
        (TaskDependType.TASK_ONLY, ("b",)),
        (TaskDependType.TASK_PRE, ("a", "b")),
        (TaskDependType.TASK_POST, ("b", "c")),
    ],
)
def test_chosen_nodes_run_with_those_that_the_depend_type_adds(
    mode: TaskDependType, scope: tuple[str, ...]
) -> None:
    found = restarted(executed("b", *ALL_DONE, mode=mode))
    assert (found.run_scope, found.reset) == (scope, scope)


def test_a_chosen_node_that_never_ran_is_in_the_scope_and_needs_no_reset() -> None:
    found = restarted(executed("b,d", a_task("a"), a_task("b", BAD)))
    assert sorted(found.run_scope or ()) == ["b", "d"]
    assert found.reset == ("b",)


@pytest.mark.parametrize(
    ("names", "which"),
    [("x", "node 'x'"), ("a,x,y", "nodes 'x', 'y'"), ("A", "node 'A'"), ("a b", "node 'a b'")],
)
def test_nodes_that_the_instance_does_not_have_are_named(names: str, which: str) -> None:
    assert why(executed(names)) == f"process instance 12 has no selected {which}"


def test_nodes_outside_the_first_selection_can_t_be_chosen_t72() -> None:
    found = executed("d", command_param='{"StartNodeNameList": "a"}')
    assert why(found) == "process instance 12 has no selected node 'd'"


def test_the_scope_stays_within_the_first_selection_t72() -> None:
    found = executed(
        "b",
        mode=TaskDependType.TASK_PRE,
        command_param='{"StartNodeNameList": "b"}',
    )
    assert restarted(found).run_scope == ("b",)


GUARDED = "a >> c >> good >> report; c >> cure >> join; extract >> good; report >> join"
INNER = CONDITIONS | {
    "dependence": {
        "relation": "AND",
        "dependTaskList": [
            {"relation": "AND", "dependItemList": [{"depTasks": "c", "status": "SUCCESS"}]}
        ],
    },
    "conditionResult": {"successNode": ["load"], "failedNode": []},
}


def scope_of(
    names: str,
    *,
    shape: str = GUARDED,
    mode: TaskDependType = TaskDependType.TASK_POST,
    bad: bool = True,
    **of_task: Any,
) -> tuple[str, ...] | None:
    """Return the scope in a run whose CONDITIONS took `cure`, or `good` if nothing was bad."""
    branch = ("cure",) if bad else ("good",)
    end = BAD if bad else DONE
    tasks = (a_task("a", end), a_task("c", end, branch=branch), a_task("extract"))
    command = read(
        json.dumps({"ProcessInstanceId": 12, "StartNodeNameList": names}),
        command_type=int(EXECUTE),
        task_depend_type=int(mode),
    )
    instance = an_instance(
        ProcessState.SUCCESS, *tasks, shape=shape, of_task={"c": CONDITIONS, **of_task}
    )
    return restarted(planned(command, a_definition(), instance=instance)).run_scope


def test_a_branch_that_was_not_taken_does_not_run_because_it_follows_a_chosen_node() -> None:
    assert scope_of("extract") == ("extract",)


def test_a_branch_that_was_taken_runs_again_after_a_chosen_node() -> None:
    assert scope_of("extract", bad=False) == ("extract", "good", "report", "join")


def test_what_another_way_leads_to_runs_without_the_branch_that_was_not_taken() -> None:
    assert scope_of("extract", shape=GUARDED + "; extract >> join") == ("extract", "join")


def test_a_branch_that_was_not_taken_runs_if_somebody_names_it() -> None:
    assert scope_of("good") == ("good", "report", "join")
    assert scope_of("good", mode=TaskDependType.TASK_ONLY) == ("good",)
    assert scope_of("extract,good") == ("extract", "good", "report", "join")


def test_a_branch_is_chosen_anew_where_its_conditions_run_too() -> None:
    everything = {"c", "extract", "cure", "good", "report", "join"}
    assert set(scope_of("c,extract") or ()) == everything


def test_a_branch_of_conditions_that_were_skipped_does_not_run_either() -> None:
    shape = "a >> c >> good >> load; c >> cure; extract >> load"
    assert scope_of("extract", shape=shape, good=INNER) == ("extract",)
    assert scope_of("extract", shape=shape, good=INNER, bad=False) == ("extract", "load")


@pytest.mark.parametrize("names", ["", " , "])
def test_running_nodes_needs_their_names(names: str) -> None:
    assert why(executed(names)).startswith("EXECUTE_TASK needs the nodes to run")


def test_running_nodes_of_a_sub_process_is_refused_with_its_root() -> None:
    reason = why(executed("a", root_id=2))
    assert reason.startswith("process instance 12 is a sub process of 2")
    assert "run the SUB_PROCESS node there" in reason
