"""Commands about an existing instance: recovering it, running parts of it, stopping it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.cluster import Node
from common.model.commands import (
    RESTARTING_COMMANDS,
    Command,
    CommandType,
    child_command_type,
    read_command,
)
from common.model.instances import TaskRow
from common.model.plans import (
    ChildOf,
    Drop,
    InstanceSnapshot,
    Plan,
    Reject,
    Restart,
    Resume,
    SetIntent,
)
from common.model.states import ExecutionType, ProcessState, ReleaseState, TaskDependType, TaskState
from tests.builders import NOON, a_definition_json
from tests.unit.test_commands import (
    MASTER,
    TOO_DEEP,
    TOO_MANY_DIGITS,
    a_definition,
    a_parent,
    a_row,
    about,
    planned,
    read,
    why,
)

SUSPENDED = CommandType.RECOVER_SUSPENDED_PROCESS
FAILED = CommandType.START_FAILURE_TASK_PROCESS
REPEAT = CommandType.REPEAT_RUNNING
EXECUTE = CommandType.EXECUTE_TASK
FAILOVER = CommandType.RECOVER_TOLERANCE_FAULT_PROCESS
WAITING_THREAD = CommandType.RECOVER_WAITTING_THREAD
SERIAL_WAIT = CommandType.RECOVER_SERIAL_WAIT
RESUMING = (FAILOVER, WAITING_THREAD, SERIAL_WAIT)
ABOUT_ONE = (*RESTARTING_COMMANDS, *RESUMING, CommandType.PAUSE, CommandType.STOP)

LIVE = [state for state in ProcessState if not state.is_terminal]
ENDED = [state for state in ProcessState if state.is_terminal]
DONE, BAD, HELD, GONE, LOST = (
    TaskState.SUCCESS,
    TaskState.FAILURE,
    TaskState.PAUSE,
    TaskState.KILL,
    TaskState.NEED_FAULT_TOLERANCE,
)
ANY_NODES = "a b c d e >> f"
CONDITIONS = {
    "type": "CONDITIONS",
    "dependence": {
        "relation": "AND",
        "dependTaskList": [
            {"relation": "AND", "dependItemList": [{"depTasks": "a", "status": "SUCCESS"}]}
        ],
    },
    "conditionResult": {"successNode": ["good"], "failedNode": ["cure"]},
}


def a_task(name: str, state: TaskState = DONE, **columns: Any) -> TaskRow:
    """The first attempt at a task, settled; one that was killed was killed on request."""
    task = TaskRow(
        id=1,
        name=name,
        attempt=1,
        state=state,
        retry_times=0,
        valid=True,
        settled=True,
        end_time=NOON,
        retry_at=None,
        kill_requested=state is GONE,
    )
    return replace(task, **columns)


def an_instance(
    state: ProcessState = ProcessState.RUNNING,
    *tasks: TaskRow,
    shape: str = ANY_NODES,
    of_task: dict[str, dict[str, Any]] | None = None,
    **columns: Any,
) -> InstanceSnapshot:
    """Instance 12 of definition 3, with these attempts in order of id."""
    instance = InstanceSnapshot(
        id=12,
        state=state,
        owner=MASTER,
        owner_epoch=4,
        process_definition_id=3,
        process_instance_json=a_definition_json(shape, **(of_task or {})),
        history=("START_PROCESS",),
        tasks=tuple(replace(task, id=number) for number, task in enumerate(tasks, start=1)),
    )
    return replace(instance, **columns)


def restarted(found: Plan) -> Restart:
    assert isinstance(found, Restart), found
    return found


def recovered(
    command_type: CommandType,
    instance: InstanceSnapshot,
    param: str = '{"ProcessInstanceId": 12}',
    **columns: Any,
) -> Restart:
    command = read(param, command_type=int(command_type), **columns)
    return restarted(planned(command, a_definition(), instance=instance))


# All commands about one instance


@pytest.mark.parametrize("command_type", ABOUT_ONE)
def test_an_instance_that_does_not_exist_is_refused_by_its_id(command_type: CommandType) -> None:
    assert why(planned(about(command_type))) == "there is no process instance 12"


@pytest.mark.parametrize("command_type", ABOUT_ONE)
@pytest.mark.parametrize(
    "param", ["{}", '{"ProcessInstanceId": ""}', '{"processInstanceId": 12}', '{"x": 12}']
)
def test_a_command_about_an_instance_must_name_one(command_type: CommandType, param: str) -> None:
    reason = why(planned(about(command_type, param), instance=an_instance()))
    assert reason.startswith("command_param must name the instance: ")


@pytest.mark.parametrize("command_type", ABOUT_ONE)
@pytest.mark.parametrize("value", ["0", "-12", '"-12"', '"twelve"', "99999999999", "1.0", "[12]"])
def test_what_is_no_id_is_refused_with_its_key(command_type: CommandType, value: str) -> None:
    found = planned(
        about(command_type, f'{{"ProcessInstanceId": {value}}}'), instance=an_instance()
    )
    assert "ProcessInstanceId must be the id of an instance, not" in why(found)


def test_an_id_of_thousands_of_digits_is_refused_and_no_error() -> None:
    row = a_row(f'{{"ProcessInstanceId": "{TOO_MANY_DIGITS}"}}', command_type=4)
    found = planned(read_command(row, param_limit_bytes=10_000), instance=an_instance())
    assert "ProcessInstanceId must be the id of an instance" in why(found)


# The states that a recovery is for (contract §11.2)

ALLOWED = {
    SUSPENDED: (ProcessState.PAUSE, ProcessState.STOP),
    FAILED: (ProcessState.FAILURE,),
    REPEAT: ENDED,
    EXECUTE: ENDED,
}
NODE_A = '{"ProcessInstanceId": 12, "StartNodeNameList": "a"}'


@pytest.mark.parametrize("command_type", RESTARTING_COMMANDS)
@pytest.mark.parametrize("state", ProcessState)
def test_a_recovery_is_for_the_states_of_its_kind(
    command_type: CommandType, state: ProcessState
) -> None:
    found = planned(about(command_type, NODE_A), a_definition(), instance=an_instance(state))
    assert isinstance(found, Restart if state in ALLOWED[command_type] else Reject)


@pytest.mark.parametrize("command_type", RESTARTING_COMMANDS)
@pytest.mark.parametrize("state", LIVE)
def test_a_live_instance_can_t_be_recovered(command_type: CommandType, state: ProcessState) -> None:
    reason = why(planned(about(command_type, NODE_A), a_definition(), instance=an_instance(state)))
    assert reason.startswith(f"process instance 12 is {state.name}: it has not ended")


@pytest.mark.parametrize(
    ("command_type", "state", "cure"),
    [
        (SUSPENDED, ProcessState.FAILURE, "START_FAILURE_TASK_PROCESS runs what failed"),
        (SUSPENDED, ProcessState.SUCCESS, "REPEAT_RUNNING runs all of it again"),
        (FAILED, ProcessState.PAUSE, "RECOVER_SUSPENDED_PROCESS goes on with it"),
        (FAILED, ProcessState.STOP, "RECOVER_SUSPENDED_PROCESS goes on with it"),
        (FAILED, ProcessState.SUCCESS, "REPEAT_RUNNING runs all of it again"),
    ],
)
def test_a_refused_recovery_says_which_is_meant_for_the_state(
    command_type: CommandType, state: ProcessState, cure: str
) -> None:
    reason = why(planned(about(command_type), a_definition(), instance=an_instance(state)))
    assert f"{state.name}, for which {command_type.name} is not meant" in reason
    assert cure in reason


@pytest.mark.parametrize("command_type", RESTARTING_COMMANDS)
def test_an_instance_of_an_offline_definition_is_recovered_all_the_same_t39(
    command_type: CommandType,
) -> None:
    state = ALLOWED[command_type][0]
    for definition in (a_definition(release_state=ReleaseState.OFFLINE), None):
        found = planned(about(command_type, NODE_A), definition, instance=an_instance(state))
        assert isinstance(found, Restart)


def test_a_recovery_that_names_another_definition_is_refused_with_both() -> None:
    command = read('{"ProcessInstanceId": 12}', command_type=4, process_definition_id=9)
    found = planned(command, instance=an_instance(ProcessState.FAILURE))
    assert why(found) == (
        "process_definition_id is 9, but process instance 12 is one of process definition 3"
    )


@pytest.mark.parametrize("definition_id", [None, 0, 3])
def test_a_recovery_need_not_name_the_definition(definition_id: int | None) -> None:
    instance = an_instance(ProcessState.FAILURE)
    assert recovered(FAILED, instance, process_definition_id=definition_id).epoch == 4


def test_a_restart_obeys_the_definition_s_execution_type() -> None:
    definition = a_definition(execution_type=ExecutionType.SERIAL_WAIT)
    found = planned(about(FAILED), definition, instance=an_instance(ProcessState.FAILURE))
    assert restarted(found).execution_type is ExecutionType.SERIAL_WAIT


def test_a_restart_obeys_its_schedule_s_execution_type_before_the_definition_s() -> None:
    by_schedule = an_instance(ProcessState.FAILURE, execution_type=ExecutionType.SERIAL_WAIT)
    found = planned(about(FAILED), a_definition(), instance=by_schedule)
    assert restarted(found).execution_type is ExecutionType.SERIAL_WAIT


# The tasks that run again

EVERY_END = (
    a_task("a", DONE),
    a_task("b", BAD),
    a_task("c", HELD),
    a_task("d", GONE),
    a_task("e", GONE, kill_requested=False),
)


def test_going_on_runs_what_was_paused_and_killed_on_request() -> None:
    found = recovered(SUSPENDED, an_instance(ProcessState.PAUSE, *EVERY_END))
    assert found == Restart(
        process_instance_id=12, epoch=4, command_type=SUSPENDED, reset=("c", "d")
    )


def test_rerunning_what_failed_runs_all_that_did_not_end_well() -> None:
    found = recovered(FAILED, an_instance(ProcessState.FAILURE, *EVERY_END))
    assert sorted(found.reset) == ["b", "c", "d", "e"]
    assert found.run_scope is None


@pytest.mark.parametrize("kill_requested", [True, False])
def test_an_attempt_whose_worker_was_lost_is_rerun(kill_requested: bool) -> None:
    task = a_task("a", LOST, kill_requested=kill_requested)
    assert recovered(FAILED, an_instance(ProcessState.FAILURE, task)).reset == ("a",)


@pytest.mark.parametrize("state", ENDED)
def test_repeating_runs_everything_that_has_begun(state: ProcessState) -> None:
    found = recovered(REPEAT, an_instance(state, *EVERY_END))
    assert sorted(found.reset) == ["a", "b", "c", "d", "e"]
    assert found.afresh


@pytest.mark.parametrize("command_type", [SUSPENDED, FAILED, EXECUTE])
def test_only_repeating_gives_a_new_start(command_type: CommandType) -> None:
    found = recovered(command_type, an_instance(ALLOWED[command_type][0]), NODE_A)
    assert not found.afresh


@pytest.mark.parametrize("command_type", [SUSPENDED, FAILED])
def test_nothing_to_recover_resets_nothing_and_the_run_ends_by_its_rows_t70(
    command_type: CommandType,
) -> None:
    instance = an_instance(ALLOWED[command_type][0], a_task("a"), shape="a")
    found = recovered(command_type, instance)
    assert (found.reset, found.run_scope, found.command_param) == ((), None, None)


def test_a_forced_success_is_a_good_result() -> None:
    task = a_task("a", TaskState.FORCED_SUCCESS)
    assert recovered(FAILED, an_instance(ProcessState.FAILURE, task, a_task("b", BAD))).reset == (
        "b",
    )


def test_a_task_that_never_began_needs_no_reset_to_run_t71() -> None:
    instance = an_instance(
        ProcessState.FAILURE, a_task("a", BAD), a_task("c"), shape="a >> b; c >> d"
    )
    found = recovered(FAILED, instance)
    assert (found.reset, found.run_scope) == (("a",), None)


def test_a_superseded_attempt_is_not_reset_again() -> None:
    tasks = (a_task("a", BAD, valid=False), a_task("b", BAD, valid=False), a_task("b", attempt=2))
    assert recovered(FAILED, an_instance(ProcessState.FAILURE, *tasks)).reset == ()


def test_the_recovery_of_a_run_that_was_given_up_runs_what_ended_after_it() -> None:
    late = a_task("a", GONE, settled=False)
    good = a_task("b", DONE, settled=False)
    assert recovered(FAILED, an_instance(ProcessState.FAILURE, late, good)).reset == ("a",)


def test_an_attempt_that_is_still_being_ended_is_waited_for() -> None:
    live = a_task("a", TaskState.RUNNING, settled=False, kill_requested=True, end_time=None)
    assert recovered(REPEAT, an_instance(ProcessState.FAILURE, live, a_task("b"))).reset == ("b",)


def test_a_promised_retry_stays_promised_when_going_on() -> None:
    task = a_task("a", BAD, retry_at=NOON)
    assert recovered(SUSPENDED, an_instance(ProcessState.PAUSE, task)).reset == ()


def test_a_promised_retry_whose_upstream_has_to_run_first_is_reset() -> None:
    tasks = (a_task("a", GONE), a_task("b", BAD, retry_at=NOON))
    found = recovered(SUSPENDED, an_instance(ProcessState.STOP, *tasks, shape="a >> b"))
    assert found.reset == ("a", "b")


def test_a_promise_that_was_left_over_is_made_good_by_rerunning() -> None:
    task = a_task("a", BAD, retry_at=NOON)
    assert recovered(FAILED, an_instance(ProcessState.FAILURE, task)).reset == ("a",)


def test_a_failure_that_conditions_have_dealt_with_is_a_result() -> None:
    instance = an_instance(
        ProcessState.FAILURE,
        a_task("a", BAD),
        a_task("choose", BAD, branch=("cure",)),
        a_task("cure", BAD),
        shape="a >> choose >> good cure",
        of_task={"choose": CONDITIONS},
    )
    assert recovered(FAILED, instance).reset == ("cure",)


def test_a_failure_that_keeps_others_waiting_is_rerun_though_conditions_looked_at_it() -> None:
    instance = an_instance(
        ProcessState.FAILURE,
        a_task("a", BAD),
        a_task("choose", BAD, branch=("cure",)),
        a_task("cure"),
        shape="a >> choose >> good cure; a >> kept",
        of_task={"choose": CONDITIONS},
    )
    assert recovered(FAILED, instance).reset == ("a",)


@pytest.mark.parametrize("mode", TaskDependType)
@pytest.mark.parametrize("command_type", [SUSPENDED, FAILED, REPEAT])
def test_the_first_selection_stays_whatever_the_recovery_says_t72(
    command_type: CommandType, mode: TaskDependType
) -> None:
    instance = an_instance(
        ALLOWED[command_type][0],
        a_task("b", GONE),
        shape="a >> b >> c",
        command_param='{"StartNodeNameList": "b"}',
    )
    param = '{"ProcessInstanceId": 12, "StartNodeNameList": "a,c"}'
    found = recovered(command_type, instance, param, task_depend_type=int(mode))
    assert (found.reset, found.run_scope, found.command_param) == (("b",), None, None)


def test_a_row_of_a_task_that_was_not_selected_is_told_of() -> None:
    instance = an_instance(ProcessState.FAILURE, a_task("z", BAD))
    assert "'z', which was not selected" in why(planned(about(FAILED), instance=instance))


# Parameters of a recovery

WITH_X = '[{"prop": "x", "value": "old"}]'


def values(found: Restart) -> dict[str, str]:
    assert found.global_params is not None
    return {item["prop"]: item["value"] for item in json.loads(found.global_params)}


@pytest.mark.parametrize("command_type", [SUSPENDED, FAILED, EXECUTE])
def test_a_recovery_that_gives_nothing_keeps_the_parameters(command_type: CommandType) -> None:
    instance = an_instance(ALLOWED[command_type][0], command_param='{"StartParams": {"x": "1"}}')
    found = recovered(command_type, instance, NODE_A)
    assert (found.global_params, found.command_param) == (None, None)


@pytest.mark.parametrize("stored", [{"x": "1"}, '{"x": "1"}'])
def test_start_parameters_survive_a_rerun_9952_15544(stored: object) -> None:
    instance = an_instance(ProcessState.SUCCESS, command_param=json.dumps({"StartParams": stored}))
    definition = a_definition(global_params=WITH_X)
    found = restarted(planned(about(REPEAT), definition, instance=instance))
    assert values(found) == {"x": "1"}
    assert found.command_param is None


@pytest.mark.parametrize("command_type", RESTARTING_COMMANDS)
def test_start_parameters_of_the_recovery_replace_those_before_and_nothing_else(
    command_type: CommandType,
) -> None:
    instance = an_instance(
        ALLOWED[command_type][0],
        command_param='{"StartNodeNameList": "a", "StartParams": {"x": "1"}, "n": 1.10}',
    )
    param = json.dumps(
        {"ProcessInstanceId": 12, "StartNodeNameList": "a", "StartParams": {"x": "2"}}
    )
    command = read(param, command_type=int(command_type))
    found = restarted(planned(command, a_definition(global_params=WITH_X), instance=instance))
    assert values(found) == {"x": "2"}
    assert json.loads(found.command_param or "") == {
        "StartNodeNameList": "a",
        "StartParams": '{"x": "2"}',
        "n": "1.10",
    }


def test_repeating_works_the_parameters_out_anew_for_the_same_date_t33b() -> None:
    day = '[{"prop": "day", "value": "$[yyyy-MM-dd]"}]'
    instance = an_instance(
        ProcessState.SUCCESS,
        schedule_time=NOON - timedelta(days=3),
        global_params='[{"prop": "day", "value": "stale"}]',
    )
    found = planned(about(REPEAT), a_definition(global_params=day), instance=instance)
    assert values(restarted(found)) == {"day": "2025-12-30"}


def test_repeating_a_complement_run_keeps_its_kind_of_dates() -> None:
    instance = an_instance(
        ProcessState.SUCCESS, schedule_time=NOON, history=("COMPLEMENT_DATA", "REPEAT_RUNNING")
    )
    definition = a_definition(global_params='[{"prop": "day", "value": "${system.biz.date}"}]')
    found = planned(about(REPEAT), definition, instance=instance)
    assert values(restarted(found)) == {"day": "20260102"}


@pytest.mark.parametrize("start", ["[1]", "7", '"{"', '"[]"', f'"{TOO_DEEP}"'])
@pytest.mark.parametrize("command_type", RESTARTING_COMMANDS)
def test_start_parameters_that_are_no_object_are_refused_by_their_name(
    command_type: CommandType, start: str
) -> None:
    param = f'{{"ProcessInstanceId": 12, "StartNodeNameList": "a", "StartParams": {start}}}'
    command = read_command(
        a_row(param, command_type=int(command_type)), param_limit_bytes=1_000_000
    )
    instance = an_instance(ALLOWED[command_type][0])
    reason = why(planned(command, a_definition(), instance=instance))
    assert reason.startswith("process instance 12 can't be recovered: StartParams ")


@pytest.mark.parametrize("stored", ["{", "[]", TOO_DEEP, '{"StartNodeNameList": "zzz"}'])
@pytest.mark.parametrize("command_type", RESTARTING_COMMANDS)
def test_a_spoilt_instance_is_refused_or_recovered_but_never_an_error(
    command_type: CommandType, stored: str
) -> None:
    instance = an_instance(ALLOWED[command_type][0], command_param=stored)
    found = planned(about(command_type, NODE_A), a_definition(), instance=instance)
    assert isinstance(found, Restart) == (stored == "[]")


@pytest.mark.parametrize("command_type", RESTARTING_COMMANDS)
@pytest.mark.parametrize("text", ["", "{", TOO_DEEP, a_definition_json("a >> b; b >> a")])
def test_an_instance_whose_json_can_t_be_read_is_refused_with_the_place(
    command_type: CommandType, text: str
) -> None:
    instance = an_instance(ALLOWED[command_type][0], process_instance_json=text)
    reason = why(planned(about(command_type, NODE_A), a_definition(), instance=instance))
    assert reason.startswith("process instance 12 can't be r")


# EXECUTE_TASK


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


@pytest.mark.parametrize("names", ["", " , "])
def test_running_nodes_needs_their_names(names: str) -> None:
    assert why(executed(names)).startswith("EXECUTE_TASK needs the nodes to run")


def test_running_nodes_of_a_sub_process_is_refused_with_its_root() -> None:
    reason = why(executed("a", root_id=2))
    assert reason.startswith("process instance 12 is a sub process of 2")
    assert "run the SUB_PROCESS node there" in reason


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


# Taking over a live run


@pytest.mark.parametrize(
    "state", [state for state in LIVE if state is not ProcessState.SERIAL_WAIT]
)
def test_a_failover_takes_a_run_over_whose_owner_is_gone(state: ProcessState) -> None:
    found = planned(about(FAILOVER), instance=an_instance(state))
    assert found == Resume(process_instance_id=12, epoch=4)


def test_a_failover_takes_a_run_over_that_nobody_owns() -> None:
    found = planned(about(FAILOVER), instance=an_instance(owner=None), live=frozenset({MASTER}))
    assert found == Resume(process_instance_id=12, epoch=4)


def test_a_failover_takes_over_from_a_former_start_at_a_live_address() -> None:
    reborn = replace(MASTER, incarnation=MASTER.incarnation + 1)
    found = planned(about(FAILOVER), instance=an_instance(), live=frozenset({reborn}))
    assert isinstance(found, Resume)


@pytest.mark.parametrize("others", [(), (Node(address="m2:5678", incarnation=3),)])
def test_a_second_failover_command_leaves_a_run_to_its_owner_t14(others: tuple[Node, ...]) -> None:
    found = planned(about(FAILOVER), instance=an_instance(), live=frozenset({MASTER, *others}))
    assert found == Drop(reason="the owner of process instance 12 is alive")


def test_a_failover_of_what_waits_for_its_turn_comes_to_nothing() -> None:
    instance = an_instance(ProcessState.SERIAL_WAIT, owner=None)
    found = planned(about(FAILOVER), instance=instance)
    assert found == Drop(reason="process instance 12 waits for its turn")


@pytest.mark.parametrize("command_type", [FAILOVER, CommandType.STOP, CommandType.PAUSE])
@pytest.mark.parametrize("state", ENDED)
def test_what_has_ended_is_left_alone(state: ProcessState, command_type: CommandType) -> None:
    found = planned(about(command_type), instance=an_instance(state))
    assert found == Drop(reason=f"process instance 12 has ended: {state.name}")


@pytest.mark.parametrize(
    ("command_type", "state"),
    [(WAITING_THREAD, ProcessState.WAITING_THREAD), (SERIAL_WAIT, ProcessState.SERIAL_WAIT)],
)
def test_what_waits_begins_when_its_time_has_come(
    command_type: CommandType, state: ProcessState
) -> None:
    found = planned(about(command_type), instance=an_instance(state, owner=None))
    assert found == Resume(process_instance_id=12, epoch=4, command_type=command_type)


@pytest.mark.parametrize(
    ("command_type", "waiting"),
    [(WAITING_THREAD, ProcessState.WAITING_THREAD), (SERIAL_WAIT, ProcessState.SERIAL_WAIT)],
)
def test_what_does_not_wait_is_left_alone(command_type: CommandType, waiting: ProcessState) -> None:
    for state in ProcessState:
        found = planned(about(command_type), instance=an_instance(state))
        assert isinstance(found, Drop) == (state is not waiting)


@pytest.mark.parametrize("value", ["12", '"12"'])
def test_a_waiting_instance_is_named_by_the_original_s_key(value: str) -> None:
    command = about(WAITING_THREAD, f'{{"WaittingThreadInstanceId": {value}}}')
    found = planned(command, instance=an_instance(ProcessState.WAITING_THREAD))
    assert isinstance(found, Resume)


# PAUSE and STOP


@pytest.mark.parametrize("state", [state for state in LIVE if state is not ProcessState.READY_STOP])
def test_a_stop_is_an_intent_for_whoever_owns_the_run(state: ProcessState) -> None:
    found = planned(about(CommandType.STOP), instance=an_instance(state))
    assert found == SetIntent(
        process_instance_id=12, command_type=CommandType.STOP, wanted_state=ProcessState.STOP
    )


@pytest.mark.parametrize("state", [ProcessState.RUNNING, ProcessState.READY_PAUSE])
def test_a_pause_is_an_intent_for_whoever_owns_the_run(state: ProcessState) -> None:
    found = planned(about(CommandType.PAUSE), instance=an_instance(state))
    assert found == SetIntent(
        process_instance_id=12, command_type=CommandType.PAUSE, wanted_state=ProcessState.PAUSE
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ProcessState.READY_STOP, "process instance 12 is being stopped"),
        (ProcessState.SERIAL_WAIT, "process instance 12 has not begun"),
    ],
)
def test_what_can_t_pause_any_more_or_yet_is_left_alone(state: ProcessState, reason: str) -> None:
    found = planned(about(CommandType.PAUSE), instance=an_instance(state))
    assert found == Drop(reason=reason)


def test_a_paused_run_without_anything_paused_can_be_gone_on_with_t49b() -> None:
    killed_alone = an_instance(ProcessState.PAUSE, a_task("a", GONE), a_task("b"), shape="a b")
    assert recovered(SUSPENDED, killed_alone).reset == ("a",)
    nothing_left = an_instance(ProcessState.PAUSE, a_task("a"), a_task("b"), shape="a b")
    assert recovered(SUSPENDED, nothing_left).reset == ()


def test_a_stop_of_what_is_being_stopped_changes_nothing() -> None:
    found = planned(about(CommandType.STOP), instance=an_instance(ProcessState.READY_STOP))
    assert found == Drop(reason="process instance 12 is being stopped")


# Poison


@pytest.mark.parametrize("command_type", CommandType)
@pytest.mark.parametrize(
    "param",
    [
        *("{}", '{"ProcessInstanceId": 12}', '{"ProcessInstanceId": {"a": [1]}}'),
        '{"ProcessInstanceId": 12, "StartNodeNameList": {"a": 1}, "StartParams": [[]]}',
        '{"ProcessInstanceId": 12, "StartNodeNameList": "\\u0000", "StartParams": "\\ud800"}',
    ],
)
def test_a_poisoned_command_gets_a_plan_like_any_other_t69(
    command_type: CommandType, param: str
) -> None:
    command: Command = about(command_type, param)
    for state in ProcessState:
        found = planned(command, a_definition(), instance=an_instance(state, *EVERY_END))
        assert not isinstance(found, Reject) or found.reason
