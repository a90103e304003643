"""Failed runs that continue with the fixed definition, and a wait that a person ends."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.system.cluster import PrivateCluster, a_task, until

FAILURE, SUCCESS, FORCED = 6, 7, 13


def _fix(cluster: PrivateCluster, definition: int, tasks: Sequence[object]) -> None:
    """Save a new version of a definition with SQL."""
    cluster.rows(
        "UPDATE t_ds_process_definition SET version = version + 1, process_definition_json = %s"
        " WHERE id = %s RETURNING id",
        json.dumps({"tasks": tasks}),
        definition,
    )


def _attempts(cluster: PrivateCluster, instance: int) -> list[tuple[object, ...]]:
    return cluster.tasks_of(instance, "name", "attempt", "state", "flag")


def test_a_failed_run_continues_with_the_fixed_definition_and_keeps_what_is_still_valid(
    cluster: PrivateCluster,
) -> None:
    first, side = a_task("first", "true"), a_task("side", "echo old", "first")
    broken = a_task("load", "exit 1", "first")
    definition = cluster.define("fixed", [first, side, broken, a_task("gone", "true")])
    instance = cluster.begin(definition)
    assert cluster.await_end(instance) == FAILURE

    report = a_task("report", "true", "load")
    later = [first, a_task("side", "echo new", "first"), a_task("load", "true", "first"), report]
    _fix(cluster, definition, later)
    hinted = cluster.orcaflow("instance", "rerun", str(instance), "--failed", "--wait")
    assert hinted.returncode == 1
    assert "runs version 1 of its definition; version 2 exists" in hinted.stderr

    difference = cluster.told("instance", "diff", str(instance))
    assert (difference["kept"], difference["removed_tasks"]) == (["first"], ["gone"])
    taken = ("instance", "recover", str(instance), "--with-version", "latest", "--wait")
    shown = cluster.told(*taken)["instance"]
    assert (shown["state"], shown["version"], shown["latest_version"]) == ("SUCCESS", 2, 2)
    assert sorted(_attempts(cluster, instance)) == [
        ("first", 1, 7, 1),
        ("gone", 1, 7, 0),
        ("load", 1, 6, 0),
        ("load", 2, 6, 0),
        ("load", 3, 7, 1),
        ("report", 1, 7, 1),
        ("side", 1, 7, 0),
        ("side", 2, 7, 1),
    ]


def test_the_child_of_a_sub_process_takes_its_latest_version_too(cluster: PrivateCluster) -> None:
    steps = [a_task("good", "true"), a_task("bad", "exit 1", "good")]
    child = cluster.define("fixed child", steps)
    sub = {"name": "sub", "type": "SUB_PROCESS", "params": {"processDefinitionId": child}}
    parent = cluster.define("fixed parent", [sub])
    instance = cluster.begin(parent)
    assert cluster.await_end(instance) == FAILURE
    _fix(cluster, child, [steps[0], a_task("bad", "true", "good")])
    param = json.dumps({"ProcessInstanceId": instance, "definitionVersion": "latest"})
    cluster.put(parent, param, command_type=4)
    until(lambda: cluster.state_of(instance) == SUCCESS)
    ((below,),) = cluster.rows(
        "SELECT id FROM t_ds_process_instance WHERE process_definition_id = %s", child
    )
    assert _attempts(cluster, below) == [("good", 1, 7, 1), ("bad", 1, 6, 0), ("bad", 2, 7, 1)]


def test_a_person_ends_the_wait_of_a_dependent_and_its_run_continues(
    cluster: PrivateCluster,
) -> None:
    item = {"definitionId": 4711, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    group = {"relation": "AND", "dependItemList": [item]}
    wait = {
        "name": "wait",
        "type": "DEPENDENT",
        "dependence": {"relation": "AND", "dependTaskList": [group]},
    }
    never = cluster.define("never good", [a_task("x", "true")])
    item["definitionId"] = never
    instance = cluster.begin(cluster.define("passed", [wait, a_task("after", "true", "wait")]))
    until(lambda: cluster.tasks_of(instance, "name", "state") == [("wait", 1)])
    ((task,),) = cluster.tasks_of(instance, "id")
    passed = cluster.told("task", "force-success", str(task))
    assert (passed["state"], passed["reason"]) == (
        "FORCED_SUCCESS",
        "declared a success by hand; it waited for others",
    )
    assert cluster.await_end(instance) == SUCCESS
    assert cluster.tasks_of(instance, "name", "state") == [("wait", FORCED), ("after", SUCCESS)]
