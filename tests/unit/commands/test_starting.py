"""Commands that start an instance: definition, start nodes and global parameters."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from common.model.commands import Command, CommandType, read_command
from common.model.plans import Begin, DefinitionSnapshot
from common.model.states import FailureStrategy, Priority, ReleaseState, TaskDependType, WarningType
from master.commands import PLANNERS
from tests.builders import NOON, a_definition_json
from tests.unit.commands.planning import (
    STARTS,
    TOO_DEEP,
    TOO_MANY_DIGITS,
    a_definition,
    a_row,
    about,
    begun,
    globals_of,
    planned,
    read,
    why,
)

# The registry of planners


def test_every_type_has_a_planner() -> None:
    assert list(PLANNERS) == list(CommandType)


# Starting


@pytest.mark.parametrize("command_type", STARTS)
def test_a_start_begins_an_instance_with_all_that_row_and_definition_say(
    command_type: CommandType,
) -> None:
    planned_for = datetime(2026, 1, 1, tzinfo=UTC)
    definition = a_definition(
        timeout_minutes=30, tenant_id=4, locations='{"a":1}', connects="[]", version=5
    )
    command = read(
        '{"StartNodeNameList": "b"}',
        command_type=int(command_type),
        task_depend_type=1,
        failure_strategy=0,
        warning_type=3,
        warning_group_id=8,
        schedule_time=planned_for,
        start_time=NOON - timedelta(minutes=1),
        executor_id=6,
        process_instance_priority=0,
        worker_group_id=0,
    )
    assert begun(command, definition) == Begin(
        name="flights-5-1767355200000",
        process_definition_id=3,
        command_type=command_type,
        command_param='{"StartNodeNameList": "b"}',
        process_instance_json=definition.process_definition_json,
        global_params="[]",
        task_depend_type=TaskDependType.TASK_PRE,
        failure_strategy=FailureStrategy.END,
        warning_type=WarningType.ALL,
        warning_group_id=8,
        schedule_time=planned_for,
        command_start_time=NOON - timedelta(minutes=1),
        executor_id=6,
        priority=Priority.HIGHEST,
        worker_group_id=-1,
        timeout_minutes=30,
        tenant_id=4,
        locations='{"a":1}',
        connects="[]",
    )


def test_a_definition_without_a_timeout_of_its_own_has_that_of_its_json() -> None:
    text = json.dumps({"tasks": [{"name": "a", "type": "SHELL"}], "timeout": "45"})
    assert begun(read(), a_definition(process_definition_json=text)).timeout_minutes == 45


def test_a_schedule_row_without_a_time_begins_without_one() -> None:
    assert begun(read(command_type=6)).schedule_time is None


@pytest.mark.parametrize("command_type", STARTS)
def test_an_unknown_definition_is_refused_by_its_id(command_type: CommandType) -> None:
    command = about(command_type, '{"StartNodeNameList": "a"}')
    assert "no process definition with the id 3" in why(planned(command, None))


def test_a_row_whose_definition_is_null_is_refused_by_its_column() -> None:
    assert "process_definition_id is NULL" in why(planned(read(process_definition_id=None)))


def test_a_definition_that_is_switched_off_is_refused_with_the_cure() -> None:
    reason = why(planned(read(), a_definition(usable=False)))
    assert "'flights' is switched off (its flag is 0); set that to 1" in reason


def test_a_definition_that_is_offline_is_refused_with_the_cure() -> None:
    reason = why(planned(read(), a_definition(release_state=ReleaseState.OFFLINE)))
    assert "'flights' is OFFLINE" in reason
    assert "orcaflow definition online 'flights'" in reason


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "not JSON"),
        ('{"tasks": [', "not JSON.*line 1 column 12"),
        ("{}", "at least one task"),
        (TOO_DEEP, "nested too deeply"),
        (f'{{"tasks": {TOO_MANY_DIGITS}}}', "digits"),
        (a_definition_json("a >> b; b >> a"), "a cycle: 'a' → 'b' → 'a'|a cycle: 'b'"),
        (a_definition_json("a", a={"preTasks": ["a"]}), "a cycle: 'a' → 'a'"),
        (a_definition_json("a", a={"preTasks": ["x"]}), "'a', preTasks: there is no task 'x'"),
        (a_definition_json("a; b", b={"name": "a"}), "'a' is used twice"),
        (a_definition_json("a", a={"type": "COBOL"}), "type: 'COBOL' is unknown.*SHELL"),
    ],
)
def test_a_definition_that_can_t_run_is_refused_with_the_place(text: str, cause: str) -> None:
    found = planned(read(), a_definition(process_definition_json=text))
    assert re.search(rf"'flights' can't run: .*({cause})", why(found))


@pytest.mark.parametrize("mode", [TaskDependType.TASK_ONLY, TaskDependType.TASK_PRE])
def test_only_and_pre_need_start_nodes(mode: TaskDependType) -> None:
    reason = why(planned(read(task_depend_type=int(mode)), a_definition()))
    assert reason == f"{mode.name} needs a non-empty StartNodeNameList in command_param"


@pytest.mark.parametrize("mode", TaskDependType)
def test_start_nodes_none_of_which_exists_are_refused_by_name(mode: TaskDependType) -> None:
    command = read('{"StartNodeNameList": "x,y"}', task_depend_type=int(mode))
    assert "none of the start nodes 'x', 'y' exists" in why(planned(command, a_definition()))


def test_start_nodes_of_which_some_exist_begin_with_those() -> None:
    assert begun(read('{"StartNodeNameList": "x,b"}')).command_param == (
        '{"StartNodeNameList": "x,b"}'
    )


@pytest.mark.parametrize("param", [None, "{}", '{"StartNodeNameList": " , "}'])
def test_type_1_needs_start_nodes(param: str | None) -> None:
    reason = why(planned(read(param, command_type=1), a_definition()))
    assert "START_CURRENT_TASK_PROCESS needs the nodes to start from" in reason


# Global parameters


def resolved(command: Command, definition: DefinitionSnapshot) -> dict[str, str]:
    return {
        item["prop"]: item["value"] for item in json.loads(begun(command, definition).global_params)
    }


DAY = '[{"prop": "day", "value": "$[yyyy-MM-dd]"}, {"prop": "copy", "value": "${day}"}]'


def test_global_parameters_are_worked_out_for_the_schedule_time_in_the_zone() -> None:
    command = read(schedule_time=datetime(2026, 3, 1, 3, tzinfo=UTC))
    assert resolved(command, globals_of(DAY)) == {"day": "2026-02-28", "copy": "2026-02-28"}


def test_global_parameters_without_a_schedule_time_are_those_of_now() -> None:
    assert resolved(read(), globals_of(DAY))["day"] == "2026-01-02"


def test_global_parameters_of_the_json_count_if_the_definition_has_none() -> None:
    document = json.loads(a_definition_json("a")) | {"globalParams": [{"prop": "x", "value": "1"}]}
    definition = a_definition(process_definition_json=json.dumps(document))
    assert resolved(read(), definition) == {"x": "1"}
    with_own = replace(definition, global_params='[{"prop": "y", "value": "2"}]')
    assert resolved(read(), with_own) == {"y": "2"}


def test_start_parameters_go_before_the_definition_s_own() -> None:
    command = read('{"StartParams": {"day": "never", "n": 7}}')
    found = resolved(command, globals_of(DAY))
    assert (found["day"], found["copy"], found["n"]) == ("never", "never", "7")


@pytest.mark.parametrize("start", [{"x": 1.10}, '{"x": 1.10}'])
def test_a_decimal_among_start_parameters_stays_as_it_was_written(start: object) -> None:
    param = json.dumps({"StartParams": start}).replace("1.1}", "1.10}")
    assert "1.10" in param
    assert resolved(read(param), globals_of("[]"))["x"] == "1.10"


def test_start_parameters_may_be_text_that_holds_an_object() -> None:
    command = read(json.dumps({"StartParams": '{"day": "never"}'}))
    assert resolved(command, globals_of(DAY))["day"] == "never"


@pytest.mark.parametrize(
    ("start", "cause"),
    [
        ("{", "StartParams is not JSON"),
        ("[1]", "StartParams must be an object"),
        ("7", "StartParams must be an object"),
        (TOO_DEEP, "StartParams is nested too deeply"),
        (f'{{"a": {TOO_MANY_DIGITS}}}', "StartParams can't be read"),
    ],
)
def test_start_parameters_that_are_no_object_are_refused(start: str, cause: str) -> None:
    row = a_row(json.dumps({"StartParams": start}))
    command = read_command(row, param_limit_bytes=10**6)
    reason = why(planned(command, a_definition()))
    assert f"global parameters of 'flights': {cause}" in reason


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('[{"prop": "a", "value": "${b}"}, {"prop": "b", "value": "${a}"}]', "a"),
        ('[{"prop": "a", "value": "${a}"}]', "a"),
        ("[{}]", "'prop' must be a name"),
        ("{", "not valid JSON"),
    ],
)
def test_global_parameters_that_make_no_sense_are_refused(text: str, cause: str) -> None:
    reason = why(planned(read(), globals_of(text)))
    assert reason.startswith("global parameters of 'flights': ")
    assert cause in reason


@pytest.mark.parametrize("given", ["x", "1.5", "-2", "9" * 30])
def test_an_environment_that_can_be_none_is_refused(given: str) -> None:
    found = planned(read(json.dumps({"environmentCode": given})), a_definition())
    assert "environmentCode must be the code of an environment" in why(found)
