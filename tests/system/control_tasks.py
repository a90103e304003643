"""Control tasks for definitions that a test types by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.system.cluster import PrivateCluster, a_task


def a_switch(condition: object, **more: object) -> list[object]:
    result = {"dependTaskList": [{"condition": condition, "nextNode": "a"}], "nextNode": "b"}
    return [
        {"name": "s", "type": "SWITCH", "switchResult": result | more},
        a_task("a", "true", "s"),
        a_task("b", "true", "s"),
    ]


def some_conditions(item: object, *, success: str = "b", relation: str = "AND") -> list[object]:
    groups = [{"relation": "AND", "dependItemList": [item]}]
    return [
        a_task("a", "true"),
        {
            "name": "c",
            "type": "CONDITIONS",
            "preTasks": ["a"],
            "conditionResult": {"successNode": [success], "failedNode": ["b"]},
            "dependence": {"relation": relation, "dependTaskList": groups},
        },
        a_task("b", "true", "c"),
    ]


def a_dependent(**item: object) -> dict[str, object]:
    whole = {"depTasks": "ALL", "cycle": "day", "dateValue": "today", **item}
    groups = [{"relation": "AND", "dependItemList": [whole]}]
    return {
        "name": "w",
        "type": "DEPENDENT",
        "dependence": {"relation": "AND", "dependTaskList": groups},
    }


def a_sub_process(definition: int | str) -> dict[str, object]:
    key = "processDefinitionId" if isinstance(definition, int) else "processDefinitionName"
    return {"name": "s", "type": "SUB_PROCESS", "params": {key: definition}}


def redefine(cluster: PrivateCluster, definition_id: int, tasks: list[object]) -> None:
    """Give a definition other tasks, by hand."""
    cluster.rows(
        "UPDATE t_ds_process_definition SET process_definition_json = %s WHERE id = %s",
        json.dumps({"tasks": tasks}),
        definition_id,
    )


_FAR = [*a_switch("1 == 1", nextNode="far"), a_task("far", "true", "b")]
_NOWHERE = {"dependTaskList": [{"condition": "1 == 1", "nextNode": "gone"}]}

BAD_BRANCHES: Mapping[str, tuple[list[object], tuple[str, ...]]] = {
    "no default": (
        a_switch("1 == 1", nextNode=""),
        ("task 's', switchResult.nextNode: the switch has no default",),
    ),
    "no direct successor": (
        _FAR,
        ("task 's', switchResult.nextNode: 'far' is not a direct successor",),
    ),
    "successor in no branch": (
        a_switch("1 == 1", nextNode="a"),
        ("task 's': its successor 'b' is in no branch",),
    ),
    "branch to nothing": (
        a_switch("1 == 1", **_NOWHERE),
        ("switchResult.dependTaskList[0].nextNode: there is no task 'gone'",),
    ),
    "no switch at all": (
        [{"name": "s", "type": "SWITCH"}, a_task("a", "true", "s")],
        ("task 's', switchResult.nextNode: the switch has no default",),
    ),
    "success upstream": (
        some_conditions({"depTasks": "a", "status": "SUCCESS"}, success="a"),
        ("task 'c', conditionResult.successNode: 'a' is not a direct successor",),
    ),
    "odd status": (
        some_conditions({"depTasks": "a", "status": "MAYBE"}),
        ("dependTaskList[0].dependItemList[0].status", "'MAYBE'"),
    ),
    "odd relation": (
        some_conditions({"depTasks": "a", "status": "SUCCESS"}, relation="XOR"),
        ("dependence.relation", "'XOR'"),
    ),
    "condition on nothing": (
        some_conditions({"depTasks": "gone", "status": "SUCCESS"}),
        ("dependItemList[0].depTasks: there is no task 'gone'",),
    ),
}
"""Tasks whose branches lead nowhere, and what is said of them."""
