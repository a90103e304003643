"""Recoveries in a tree: a sub process through its root, and a child for its parent's task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from common.model.commands import CommandType, child_command_type
from common.model.instances import TaskRow
from common.model.plans import ChildOf, Drop, ParentSnapshot, Plan, SetIntent
from common.model.states import ProcessState
from tests.unit.commands.planning import a_definition, a_parent, about, planned, read, why
from tests.unit.commands.recoveries import (
    ALLOWED,
    BAD,
    ENDED,
    EVERY_END,
    FAILED,
    GONE,
    REPEAT,
    SUSPENDED,
    a_task,
    an_instance,
    restarted,
    values,
)

# A sub process is recovered through its root


@pytest.mark.parametrize("command_type", [SUSPENDED, FAILED, REPEAT])
def test_a_recovery_of_a_sub_process_is_one_of_its_root(command_type: CommandType) -> None:
    root = an_instance(ALLOWED[command_type][0], a_task("a", GONE), id=2, owner_epoch=7)
    found = restarted(planned(about(command_type), a_definition(), instance=root, asked=12))
    assert (found.process_instance_id, found.epoch, found.child_of) == (2, 7, None)


def test_a_refusal_says_to_which_root_the_sub_process_belongs() -> None:
    root = an_instance(ProcessState.SUCCESS, id=2)
    reason = why(planned(about(FAILED), a_definition(), instance=root, asked=12))
    assert reason.startswith("process instance 2, to which the sub process 12 belongs, is SUCCESS")


@pytest.mark.parametrize("command_type", [CommandType.PAUSE, CommandType.STOP])
def test_an_intent_for_a_sub_process_is_one_for_its_root(command_type: CommandType) -> None:
    found = planned(about(command_type), instance=an_instance(id=2), asked=12)
    assert isinstance(found, SetIntent)
    assert found.process_instance_id == 2


# The child of a SUB_PROCESS task that runs again


def child_recovered(
    command_type: CommandType, *tasks: TaskRow, state: ProcessState, **columns: Any
) -> Plan:
    param = json.dumps(
        {
            "id": 9,
            "parentProcessInstanceId": 2,
            "parentTaskInstanceId": 45,
            "processInstanceId": 12,
            "ProcessInstanceId": 12,
        }
    )
    command = read(param, command_type=int(command_type), parent_task_instance_id=45)
    child = an_instance(state, *tasks, root_id=2, **columns)
    return planned(command, a_definition(), instance=child, parent=a_parent())


BY_TASKS = (SUSPENDED, FAILED, REPEAT)


@pytest.mark.parametrize("command_type", BY_TASKS)
@pytest.mark.parametrize("state", ENDED)
def test_a_child_is_recovered_whatever_it_ended_as_t74(
    command_type: CommandType, state: ProcessState
) -> None:
    found = restarted(child_recovered(command_type, *EVERY_END, state=state))
    assert found.child_of == ChildOf(process_instance_id=2, task_instance_id=45, root_id=2)
    wanted = ["b", "c", "d", "e"]
    assert sorted(found.reset) == (["a", *wanted] if command_type is REPEAT else wanted)


def test_a_child_whose_tasks_a_failure_has_killed_goes_on_with_its_parent_t74() -> None:
    tasks = (a_task("a", BAD), a_task("b", GONE), a_task("c"))
    found = restarted(child_recovered(SUSPENDED, *tasks, state=ProcessState.FAILURE))
    assert sorted(found.reset) == ["a", "b"]


@pytest.mark.parametrize("command_type", BY_TASKS)
def test_a_child_has_its_parent_s_values_worked_out_anew_t33b(command_type: CommandType) -> None:
    child = an_instance(ProcessState.STOP, root_id=2, global_params='[{"prop": "x", "value": "1"}]')
    command = read('{"ProcessInstanceId": 12}', command_type=int(command_type), **OF_45)
    parent = a_parent(global_params='[{"prop": "x", "value": "2"}]')
    found = restarted(planned(command, a_definition(), instance=child, parent=parent))
    assert values(found) == {"x": "2"}


OF_45 = {"parent_task_instance_id": 45}


def test_a_child_s_row_names_the_attempt_that_it_runs_for_now() -> None:
    stored = '{"id": "3", "parentTaskInstanceId": "40", "processInstanceId": "12", "k": "v"}'
    found = child_recovered(REPEAT, state=ProcessState.SUCCESS, command_param=stored)
    assert json.loads(restarted(found).command_param or "") == {
        "id": "9",
        "parentProcessInstanceId": "2",
        "parentTaskInstanceId": "45",
        "processInstanceId": "12",
        "k": "v",
    }


def test_a_child_that_is_not_waited_for_any_more_is_not_recovered_t36c() -> None:
    command = read('{"ProcessInstanceId": 12}', command_type=int(REPEAT), **OF_45)
    child = an_instance(ProcessState.STOP, root_id=2)
    found = planned(command, a_definition(), instance=child, parent=a_parent(waits=False))
    assert found == Drop(reason="task 'sub' does not wait for its child any more")


def test_a_child_that_has_not_ended_yet_fails_the_attempt_that_wants_it() -> None:
    assert "it has not ended" in why(child_recovered(REPEAT, state=ProcessState.READY_STOP))


@pytest.mark.parametrize("root_id", [0, 5])
def test_a_run_of_another_tree_can_t_be_made_a_child_by_hand(root_id: int) -> None:
    command = read('{"ProcessInstanceId": 12}', command_type=int(REPEAT), **OF_45)
    foreign = an_instance(ProcessState.SUCCESS, root_id=root_id)
    found = planned(command, a_definition(), instance=foreign, parent=a_parent())
    assert why(found) == "process instance 12 is no sub process of process instance 2"


def test_a_task_that_can_have_no_child_recovers_none() -> None:
    command = read('{"ProcessInstanceId": 12}', command_type=int(REPEAT), **OF_45)
    found = planned(command, a_definition(), instance=an_instance(ProcessState.SUCCESS, root_id=2))
    assert "task instance 45 is no SUB_PROCESS" in why(found)


def test_a_child_keeps_to_its_own_definition_though_its_task_names_another_by_now() -> None:
    command = read('{"ProcessInstanceId": 12}', command_type=7, process_definition_id=8, **OF_45)
    child = an_instance(ProcessState.SUCCESS, root_id=2)
    other = a_definition(id=8, global_params='[{"prop": "x", "value": "other"}]')
    found = restarted(planned(command, other, instance=child, parent=a_parent()))
    assert values(found) == {}


@pytest.mark.parametrize(
    ("history", "has_child", "wanted"),
    [
        (["SCHEDULER"], False, CommandType.SCHEDULER),
        (["COMPLEMENT_DATA", "REPEAT_RUNNING"], False, CommandType.COMPLEMENT_DATA),
        (["START_CURRENT_TASK_PROCESS"], False, CommandType.START_PROCESS),
        (["SCHEDULER", "REPEAT_RUNNING"], True, REPEAT),
        (["START_PROCESS", "STOP", "RECOVER_SUSPENDED_PROCESS"], True, SUSPENDED),
        (["SCHEDULER", "START_FAILURE_TASK_PROCESS", "PAUSE"], True, FAILED),
        (["START_PROCESS", "EXECUTE_TASK"], True, REPEAT),
        (["START_PROCESS", "RECOVER_TOLERANCE_FAULT_PROCESS"], True, REPEAT),
        ([], True, REPEAT),
        (["?"], False, CommandType.START_PROCESS),
    ],
)
def test_a_child_is_treated_as_its_parent_was_t34(
    history: Sequence[str], has_child: bool, wanted: CommandType
) -> None:
    assert child_command_type(history, has_child=has_child) is wanted


def test_x111_a_recovered_child_of_another_project_gets_only_values_that_it_declares() -> None:
    of_parent = a_parent(
        global_params='[{"prop": "part", "value": "$(id)"}]',
        project_id=9,
        shared=frozenset({3}),
    )
    command = read('{"ProcessInstanceId": 12}', command_type=int(FAILED), **OF_45)

    def found(project_id: int | None, parent: ParentSnapshot, definition_id: int = 3) -> Plan:
        child = an_instance(
            ProcessState.FAILURE, a_task("a", BAD), shape="a", root_id=2, project_id=project_id
        )
        # The definition that the SUB_PROCESS task names now may be another one.
        named = a_definition(id=definition_id, project_id=8)
        return planned(command, named, instance=child, parent=parent)

    assert values(restarted(found(8, of_parent))) == {}
    assert values(restarted(found(9, of_parent))) == {"part": "$(id)"}
    # The definition was deleted: the run keeps the parameters that it had.
    assert restarted(found(None, of_parent)).global_params is None
    unshared = replace(of_parent, shared=frozenset())
    for definition_id in (3, 4):
        assert "there is no process definition" in why(found(8, unshared, definition_id))
