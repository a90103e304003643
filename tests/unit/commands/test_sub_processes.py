"""Commands that begin a sub process as part of its tree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.model.grants import GrantedObject, GrantKind
from common.model.origins import Origin
from common.model.plans import Begin, ChildOf, Drop
from common.model.states import ReleaseState
from tests.builders import NOON
from tests.unit.commands.planning import (
    LINE,
    OF_TASK_45,
    a_definition,
    a_parent,
    begun,
    begun_child,
    planned,
    read,
    why,
)


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


def test_x45_a_sub_process_of_another_project_begins_only_while_it_is_shared() -> None:
    command = read(LINE, **OF_TASK_45)
    foreign = a_definition(project_id=8)
    refused = why(planned(command, foreign, parent=a_parent(project_id=9)))
    missing = why(planned(command, None, parent=a_parent(project_id=9)))
    # The reason is the same for a foreign definition and for a missing one.
    assert refused == missing
    assert "there is no process definition with the id 3 in this project" in refused
    for parent in (
        a_parent(project_id=9, shared=frozenset({3})),
        a_parent(project_id=8),
        # The parent's definition may have been deleted.
        a_parent(project_id=None),
    ):
        assert isinstance(planned(command, foreign, parent=parent), Begin)
    broken = a_definition(project_id=8, process_definition_json='{"tasks": [{"name": "hidden"}]}')
    shared = a_parent(project_id=9, shared=frozenset({3}))
    assert "hidden" not in why(planned(command, broken, parent=shared))
    assert "hidden" in why(planned(command, broken, parent=a_parent(project_id=8)))


def test_x44_the_reason_of_a_foreign_child_that_cannot_begin_names_nothing_within_it() -> None:
    command = read(LINE, **OF_TASK_45)
    bad = a_definition(project_id=8, global_params='[{"prop": "hidden", "value": "${hidden}"}]')
    shared = {"project_id": 9, "shared": frozenset({3})}
    assert "hidden" in why(planned(command, bad, parent=a_parent(project_id=8)))
    assert why(planned(command, bad, parent=a_parent(**shared))) == (
        "process definition 'flights' of another project can't run as it is"
    )
    ring = planned(
        command, a_definition(project_id=8), parent=a_parent(ancestors=(3, 777), **shared)
    )
    assert "'flights' would run inside itself" in why(ring)
    assert "777" not in why(ring)


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


def test_x81_a_sub_process_that_is_too_deep_is_refused_with_the_setting() -> None:
    within = tuple(range(11, 111))
    assert begun_child(ancestors=within).process_definition_id == 3
    parent = a_parent(ancestors=(10, *within), root_id=7)
    found = planned(read(LINE, **OF_TASK_45), a_definition(), parent=parent)
    assert why(found) == (
        "process definition 'flights' would run at level 101 of sub-processes below process"
        " instance 7; master.sub_process_depth allows 100 levels"
    )


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


def test_the_local_parameters_of_the_task_may_name_its_run() -> None:
    text = "${system.project.name}.${system.workflow.definition.name}.${system.task.instance.id}"
    local = [{"prop": "whole", "value": text}]
    found = resolved_child(
        None,
        task_json=json.dumps({"params": {"localParams": local}}),
        origin=Origin(definition_name="trips", project_name="etl"),
    )
    assert found["whole"] == "etl.trips.${system.task.instance.id}"


def test_an_out_parameter_of_the_task_is_not_handed_down() -> None:
    local = [{"prop": "x", "direct": "OUT", "type": "VARCHAR", "value": "local"}]
    found = resolved_child(
        '[{"prop": "x", "value": "child"}]',
        task_json=json.dumps({"params": {"localParams": local}}),
    )
    assert found["x"] == "child"


def test_what_is_secret_above_is_marked_in_the_child() -> None:
    local = [{"prop": "place", "value": "x?key=${copy}"}, {"prop": "day", "value": "1"}]
    pool = [{"prop": "copy", "value": "hunter2", "secret": True}]
    child = begun_child(
        input_pool=json.dumps(pool), task_json=json.dumps({"params": {"localParams": local}})
    )
    found = {each["prop"]: each.get("secret") for each in json.loads(child.global_params)}
    assert found == {"copy": True, "place": True, "day": None}


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
    told = why(planned(command, parent=a_parent()))
    assert told.startswith("there is no process definition 'nights' in this project")


def test_a_sub_process_has_the_environment_of_its_parent_unless_it_is_given_one() -> None:
    def of_child(own: str, above: int | None) -> str | None:
        line = read(LINE.replace("{", "{" + own, 1), **OF_TASK_45)
        granted = frozenset(GrantedObject(GrantKind.ENVIRONMENT, each) for each in (7, 8))
        found = planned(line, a_definition(grants=granted), parent=a_parent(environment_code=above))
        assert isinstance(found, Begin), found
        code: str | None = json.loads(found.command_param).get("environmentCode")
        return code

    assert [of_child("", 7), of_child("", None), of_child('"environmentCode": 8, ', 7)] == [
        "7",
        None,
        "8",
    ]


FOREIGN = {"project_id": 9, "shared": frozenset({3})}
"""A parent of project 9, with which definition 3 of project 8 is shared."""


def with_local(*local: dict[str, str]) -> str:
    return json.dumps({"params": {"localParams": local}})


def test_x111_a_child_of_another_project_gets_only_values_that_it_declares() -> None:
    child = a_definition(project_id=8, global_params='[{"prop": "day", "value": "1"}]')
    above = {
        "global_params": '[{"prop": "part", "value": "$(id)"}, {"prop": "day", "value": "9"}]',
        "input_pool": '[{"prop": "PATH", "value": "/tmp/of-another"}]',
        "task_json": with_local(
            {"prop": "day", "value": "2026-01-31"}, {"prop": "more", "value": "x"}
        ),
    }
    found = json.loads(begun_child(child, **above, **FOREIGN).global_params)
    assert {each["prop"]: each["value"] for each in found} == {"day": "2026-01-31"}
    own = json.loads(begun_child(child, **above, project_id=8).global_params)
    assert {each["prop"] for each in own} == {"day", "part", "PATH", "more"}


@pytest.mark.parametrize(
    "value",
    [
        "$(id)",
        "`id`",
        "a b",
        "a;b",
        "a\nb",
        "'",
        '"',
        "${x}",
        "x$",
        "a=b",
        "*",
        "<(id)",
        "#",
        "a\\",
    ],
)
def test_x111_a_value_for_a_child_of_another_project_is_no_code(value: str) -> None:
    child = a_definition(project_id=8, global_params='[{"prop": "day", "value": "1"}]')
    refusals = {
        why(
            planned(
                read(LINE, **OF_TASK_45),
                child,
                parent=a_parent(task_json=with_local({"prop": name, "value": value}), **FOREIGN),
            )
        ).replace(repr(name), "…")
        # The answer does not show which names the child declares.
        for name in ("day", "undeclared")
    }
    (refused,) = refusals
    assert refused.startswith(
        "the value of … in task 'sub' can't go to a definition of another project:"
    )


@pytest.mark.parametrize(
    "value",
    ["", "2026-01-31", "2026-01-31 06:00:00", "s3a://raw/2026/01", "a,b", "-1.5", "é_1", "100%"],
)
def test_x111_plain_values_reach_a_child_of_another_project(value: str) -> None:
    child = a_definition(project_id=8, global_params='[{"prop": "day", "value": ""}]')
    local = with_local({"prop": "day", "value": value})
    found = json.loads(begun_child(child, task_json=local, **FOREIGN).global_params)
    assert [each["value"] for each in found] == [value]
