"""Command rows as planners read them: parameters, codes and times, or a refusal that names the place."""

from __future__ import annotations

import json

import pytest

from common.errors import BadCommandError
from common.model.command_param import CommandParam
from common.model.commands import Command, CommandType, read_command
from common.model.states import FailureStrategy, Priority, TaskDependType, WarningType
from tests.builders import NOON
from tests.unit.commands.planning import LIMIT, TOO_DEEP, TOO_MANY_DIGITS, a_row, begun, read


@pytest.mark.parametrize("param", [None, "", "  \n ", "{}", '{"a": null}'])
def test_a_row_without_parameters_has_none(param: str | None) -> None:
    assert read(param).param == {}


def test_parameters_may_be_text_or_numbers_and_are_text_from_then_on() -> None:
    command = read('{"ProcessInstanceId": 12, "a": "x", "b": true, "c": [1], "d": {"e": 1}}')
    assert command.param == {
        "ProcessInstanceId": "12",
        "a": "x",
        "b": "true",
        "c": "[1]",
        "d": '{"e": 1}',
    }


def test_a_number_and_its_text_name_the_same_instance() -> None:
    numbers = [read(f'{{"ProcessInstanceId": {text}}}') for text in ("12", '"12"')]
    assert [command.process_instance_id for command in numbers] == [12, 12]


@pytest.mark.parametrize("param", ["{}", '{"ProcessInstanceId": null}', '{"ProcessInstanceId":""}'])
def test_no_instance_may_be_named(param: str) -> None:
    assert read(param).process_instance_id is None


@pytest.mark.parametrize(
    "value",
    [
        *("0", "-5", '"0"', '"-5"', "2147483648", "1e3", "12.0", '"twelve"', '" 12"', "true"),
        *("[12]", "{}", f'"{"1" * 900}"'),
    ],
)
def test_what_can_t_be_the_id_of_an_instance_is_refused(value: str) -> None:
    command = read(f'{{"ProcessInstanceId": {value}}}')
    with pytest.raises(BadCommandError, match="ProcessInstanceId must be the id of an instance"):
        _ = command.process_instance_id


def test_an_id_of_thousands_of_digits_is_refused_like_any_other() -> None:
    row = a_row(f'{{"ProcessInstanceId": "{TOO_MANY_DIGITS}"}}')
    command = read_command(row, param_limit_bytes=10_000)
    with pytest.raises(BadCommandError, match="must be the id of an instance") as refused:
        _ = command.process_instance_id
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("param", "cause"),
    [
        ("{", "not JSON.*line 1 column 2"),
        ('{"a": 1,\n "b" 2}', "not JSON.*line 2 column 6"),
        ("{'a': 1}", "not JSON"),
        ("\0", "not JSON"),
        ("[1]", "must be a JSON object, not list"),
        ('"text"', "must be a JSON object, not str"),
        ("12", "must be a JSON object, not int"),
        ("null", "must be a JSON object, not NoneType"),
    ],
)
def test_parameters_that_are_no_object_are_refused_with_the_place(param: str, cause: str) -> None:
    with pytest.raises(BadCommandError, match=rf"command_param.*{cause}"):
        read(param)


@pytest.mark.parametrize(
    ("param", "cause"),
    [(TOO_DEEP, "nested too deeply"), (f'{{"a": {TOO_MANY_DIGITS}}}', "can't be read")],
)
def test_parameters_that_python_gives_up_on_are_refused(param: str, cause: str) -> None:
    with pytest.raises(BadCommandError, match=cause):
        read_command(a_row(param), param_limit_bytes=10**6)


def test_parameters_that_are_too_long_are_refused_with_their_size_and_the_setting() -> None:
    with pytest.raises(BadCommandError, match=r"1001 bytes; at most 1000.*param_limit_bytes"):
        read(None, param_bytes=LIMIT + 1)


def test_parameters_as_long_as_is_allowed_are_read() -> None:
    text = json.dumps({"a": "x" * (LIMIT - 9)})
    assert len(text) == LIMIT
    assert len(read(text).param["a"]) == LIMIT - 9


@pytest.mark.parametrize(
    "column",
    [
        "command_type",
        "task_depend_type",
        "failure_strategy",
        "warning_type",
        "process_instance_priority",
    ],
)
def test_an_unknown_code_is_refused_with_the_codes_that_are_known(column: str) -> None:
    with pytest.raises(BadCommandError, match=rf"^{column} is 99; it must be one of 0 "):
        read(None, **{column: 99})


def test_a_row_without_a_type_is_refused() -> None:
    with pytest.raises(BadCommandError, match=r"command_type is NULL.*9 STOP"):
        read(command_type=None)


def test_a_time_that_nothing_here_can_hold_is_refused() -> None:
    with pytest.raises(BadCommandError, match=r"schedule_time is infinity.*years 1 to 9999"):
        read(bad_time="schedule_time is infinity")


def test_columns_that_are_null_have_their_defaults() -> None:
    command = read(
        process_definition_id=None,
        task_depend_type=None,
        failure_strategy=None,
        warning_type=None,
        warning_group_id=None,
        executor_id=None,
        process_instance_priority=None,
        worker_group_id=None,
    )
    assert command == Command(
        id=1,
        command_type=CommandType.START_PROCESS,
        process_definition_id=0,
        task_depend_type=TaskDependType.TASK_POST,
        failure_strategy=FailureStrategy.CONTINUE,
        warning_type=WarningType.NONE,
        warning_group_id=0,
        start_time=NOON,
        executor_id=1,
        priority=Priority.MEDIUM,
        worker_group_id=-1,
    )


def test_worker_group_0_means_none() -> None:
    assert read(worker_group_id=0).worker_group_id == -1
    assert read(worker_group_id=5).worker_group_id == 5


def test_start_nodes_are_a_comma_list_without_blanks_and_doubles() -> None:
    command = read('{"StartNodeNameList": " b, a,,b ,c d"}')
    assert command.start_node_names == ("b", "a", "c d")


@pytest.mark.parametrize("param", ["", "{}", "[]", "7", '{"StartNodeNameList": ""}'])
def test_an_instance_without_start_nodes_has_none(param: str) -> None:
    assert CommandParam.of_instance(param).start_node_names == ()


def test_the_start_nodes_of_an_instance_are_those_of_its_command() -> None:
    command = read('{"StartNodeNameList": "b,a", "x": "ü"}')
    stored = CommandParam.of_instance(begun(command).command_param)
    assert stored.start_node_names == command.start_node_names


@pytest.mark.parametrize("param", ["{", TOO_DEEP, TOO_MANY_DIGITS])
def test_a_spoilt_parameter_of_an_instance_is_refused(param: str) -> None:
    with pytest.raises(BadCommandError, match="command_param of the instance can't be read"):
        CommandParam.of_instance(param)
