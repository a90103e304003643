"""Parameters of a recovery: those of the instance, those given anew, and those worked out anew."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from common.model.commands import RESTARTING_COMMANDS, CommandType, read_command
from common.model.plans import Restart
from common.model.states import ProcessState
from tests.builders import NOON, a_definition_json
from tests.unit.commands.planning import TOO_DEEP, a_definition, a_row, about, planned, read, why
from tests.unit.commands.recoveries import (
    ALLOWED,
    EXECUTE,
    FAILED,
    NODE_A,
    REPEAT,
    SUSPENDED,
    an_instance,
    recovered,
    restarted,
    values,
)

WITH_X = '[{"prop": "x", "value": "old"}]'


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
        ProcessState.SUCCESS,
        schedule_time=NOON,
        business_time=NOON + timedelta(days=1),
        history=("COMPLEMENT_DATA", "REPEAT_RUNNING"),
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
