"""Recoveries with the latest version of the definition: what stays, what runs, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.grants import GrantedObject, GrantKind
from common.model.instances import TaskRow
from common.model.plans import Begin, DefinitionSnapshot, InstanceSnapshot, NewVersion, Plan
from common.model.states import ProcessState, ReleaseState, TaskState, TimeoutStrategy
from tests.builders import NOON, a_definition_json
from tests.unit.commands.planning import a_definition, a_parent, planned, read, why
from tests.unit.commands.recoveries import (
    ALLOWED,
    BAD,
    EXECUTE,
    FAILED,
    GONE,
    REPEAT,
    SUSPENDED,
    a_task,
    an_instance,
    restarted,
    values,
)

LATEST = '{"ProcessInstanceId": 12, "definitionVersion": "latest"}'
SHAPE = "a >> b >> c; d"
FIXED = {"params": {"rawScript": "echo fixed", "localParams": [], "resourceList": []}}
SUB = {"type": "SUB_PROCESS", "params": {"processDefinitionId": 7}}
OF_45 = {"parent_task_instance_id": 45}


def latest(shape: str = SHAPE, **of_task: Any) -> DefinitionSnapshot:
    return replace(
        a_definition(version=5), process_definition_json=a_definition_json(shape, **of_task)
    )


def a_failed_run(*tasks: TaskRow, **columns: Any) -> InstanceSnapshot:
    """`a` and `d` succeeded, `b` failed, and `c` never began; unless other tasks are given."""
    rows = tasks or (a_task("a"), a_task("b", BAD), a_task("d"))
    return an_instance(ProcessState.FAILURE, *rows, **{"shape": SHAPE} | columns)


def plan_for(
    definition: DefinitionSnapshot | None,
    instance: InstanceSnapshot,
    *,
    kind: CommandType = FAILED,
    param: str = LATEST,
    **columns: Any,
) -> Plan:
    return planned(read(param, command_type=int(kind), **columns), definition, instance=instance)


# The run's copy, and the version that takes its place


def test_without_the_option_a_run_keeps_its_copy() -> None:
    found = restarted(plan_for(latest(b=FIXED), a_failed_run(), param='{"ProcessInstanceId": 12}'))
    assert (found.version, found.reset, found.global_params) == (None, ("b",), None)


def test_the_latest_version_takes_the_place_of_the_run_s_copy() -> None:
    definition = replace(
        latest(b=FIXED), timeout_minutes=7, tenant_id=4, locations="{}", connects="[]"
    )
    found = restarted(plan_for(definition, a_failed_run()))
    assert found.version == NewVersion(
        version=5,
        process_instance_json=definition.process_definition_json,
        timeout_minutes=7,
        timeout_strategy=TimeoutStrategy.WARN,
        tenant_id=4,
        locations="{}",
        connects="[]",
    )
    assert found.reset == ("b",)


def test_a_changed_task_that_succeeded_is_reset_with_all_after_it() -> None:
    done = tuple(a_task(name) for name in "abd")
    instance = a_failed_run(*done, a_task("c", BAD))
    assert restarted(plan_for(latest(a=FIXED), instance)).reset == ("a", "b", "c")


def test_the_attempts_of_removed_tasks_are_set_aside() -> None:
    found = restarted(plan_for(latest("a >> c; d"), a_failed_run()))
    assert found.reset == ("b",)


def test_a_rerun_of_all_resets_all_and_is_afresh() -> None:
    found = restarted(plan_for(latest(), a_failed_run(), kind=REPEAT))
    assert (found.reset, found.afresh) == (("a", "b", "d"), True)


def test_a_stopped_run_continues_with_what_was_killed_and_what_has_changed() -> None:
    tasks = (a_task("a"), a_task("b", GONE), a_task("d"))
    instance = an_instance(ProcessState.STOP, *tasks, shape=SHAPE, run_scope=("b",))
    found = restarted(plan_for(latest(d=FIXED), instance, kind=SUSPENDED))
    assert (found.reset, found.run_scope) == (("b", "d"), None)


def test_the_first_selection_holds_in_the_latest_version_t72() -> None:
    instance = a_failed_run(a_task("b", BAD), command_param='{"StartNodeNameList": "b"}')
    found = restarted(plan_for(latest("a >> b >> n; d"), instance))
    assert (found.reset, found.run_scope) == (("b",), None)
    gone = plan_for(latest("a >> n; d"), instance)
    assert "none of its start nodes 'b' exists" in why(gone)


def test_no_result_stays_of_a_copy_that_can_t_be_read() -> None:
    instance = a_failed_run(process_instance_json='{"tasks": [{"name": "a", "type": "GONE"}]}')
    assert restarted(plan_for(latest(), instance)).reset == ("a", "b", "d")


def test_a_stale_attempt_that_has_not_ended_is_waited_for_by_the_user() -> None:
    live = a_task("a", TaskState.RUNNING, settled=False, kill_requested=True, end_time=None)
    reason = why(plan_for(latest(a=FIXED), a_failed_run(live, a_task("b", BAD))))
    assert "the last attempt at 'a' has not ended yet" in reason


# Parameters


def test_the_global_parameters_are_those_of_the_latest_version() -> None:
    document = json.loads(a_definition_json(SHAPE))
    document["globalParams"] = [
        {"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "$[yyyyMMdd]"}
    ]
    definition = replace(latest(), process_definition_json=json.dumps(document))
    instance = a_failed_run(start_time=NOON.replace(year=2013))
    assert values(restarted(plan_for(definition, instance))) == {"day": f"2013{NOON:%m%d}"}


# Checks of a new run


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (replace(latest(), release_state=ReleaseState.OFFLINE), "is OFFLINE; set it online first"),
        (replace(latest(), usable=False), "is switched off"),
        (replace(latest(), lacked_tenant=4), "tenant"),
        (replace(latest(), process_definition_json="{}"), "at least one task is needed"),
    ],
)
def test_what_no_new_run_may_have_no_restart_takes(
    definition: DefinitionSnapshot, reason: str
) -> None:
    assert reason in why(plan_for(definition, a_failed_run()))


def test_a_worker_group_that_is_not_granted_any_more_is_refused() -> None:
    instance = a_failed_run(worker_group_id=9)
    assert "worker group" in why(plan_for(latest(), instance))
    granted = replace(latest(), grants=frozenset({GrantedObject(GrantKind.WORKER_GROUP, 9)}))
    assert restarted(plan_for(granted, instance)).version is not None


@pytest.mark.parametrize("kind", sorted(ALLOWED))
@pytest.mark.parametrize("version", ['"newest"', "3", '{"a": 1}'])
def test_another_version_than_the_latest_is_refused(kind: CommandType, version: str) -> None:
    param = f'{{"ProcessInstanceId": 12, "definitionVersion": {version}, "StartNodeNameList": "a"}}'
    instance = an_instance(ALLOWED[kind][0], a_task("a", BAD))
    reason = why(plan_for(a_definition(), instance, kind=kind, param=param))
    assert "definitionVersion must be 'latest', not" in reason


def test_chosen_tasks_are_executed_in_the_version_of_the_run() -> None:
    param = LATEST.replace("}", ', "StartNodeNameList": "a"}')
    reason = why(plan_for(latest(), a_failed_run(), kind=EXECUTE, param=param))
    assert "EXECUTE_TASK runs tasks of the version that the run has" in reason


# Sub processes


def test_children_of_stale_tasks_run_all_again_and_a_later_restart_forgets_that() -> None:
    tasks = (a_task("a"), a_task("s", BAD), a_task("t", BAD))
    shape = "a >> s; t"
    instance = a_failed_run(
        *tasks,
        shape=shape,
        of_task={"s": SUB, "t": SUB},
        command_param='{"k": "v"}',
    )
    found = restarted(plan_for(latest(shape, a=FIXED, s=SUB, t=SUB), instance))
    noted = {"k": "v", "definitionVersion": "latest", "freshChildNameList": "s"}
    assert json.loads(found.command_param or "") == noted
    again = replace(instance, command_param=found.command_param or "")
    plain = restarted(plan_for(latest(shape), again, param='{"ProcessInstanceId": 12}'))
    assert json.loads(plain.command_param or "") == {"k": "v"}


def child_plan(definition: DefinitionSnapshot, child: InstanceSnapshot, **of_parent: Any) -> Plan:
    param = (
        '{"id": 9, "parentTaskInstanceId": 45, "ProcessInstanceId": 12, "processInstanceId": 12}'
    )
    command = read(param, command_type=int(FAILED), process_definition_id=definition.id, **OF_45)
    parent = a_parent(took_latest=True, **of_parent)
    return planned(command, definition, instance=child, parent=parent)


def test_a_child_takes_the_latest_version_with_its_parent() -> None:
    child = a_failed_run(root_id=2)
    found = restarted(child_plan(latest(b=FIXED), child))
    assert found.version is not None
    assert (found.reset, found.afresh) == (("b",), False)
    # Its own children do so too.
    assert json.loads(found.command_param or "")["definitionVersion"] == "latest"


def test_the_child_of_a_stale_task_runs_all_again() -> None:
    child = a_failed_run(root_id=2)
    found = restarted(child_plan(latest(), child, wants_fresh_child=True))
    assert (found.reset, found.afresh) == (("a", "b", "d"), True)


def test_the_child_of_another_definition_than_its_task_names_is_followed_by_a_new_run() -> None:
    child = a_failed_run(root_id=2, process_definition_id=99)
    found = child_plan(latest(), child)
    assert isinstance(found, Begin)
    assert (found.process_definition_id, found.command_type) == (3, CommandType.START_PROCESS)
    assert "ProcessInstanceId" not in json.loads(found.command_param)


def test_the_child_s_definition_need_not_be_online_t39() -> None:
    definition = replace(latest(), release_state=ReleaseState.OFFLINE)
    assert restarted(child_plan(definition, a_failed_run(root_id=2))).version is not None


def test_a_command_that_begins_a_run_notes_no_version() -> None:
    found = planned(read('{"definitionVersion": "latest", "k": "v"}'), a_definition())
    assert isinstance(found, Begin)
    assert json.loads(found.command_param) == {"k": "v"}


def test_a_task_that_succeeded_before_is_not_taken_for_one_of_the_new_version() -> None:
    # The new version has another task of the name, above one that stays.
    before = a_failed_run(a_task("a"), a_task("b"), a_task("c", BAD), a_task("d"))
    found = restarted(plan_for(latest("d >> a >> b >> c"), before))
    assert found.reset == ("a", "b", "c")
