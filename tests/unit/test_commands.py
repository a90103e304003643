"""Commands: reading a row, and the plan of each type. Values in, plans out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.errors import BadCommandError
from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.commands import Command, CommandRow, CommandType, read_command
from common.model.plans import (
    Begin,
    ChildOf,
    Complement,
    DefinitionSnapshot,
    Drop,
    InstanceSnapshot,
    ParentSnapshot,
    Plan,
    Reject,
    Snapshot,
)
from common.model.schedules import Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    TaskDependType,
    WarningType,
)
from master.commands import PLANNERS, REASON_LIMIT, plan
from master.commands.origin import Origin
from tests.builders import NOON, a_definition_json, read_graph

LIMIT = 1_000
ORIGIN = Origin(zone=ZoneInfo("America/New_York"), graph=read_graph)
MASTER = Node(address="m1:5678", incarnation=7)
STARTS = (
    CommandType.START_PROCESS,
    CommandType.START_CURRENT_TASK_PROCESS,
    CommandType.SCHEDULER,
)
TOO_DEEP = "[" * 100_000
TOO_MANY_DIGITS = "1" * 5_000


def a_row(param: str | None = None, **columns: Any) -> CommandRow:
    """A START_PROCESS row of definition 3, with every column's default."""
    row = CommandRow(
        id=1,
        command_type=0,
        process_definition_id=3,
        command_param=param,
        param_bytes=len((param or "").encode()),
        task_depend_type=2,
        failure_strategy=1,
        warning_type=0,
        warning_group_id=0,
        schedule_time=None,
        start_time=NOON,
        executor_id=1,
        process_instance_priority=2,
        worker_group_id=-1,
    )
    return replace(row, **columns)


def read(param: str | None = None, **columns: Any) -> Command:
    return read_command(a_row(param, **columns), param_limit_bytes=LIMIT)


def a_definition(shape: str = "a >> b >> c", **columns: Any) -> DefinitionSnapshot:
    definition = DefinitionSnapshot(
        id=3,
        name="flights",
        version=2,
        release_state=ReleaseState.ONLINE,
        usable=True,
        process_definition_json=a_definition_json(shape),
        global_params=None,
        timeout_minutes=0,
        tenant_id=-1,
    )
    return replace(definition, **columns)


def planned(
    command: Command,
    definition: DefinitionSnapshot | None = None,
    *,
    instance: InstanceSnapshot | None = None,
    live: frozenset[Node] = frozenset(),
    parent: ParentSnapshot | None = None,
    asked: int | None = 12,
) -> Plan:
    snapshot = Snapshot(
        definition=definition,
        instance=instance,
        asked_instance_id=asked,
        parent=parent,
        live_masters=live,
    )
    return plan(command, snapshot, now=NOON, origin=ORIGIN)


def begun(command: Command, definition: DefinitionSnapshot | None = None) -> Begin:
    found = planned(command, definition or a_definition())
    assert isinstance(found, Begin), found
    return found


def a_parent(**columns: Any) -> ParentSnapshot:
    """Attempt 45 at the SUB_PROCESS task `sub` of instance 2, which waits for its child."""
    parent = ParentSnapshot(
        process_instance_id=2,
        task_instance_id=45,
        task_name="sub",
        task_json="{}",
        input_pool=None,
        waits=True,
        root_id=0,
        history=("START_PROCESS",),
        global_params=None,
        schedule_time=None,
        ancestors=(1,),
    )
    return replace(parent, **columns)


def why(found: Plan) -> str:
    assert isinstance(found, Reject), found
    return found.reason


def an_instance(state: ProcessState = ProcessState.RUNNING, **columns: Any) -> InstanceSnapshot:
    instance = InstanceSnapshot(id=12, state=state, owner=MASTER, owner_epoch=4)
    return replace(instance, **columns)


def about(command_type: CommandType, param: str = '{"ProcessInstanceId":12}') -> Command:
    return read(param, command_type=int(command_type))


# Reading a row


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


def globals_of(text: str) -> DefinitionSnapshot:
    return a_definition(global_params=text)


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


# Beginning a sub process

OF_TASK_45 = {"parent_task_instance_id": 45}
LINE = '{"id": 3, "parentProcessInstanceId": 2, "parentTaskInstanceId": 45, "processInstanceId": 0}'


def begun_child(
    definition: DefinitionSnapshot | None = None,
    *,
    command: Command | None = None,
    **columns: Any,
) -> Begin:
    found = planned(
        command or read(LINE, **OF_TASK_45),
        definition or a_definition(),
        parent=a_parent(**columns),
    )
    assert isinstance(found, Begin), found
    return found


def resolved_child(text: str | None, **columns: Any) -> dict[str, str]:
    properties = json.loads(begun_child(a_definition(global_params=text), **columns).global_params)
    return {item["prop"]: item["value"] for item in properties}


@pytest.mark.parametrize("command_type", [0, 5, 6])
def test_a_sub_process_begins_as_part_of_its_tree(command_type: int) -> None:
    command = read(LINE, command_type=command_type, schedule_time=NOON, **OF_TASK_45)
    found = begun_child(command=command, root_id=1)
    assert found.child_of == ChildOf(process_instance_id=2, task_instance_id=45, root_id=1)
    assert found.command_type == command_type
    assert json.loads(found.command_param)["parentTaskInstanceId"] == "45"


def test_the_parent_of_a_sub_process_is_the_root_if_it_has_none() -> None:
    found = begun_child(root_id=0)
    assert found.child_of == ChildOf(process_instance_id=2, task_instance_id=45, root_id=2)


def test_a_run_that_no_task_asked_for_is_nobody_s_child() -> None:
    assert begun(read()).child_of is None


def test_a_sub_process_begins_though_its_definition_went_offline_t39() -> None:
    assert begun_child(a_definition(release_state=ReleaseState.OFFLINE)).process_definition_id == 3


def test_a_sub_process_whose_definition_was_deleted_is_refused() -> None:
    found = planned(read(LINE, **OF_TASK_45), a_definition(usable=False), parent=a_parent())
    assert "'flights'" in why(found)


def test_a_sub_process_that_is_not_waited_for_any_more_does_not_begin_t36c() -> None:
    found = planned(read(LINE, **OF_TASK_45), a_definition(), parent=a_parent(waits=False))
    assert found == Drop(reason="task 'sub' does not wait for its child any more")


@pytest.mark.parametrize("command_type", [0, 1, 5, 6])
def test_a_task_that_can_have_no_child_is_named(command_type: int) -> None:
    param = '{"StartNodeNameList": "a", "complementStartDate": "2020-01-01 00:00:00"}'
    found = planned(read(param, command_type=command_type, **OF_TASK_45), a_definition())
    assert "task instance 45 is no SUB_PROCESS" in why(found)


@pytest.mark.parametrize("ancestors", [(3,), (3, 8), (8, 3, 9)])
def test_a_definition_that_would_run_inside_itself_is_refused_with_the_line_t36e(
    ancestors: tuple[int, ...],
) -> None:
    found = planned(read(LINE, **OF_TASK_45), a_definition(), parent=a_parent(ancestors=ancestors))
    line = " → ".join(map(str, (*ancestors, 3)))
    assert "'flights' would run inside itself" in why(found)
    assert why(found).endswith(line)


def test_a_definition_may_run_twice_in_a_tree_beside_itself() -> None:
    assert begun_child(ancestors=(8, 9)).process_definition_id == 3


def test_a_sub_process_inherits_the_globals_that_it_does_not_have() -> None:
    above = '[{"prop": "x", "value": "parent"}, {"prop": "y", "value": "parent"}]'
    found = resolved_child('[{"prop": "x", "value": "child"}]', global_params=above)
    assert found == {"x": "child", "y": "parent"}


def test_a_sub_process_inherits_what_was_put_out_above_it_before_the_globals() -> None:
    pool = '[{"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "pool"}]'
    found = resolved_child(
        None, input_pool=pool, global_params='[{"prop": "x", "value": "global"}]'
    )
    assert found == {"x": "pool"}


def test_the_local_parameters_of_the_task_go_before_the_child_s_own_values() -> None:
    local = [{"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "${y}!"}]
    found = resolved_child(
        '[{"prop": "x", "value": "child"}]',
        task_json=json.dumps({"params": {"localParams": local}}),
        global_params='[{"prop": "y", "value": "parent"}]',
    )
    assert found["x"] == "parent!"


def test_an_out_parameter_of_the_task_is_not_handed_down() -> None:
    local = [{"prop": "x", "direct": "OUT", "type": "VARCHAR", "value": "local"}]
    found = resolved_child(
        '[{"prop": "x", "value": "child"}]',
        task_json=json.dumps({"params": {"localParams": local}}),
    )
    assert found["x"] == "child"


def test_what_is_inherited_is_not_handed_up_again() -> None:
    above = '[{"prop": "x", "direct": "OUT", "type": "VARCHAR", "value": "parent"}]'
    (item,) = json.loads(begun_child(global_params=above).global_params)
    assert item["direct"] == "IN"


@pytest.mark.parametrize(
    "columns",
    [{"input_pool": "{"}, {"global_params": "[{}]"}, {"input_pool": '[{"value": 1}]'}],
)
def test_a_parent_whose_parameters_are_spoilt_refuses_its_child(columns: dict[str, Any]) -> None:
    found = planned(read(LINE, **OF_TASK_45), a_definition(), parent=a_parent(**columns))
    assert why(found).startswith("global parameters of 'flights': ")


def test_a_child_whose_definition_has_no_such_name_is_refused_by_it() -> None:
    command = read('{"processDefinitionName": "nights"}', process_definition_id=0, **OF_TASK_45)
    assert why(planned(command, parent=a_parent())) == "there is no process definition 'nights'"


# COMPLEMENT_DATA

JANUARY = '{"complementStartDate": "%s", "complementEndDate": "%s"}'
FIRST = "2020-01-01 00:00:00"


def complement(param: str | None = None, **columns: Any) -> Plan:
    return planned(read(param, command_type=5, **columns), a_definition())


def dates(found: Plan) -> list[datetime]:
    assert isinstance(found, Complement)
    assert len(found.complements) == 1
    return list(found.complements[0].dates)


def test_a_complement_run_is_for_the_one_date_of_its_command_in_the_zone() -> None:
    assert dates(complement(JANUARY % (FIRST, FIRST))) == [datetime(2020, 1, 1, 5, tzinfo=UTC)]


def test_one_date_is_enough_for_a_complement_run() -> None:
    found = complement(f'{{"complementStartDate": "{FIRST}"}}')
    assert dates(found) == [datetime(2020, 1, 1, 5, tzinfo=UTC)]


def test_the_dates_of_a_complement_are_read_in_the_zone_of_the_definition_s_schedule() -> None:
    tokyo = Schedule(
        id=1,
        process_definition_id=3,
        definition_name="flights",
        definition_is_online=True,
        crontab="0 0 0 * * ?",
        timezone_id="Asia/Tokyo",
        missing_time="shift",
        repeated_time="first",
        start_time=NOON,
        end_time=NOON + timedelta(days=1),
    )
    found = plan(
        read(JANUARY % (FIRST, FIRST), command_type=5),
        Snapshot(definition=a_definition(), schedules=(tokyo,)),
        now=NOON,
        origin=ORIGIN,
    )
    assert dates(found) == [datetime(2019, 12, 31, 15, tzinfo=UTC)]


@pytest.mark.parametrize("own", list(ExecutionType))
@pytest.mark.parametrize("of_definition", [ExecutionType.PARALLEL, ExecutionType.SERIAL_DISCARD])
def test_the_execution_type_of_a_schedule_goes_before_that_of_the_definition(
    own: ExecutionType, of_definition: ExecutionType
) -> None:
    found = planned(
        read(f'{{"executionType": "{own.name}"}}', command_type=6),
        a_definition(execution_type=of_definition),
    )
    assert isinstance(found, Begin)
    assert (found.execution_type, found.is_serial_by_schedule) == (own, True)


def test_a_complement_of_which_no_date_could_begin_is_rejected_as_a_whole() -> None:
    text = (
        f'{{"complementStartDate": "{FIRST}", "complementEndDate": "{FIRST}", "StartParams": %s}}'
    )
    for params in ('"[1, 2]"', '"{spoilt"'):
        assert "StartParams" in why(complement(text % params))


def test_the_schedule_time_of_a_complement_command_without_others_is_its_date() -> None:
    assert dates(complement(schedule_time=NOON)) == [NOON]


def test_t33_the_run_of_each_date_is_a_new_instance_of_its_own() -> None:
    found = complement(schedule_time=NOON, complement_date_id=7)
    assert isinstance(found, Begin)
    assert (found.schedule_time, found.complement_date_id) == (NOON, 7)


def test_a_complement_run_without_a_date_is_refused_with_an_example() -> None:
    reason = why(complement())
    assert "COMPLEMENT_DATA needs its dates" in reason
    assert '"complementStartDate": "2020-01-01 00:00:00"' in reason


@pytest.mark.parametrize("date", ["", "2020-01-01", "2020-02-30 00:00:00", "x" * 900, "1"])
def test_a_date_that_can_t_be_read_is_refused_by_its_key(date: str) -> None:
    reason = why(complement(JANUARY % (FIRST, date)))
    assert reason.startswith("command_param: complementEndDate must be written as")
    assert len(reason) < 200


def test_a_sub_process_of_a_complement_run_is_for_its_parent_s_date() -> None:
    command = read(
        JANUARY % (FIRST, "2020-01-31 00:00:00"),
        command_type=5,
        schedule_time=NOON,
        **OF_TASK_45,
    )
    assert begun_child(command=command).schedule_time == NOON


def test_a_complement_run_s_parameters_are_worked_out_for_its_date() -> None:
    midnight = datetime(2020, 1, 1, 5, tzinfo=UTC)
    found = planned(
        read(None, command_type=5, schedule_time=midnight, complement_date_id=7),
        globals_of('[{"prop": "day", "value": "${system.biz.date}"}]'),
    )
    assert isinstance(found, Begin)
    # The business date of a complement run is the date itself, not the day before (contract §9.2).
    assert json.loads(found.global_params)[0]["value"] == "20200101"


# Values that can't be represented


@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)]
)
@pytest.mark.parametrize("command_type", [0, 5, 6])
def test_a_time_at_the_ends_of_the_calendar_is_planned_or_refused(
    command_type: int, moment: datetime
) -> None:
    text = '[{"prop": "far", "value": "$[add_months(yyyyMMdd, 999999)] $[yyyyMMdd-9]"}]'
    found = planned(read(command_type=command_type, schedule_time=moment), globals_of(text))
    assert isinstance(found, Begin | Complement | Reject)


def test_a_megabyte_of_nesting_in_any_place_is_refused_and_no_error() -> None:
    deep = "[" * 1_000_000
    definition = a_definition(process_definition_json=deep)
    row = a_row(json.dumps({"StartParams": deep}))
    command = read_command(row, param_limit_bytes=2_000_000)
    reasons = [
        why(planned(read(), definition)),
        why(planned(command, a_definition())),
        why(planned(read(), globals_of(deep))),
        why(planned(read(LINE, **OF_TASK_45), a_definition(), parent=a_parent(input_pool=deep))),
    ]
    assert all(len(reason) < 1_000 for reason in reasons)


def test_a_refusal_quotes_no_more_than_people_read() -> None:
    names = ",".join(f"x{number}" for number in range(100_000))
    row = a_row(json.dumps({"StartNodeNameList": names}))
    reason = why(planned(read_command(row, param_limit_bytes=10**6), a_definition()))
    assert reason.startswith("none of the start nodes 'x0', 'x1'")
    assert len(reason) == REASON_LIMIT
