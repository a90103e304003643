"""Control tasks as they are written: reading them, and refusals with a place."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from common.model.control import (
    MAX_BRANCHES,
    MAX_ITEMS,
    Condition,
    ConditionGroup,
    Conditions,
    Control,
    Dependent,
    DependGroup,
    Outcome,
    Relation,
    SubProcess,
    Switch,
    check_targets,
    named_definitions,
    read_control,
)
from common.model.depend_items import DATE_VALUES, DatasetItem, DependItem
from master.logic.switch import Choice, Undecided, choose

PLACE = "task 'x'"


def read(task_type: str, **node: Any) -> tuple[Control | None, list[str]]:
    mistakes: list[str] = []
    return read_control(task_type, node, PLACE, mistakes), mistakes


def good(task_type: str, **node: Any) -> Control | None:
    control, mistakes = read(task_type, **node)
    assert mistakes == []
    return control


def bad(task_type: str, **node: Any) -> list[str]:
    _, mistakes = read(task_type, **node)
    assert mistakes
    assert all(mistake.startswith(f"{PLACE}, ") for mistake in mistakes)
    return [mistake.removeprefix(f"{PLACE}, ") for mistake in mistakes]


def an_item(**changes: Any) -> dict[str, Any]:
    return {
        "projectId": 1,
        "definitionId": 9,
        "depTasks": "ALL",
        "cycle": "day",
        "dateValue": "today",
    } | changes


def items(*entries: dict[str, Any], relation: str = "AND") -> dict[str, Any]:
    return {
        "relation": "AND",
        "dependTaskList": [{"relation": relation, "dependItemList": list(entries)}],
    }


def a_switch(*branches: tuple[Any, Any], default: Any = "z") -> dict[str, Any]:
    entries = [{"condition": condition, "nextNode": target} for condition, target in branches]
    return {"switchResult": {"dependTaskList": entries, "nextNode": default}}


def test_a_task_of_a_worker_has_no_control_part() -> None:
    assert good("SHELL", params={"rawScript": "x"}) is None


# SUB_PROCESS


@pytest.mark.parametrize("number", [42, "42", " 42 "])
def test_a_sub_process_is_named_by_an_id_as_number_or_text(number: object) -> None:
    control = good("SUB_PROCESS", params={"processDefinitionId": number})
    assert control == SubProcess(process_definition_id=42, process_definition_name=None)


def test_a_sub_process_is_named_by_name_in_params_that_are_text() -> None:
    control = good("SUB_PROCESS", params='{"processDefinitionName": "child"}')
    assert control == SubProcess(process_definition_id=None, process_definition_name="child")


@pytest.mark.parametrize("number", [0, -1, "1.5", True, 2**31, "9" * 4_000, [[1]], {}])
def test_an_absurd_definition_id_is_refused(number: object) -> None:
    (mistake,) = bad("SUB_PROCESS", params={"processDefinitionId": number})
    assert mistake.startswith("params.processDefinitionId: must be a whole number from 1 to ")


def test_a_sub_process_names_one_definition() -> None:
    assert bad("SUB_PROCESS", params={}) == [
        "params.processDefinitionId: give the definition's id, or its name as processDefinitionName"
    ]
    assert bad("SUB_PROCESS", params={"processDefinitionCode": 5}) == [
        (
            "params.processDefinitionId: give the definition's id, or its name as"
            " processDefinitionName; processDefinitionCode is not known here"
        )
    ]
    assert bad(
        "SUB_PROCESS", params={"processDefinitionId": 4, "processDefinitionName": "child"}
    ) == [
        "params.processDefinitionName: give processDefinitionId or processDefinitionName, not both"
    ]
    assert bad("SUB_PROCESS", params="{") == [
        "params: the text is not JSON",
        "params.processDefinitionId: give the definition's id, or its name as processDefinitionName",
    ]


# CONDITIONS

CONDITIONS: dict[str, Any] = {
    "params": {},
    "dependence": items(
        {"depTasks": "extract", "status": "SUCCESS"}, {"depTasks": "py", "status": "FAILURE"}
    ),
    "conditionResult": {"successNode": ["go"], "failedNode": ["mail"]},
}
READ_CONDITIONS = Conditions(
    relation=Relation.AND,
    groups=(
        ConditionGroup(
            relation=Relation.AND,
            conditions=(
                Condition(task="extract", wanted=Outcome.SUCCESS),
                Condition(task="py", wanted=Outcome.FAILURE),
            ),
        ),
    ),
    success=("go",),
    failed=("mail",),
)


def test_conditions_are_read_as_the_contract_shows_them() -> None:
    assert good("CONDITIONS", **CONDITIONS) == READ_CONDITIONS


def test_conditions_may_be_text_that_holds_json() -> None:
    text = {key: json.dumps(value) for key, value in CONDITIONS.items()}
    assert good("CONDITIONS", **text) == READ_CONDITIONS


def test_conditions_may_stand_in_params() -> None:
    params = {key: CONDITIONS[key] for key in ("dependence", "conditionResult")}
    assert good("CONDITIONS", params=params, dependence={}) == READ_CONDITIONS


def test_a_list_of_one_empty_name_is_an_empty_branch() -> None:
    node = CONDITIONS | {"conditionResult": {"successNode": ["go"], "failedNode": [""]}}
    control = good("CONDITIONS", **node)
    assert isinstance(control, Conditions)
    assert control.failed == ()


def test_every_mistake_of_conditions_is_found_in_one_pass() -> None:
    assert bad(
        "CONDITIONS",
        dependence={
            "relation": "XOR",
            "dependTaskList": [
                {"dependItemList": [{"depTasks": "a", "status": "MAYBE"}, {"status": "SUCCESS"}]},
                [],
            ],
        },
        conditionResult={"successNode": [4001], "failedNode": {}},
    ) == [
        "dependence.relation: must be AND or OR, not 'XOR'",
        "dependence.dependTaskList[1]: must be an object",
        (
            "dependence.dependTaskList[0].dependItemList[0].status: must be SUCCESS or FAILURE,"
            " not 'MAYBE'"
        ),
        (
            "dependence.dependTaskList[0].dependItemList[1].depTasks: must name the upstream task"
            " looked at, not be None"
        ),
        (
            "conditionResult.successNode: 4001 is a number; task codes of later generations are not"
            " known here, write the task's name"
        ),
        "conditionResult.failedNode: must be the names of tasks, not an object",
    ]


def test_conditions_that_look_at_nothing_are_refused() -> None:
    assert bad("CONDITIONS", dependence={}) == [
        "dependence.dependTaskList: at least one group is needed"
    ]
    assert bad("CONDITIONS", dependence=items()) == [
        "dependence.dependTaskList: at least one condition is needed"
    ]


def test_conditions_with_good_neighbours_pass() -> None:
    assert check_targets("x", READ_CONDITIONS, ["go", "mail"], NAMES, ["extract", "py"]) == []


NAMES = ("extract", "py", "x", "go", "mail", "far", "z")


def test_conditions_look_at_direct_upstreams_and_lead_to_direct_successors() -> None:
    assert check_targets("x", READ_CONDITIONS, ["go", "far"], ("py", "go", "mail"), ["py"]) == [
        (
            "task 'x', dependence.dependTaskList[0].dependItemList[0].depTasks:"
            " there is no task 'extract'"
        ),
        (
            "task 'x', conditionResult.failedNode: 'mail' is not a direct successor;"
            " add 'x' to its preTasks"
        ),
        (
            "task 'x': its successor 'far' is in no branch; name it in conditionResult.successNode"
            " or conditionResult.failedNode, or take 'x' out of its preTasks"
        ),
    ]
    (mistake,) = check_targets("x", READ_CONDITIONS, ["go", "mail"], NAMES, ["py"])
    assert "'extract' is not a direct upstream; add it to preTasks" in mistake


# SWITCH

SWITCH = a_switch(("${cnt} > 10", "big"), ("${flag} == 'Y'", ["yes", "also"]))


@pytest.mark.parametrize(
    "node", [{"params": SWITCH}, SWITCH, {"params": json.dumps(SWITCH)}, {"params": {}} | SWITCH]
)
def test_a_switch_is_read_from_params_or_from_the_node(node: dict[str, Any]) -> None:
    control = good("SWITCH", **node)
    assert isinstance(control, Switch)
    assert [branch.targets for branch in control.branches] == [("big",), ("yes", "also")]
    assert control.default == ("z",)


def test_a_switch_takes_the_first_branch_that_holds() -> None:
    control = good("SWITCH", **SWITCH)
    assert isinstance(control, Switch)
    assert choose(control, {"cnt": "11", "flag": "Y"}) == Choice(
        targets=("big",), why="branch 1 holds: ${cnt} > 10"
    )
    assert choose(control, {"cnt": "9", "flag": "Y"}) == Choice(
        targets=("yes", "also"), why="branch 2 holds: ${flag} == 'Y'"
    )
    assert choose(control, {"cnt": "9", "flag": "N"}) == Choice(
        targets=("z",), why="no condition holds: the default is taken"
    )


def test_a_branch_without_a_condition_is_taken_when_it_is_reached() -> None:
    control = good("SWITCH", **a_switch(("${cnt} > 10", "a"), (" ", "b"), ("true", "c")))
    assert isinstance(control, Switch)
    assert choose(control, {"cnt": "1"}) == Choice(targets=("b",), why="branch 2 has no condition")


@pytest.mark.parametrize("written", ["{}", "{}-x", "me:{}@host"])
def test_a_switch_that_compares_an_encrypted_value_fails_with_the_cure(written: str) -> None:
    control = good("SWITCH", **SWITCH)
    assert isinstance(control, Switch)
    for token in ("sealed:0123abcd:QUJD.", "sealed:0123abcd:QUJD#"):
        choice = choose(control, {"cnt": "1", "flag": written.format(token)})
        assert choice == Undecided(
            why="the condition of branch 2 can't be decided: the parameter 'flag' is encrypted with"
            " the key 0123abcd, which this master lacks: copy the key file to the master's host"
        )
    # An earlier branch still matches, and parameters that no condition names are not compared.
    assert isinstance(choose(control, {"cnt": "11", "flag": token}), Choice)
    assert isinstance(choose(control, {"cnt": "1", "flag": "Y", "other": token}), Choice)


def test_a_missing_parameter_fails_the_switch_and_is_named() -> None:
    control = good("SWITCH", **SWITCH)
    assert isinstance(control, Switch)
    choice = choose(control, {"cnt": "1"})
    assert choice == Undecided(
        why="the condition of branch 2 can't be decided: position 1: the parameter 'flag' has no"
        " value, in ${flag} == 'Y'"
    )


def test_the_reason_of_a_choice_is_one_line_and_short() -> None:
    control = good("SWITCH", **a_switch(("true\n" + " " * 900 + "or false", "a")))
    assert isinstance(control, Switch)
    choice = choose(control, {})
    assert choice.why.isprintable()
    assert len(choice.why) < 250


def test_a_switch_without_a_default_is_refused_with_the_key_to_write() -> None:
    control = good("SWITCH", **a_switch(("true", "a"), default=None))
    assert control is not None
    assert check_targets("x", control, ["a"], ["x", "a"], []) == [
        (
            "task 'x', switchResult.nextNode: the switch has no default;"
            " name the node that runs when no condition holds"
        )
    ]


def test_a_branch_leads_to_a_direct_successor() -> None:
    control = good("SWITCH", **a_switch(("true", "far"), ("true", "77"), default="gone"))
    assert control is not None
    assert check_targets("x", control, ["z"], NAMES, []) == [
        (
            "task 'x', switchResult.dependTaskList[0].nextNode: 'far' is not a direct successor;"
            " add 'x' to its preTasks"
        ),
        (
            "task 'x', switchResult.dependTaskList[1].nextNode: there is no task '77';"
            " task codes of later generations are not known here, write the task's name"
        ),
        "task 'x', switchResult.nextNode: there is no task 'gone'",
        (
            "task 'x': its successor 'z' is in no branch; name it in a nextNode,"
            " or take 'x' out of its preTasks"
        ),
    ]


def test_task_codes_of_later_generations_are_refused_with_a_cure() -> None:
    assert bad("SWITCH", params=a_switch(("true", 4001), default=4003)) == [
        (
            "params.switchResult.dependTaskList[0].nextNode: 4001 is a number; task codes of later"
            " generations are not known here, write the task's name"
        ),
        (
            "params.switchResult.nextNode: 4003 is a number; task codes of later generations are not"
            " known here, write the task's name"
        ),
    ]


@pytest.mark.parametrize("nothing", [0, "", None, [], [""], "[]"])
def test_a_branch_to_nothing_is_refused(nothing: object) -> None:
    assert bad("SWITCH", **a_switch(("true", nothing))) == [
        "switchResult.dependTaskList[0].nextNode: name the node that this branch runs"
    ]


def test_every_mistake_of_a_switch_is_found_in_one_pass() -> None:
    control, mistakes = read(
        "SWITCH", **a_switch(("__import__('os')", "a"), (5, "b"), ("9**9", "c"))
    )
    assert [mistake.split(": ")[0] for mistake in mistakes] == [
        f"{PLACE}, switchResult.dependTaskList[{index}].condition" for index in (0, 1, 2)
    ]
    assert "position 2: expected a comparison" in mistakes[2]
    # The targets were read nevertheless, so that their mistakes are reported in the same pass.
    assert control is not None
    assert check_targets("x", control, ["a", "b", "c", "z"], "abcxz", []) == []


def test_x10_a_switch_has_a_limited_number_of_branches_and_steps() -> None:
    assert bad("SWITCH", **a_switch(*[("true", "a")] * (MAX_BRANCHES + 1))) == [
        f"switchResult.dependTaskList: more than {MAX_BRANCHES} branches"
    ]
    (mistake,) = bad("SWITCH", **a_switch(*[("!" * 3_999 + "1", "a")] * 3))
    assert mistake.endswith("at most 10,000 are allowed")


def test_absurd_shapes_are_mistakes_and_never_raise_7320_15594() -> None:
    deep = json.loads("[" * 400 + "]" * 400)
    for value in (deep, 5, True, "[", "null", "{}", {"dependTaskList": deep}, {"nextNode": deep}):
        for task_type in ("SUB_PROCESS", "CONDITIONS", "SWITCH", "DEPENDENT"):
            for key in ("params", "dependence", "switchResult", "conditionResult"):
                read(task_type, **{key: value})
    assert bad("SWITCH", switchResult="[" * 100_000) != []


# DEPENDENT


def test_a_dependent_is_read_as_the_contract_shows_it() -> None:
    dependence = {
        "relation": "AND",
        "dependTaskList": [
            {
                "relation": "OR",
                "dependItemList": [
                    an_item(definitionList=[{"value": 9, "label": "d9"}]),
                    an_item(
                        definitionId="10", depTasks="load", cycle="hour", dateValue="last1Hour"
                    ),
                ],
            }
        ],
    }
    expected = Dependent(
        relation=Relation.AND,
        groups=(
            DependGroup(
                relation=Relation.OR,
                items=(
                    DependItem(
                        definition_id=9,
                        definition_name=None,
                        project_id=1,
                        task=None,
                        cycle="day",
                        date_value="today",
                    ),
                    DependItem(
                        definition_id=10,
                        definition_name=None,
                        project_id=1,
                        task="load",
                        cycle="hour",
                        date_value="last1Hour",
                    ),
                ),
            ),
        ),
    )
    assert good("DEPENDENT", params={}, dependence=dependence) == expected
    assert good("DEPENDENT", params="{}", dependence=json.dumps(dependence)) == expected
    assert [item.key for item in expected.groups[0].items] == [
        "9-ALL-day-today",
        "10-load-hour-last1Hour",
    ]


def test_a_dependent_may_name_its_definition_and_ask_for_any_interval() -> None:
    item = an_item(definitionId=None, definitionName="daily", projectId=None, intervals="ANY")
    control = good("DEPENDENT", dependence=items(item))
    assert isinstance(control, Dependent)
    ((read_item,),) = (group.items for group in control.groups)
    assert read_item.key == "daily-ALL-day-today"
    assert read_item.any_interval


@pytest.mark.parametrize("cycle", DATE_VALUES)
def test_a_wrong_date_value_is_answered_with_those_of_its_cycle(cycle: str) -> None:
    assert bad("DEPENDENT", dependence=items(an_item(cycle=cycle, dateValue="someDay"))) == [
        (
            "dependence.dependTaskList[0].dependItemList[0].dateValue: the cycle"
            f" {cycle} has {', '.join(DATE_VALUES[cycle])}, not 'someDay'"
        )
    ]


def test_every_mistake_of_a_dependent_is_found_in_one_pass() -> None:
    assert bad(
        "DEPENDENT",
        dependence=items(
            an_item(cycle="year"),
            an_item(cycle="hour"),
            an_item(definitionId="x", depTasks=0, projectId=-1, intervals="SOME"),
            relation="NOT",
        ),
    ) == [
        "dependence.dependTaskList[0].relation: must be AND or OR, not 'NOT'",
        (
            "dependence.dependTaskList[0].dependItemList[0].cycle: must be one of hour, day, week,"
            " month, not 'year'"
        ),
        (
            "dependence.dependTaskList[0].dependItemList[1].dateValue: the cycle hour has currentHour,"
            " last1Hour, last2Hours, last3Hours, last24Hours, not 'today'"
        ),
        (
            "dependence.dependTaskList[0].dependItemList[2].definitionId: must be a whole number from 1"
            " to 2147483647, not 'x'"
        ),
        (
            "dependence.dependTaskList[0].dependItemList[2].projectId: must be a whole number from 1 to"
            " 2147483647, not -1"
        ),
        (
            "dependence.dependTaskList[0].dependItemList[2].depTasks: must name ALL or a task of it,"
            " not be 0"
        ),
        "dependence.dependTaskList[0].dependItemList[2].intervals: must be EVERY or ANY, not 'SOME'",
    ]


def a_dataset_item(**changes: Any) -> dict[str, Any]:
    return {"dataset": "flights", "cycle": "hour", "dateValue": "last1Hour"} | changes


def test_an_item_may_be_about_a_dataset() -> None:
    control = good(
        "DEPENDENT",
        dependence=items(
            a_dataset_item(definitionId="", lateness="PT10M", idleAfter="PT1H", intervals="ANY"),
            a_dataset_item(),
            an_item(),
        ),
    )
    assert isinstance(control, Dependent)
    (group,) = control.groups
    assert group.items[0] == DatasetItem(
        dataset="flights",
        cycle="hour",
        date_value="last1Hour",
        any_interval=True,
        lateness=timedelta(minutes=10),
        idle_after=timedelta(hours=1),
    )
    assert group.items[1].key == "flights-hour-last1Hour"
    assert named_definitions([control]) == (9,)


def test_every_mistake_of_an_item_about_a_dataset_is_found() -> None:
    place = "dependence.dependTaskList[0].dependItemList"
    assert bad(
        "DEPENDENT",
        dependence=items(
            a_dataset_item(dataset="../x", definitionName="daily"),
            a_dataset_item(lateness=600, idleAfter="PT0S"),
            a_dataset_item(dataset=["x"], lateness="P1M", idleAfter="P400D", dateValue="today"),
        ),
    ) == [
        (
            f"{place}[0].dataset: must be a name of letters, digits, _, - and ., 128 at most, and the"
            " first no - or ., not '../x'"
        ),
        f"{place}[0].definitionName: stands beside dataset; an item is about one of the two",
        f"{place}[1].lateness: 600 can't be taken: write a text such as PT10M",
        f"{place}[1].idleAfter: 'PT0S' can't be taken: it must be from PT1S to P366D",
        (
            f"{place}[2].dataset: must be a name of letters, digits, _, - and ., 128 at most, and the"
            " first no - or ., not a list"
        ),
        (
            f"{place}[2].lateness: 'P1M' can't be taken: months and years have no fixed length;"
            " write days, as in P30D"
        ),
        f"{place}[2].idleAfter: 'P400D' can't be taken: it must be from PT1S to P366D",
        (
            f"{place}[2].dateValue: the cycle hour has currentHour, last1Hour, last2Hours, last3Hours,"
            " last24Hours, not 'today'"
        ),
    ]


def test_a_dependent_has_items_but_not_too_many() -> None:
    assert bad("DEPENDENT", dependence={}) == [
        "dependence.dependTaskList: at least one group is needed"
    ]
    assert bad("DEPENDENT", dependence=items()) == [
        "dependence.dependTaskList: at least one item is needed"
    ]
    assert bad("DEPENDENT", dependence=items(*[an_item()] * (MAX_ITEMS + 1))) == [
        f"dependence.dependTaskList[0]: more than {MAX_ITEMS} items"
    ]


def test_the_definitions_that_control_tasks_name_are_listed_once_and_in_order() -> None:
    dependent = good("DEPENDENT", dependence=items(an_item(), an_item(definitionId=3), an_item()))
    child = good("SUB_PROCESS", params={"processDefinitionName": "child"})
    assert dependent is not None
    assert child is not None
    assert named_definitions([child, READ_CONDITIONS, dependent, child]) == ("child", 9, 3)
