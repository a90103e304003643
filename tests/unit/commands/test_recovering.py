"""Commands that recover an instance: the states that they are for, and the tasks that run again."""

from __future__ import annotations

import pytest

from common.model.commands import RESTARTING_COMMANDS, Command, CommandType, read_command
from common.model.plans import Reject, Restart
from common.model.states import ExecutionType, ProcessState, ReleaseState, TaskDependType, TaskState
from tests.builders import NOON
from tests.unit.commands.planning import (
    TOO_MANY_DIGITS,
    a_definition,
    a_row,
    about,
    planned,
    read,
    why,
)
from tests.unit.commands.recoveries import (
    ABOUT_ONE,
    ALLOWED,
    BAD,
    CONDITIONS,
    DONE,
    ENDED,
    EVERY_END,
    EXECUTE,
    FAILED,
    GONE,
    LIVE,
    LOST,
    NODE_A,
    REPEAT,
    SUSPENDED,
    a_task,
    an_instance,
    recovered,
    restarted,
)

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
    definition = a_definition(release_state=ReleaseState.OFFLINE)
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


def test_a_task_whose_latest_attempt_was_superseded_is_not_reset() -> None:
    # No daemon leaves such rows; somebody may have typed them.
    tasks = (a_task("a", BAD), a_task("a", BAD, attempt=2, valid=False), a_task("b", BAD))
    assert recovered(REPEAT, an_instance(ProcessState.FAILURE, *tasks)).reset == ("b",)


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
    found = planned(about(FAILED), a_definition(), instance=instance)
    assert "'z', which was not selected" in why(found)


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


@pytest.mark.parametrize("command_type", sorted(ALLOWED))
def test_a_run_of_a_definition_that_was_deleted_can_t_run_again(command_type: CommandType) -> None:
    state = ALLOWED[command_type][0]
    instance = an_instance(state, a_task("a", BAD), shape="a")
    found = planned(read(NODE_A, command_type=int(command_type)), None, instance=instance)
    assert why(found) == (
        "process instance 12 can't run again: its definition 3 was deleted; import it, and start"
        " a new run"
    )
