"""Nodes and definition files as people and the original write them."""

from __future__ import annotations

import json
from typing import Any


def a_task(name: str, *upstream: str, **changes: Any) -> dict[str, Any]:
    params = {"rawScript": "true"}
    return {"name": name, "type": "SHELL", "params": params, "preTasks": list(upstream)} | changes


def a_child(name: str, **params: Any) -> dict[str, Any]:
    return a_task(name, type="SUB_PROCESS", params=params)


def a_dependent(name: str, **item: Any) -> dict[str, Any]:
    full = {"depTasks": "ALL", "cycle": "day", "dateValue": "today"} | item
    groups = [{"relation": "AND", "dependItemList": [full]}]
    return a_task(
        name, type="DEPENDENT", params={}, dependence={"relation": "AND", "dependTaskList": groups}
    )


def an_export(*tasks: dict[str, Any], name: str = "nightly", **changes: Any) -> dict[str, Any]:
    """A definition as the original writes it: the JSON as text, beside the project's name."""
    return {
        "projectName": "default",
        "processDefinitionName": name,
        "processDefinitionJson": json.dumps(
            {"globalParams": [], "tasks": list(tasks), "tenantId": 3, "timeout": 30}
        ),
        "processDefinitionDescription": "each night",
        "processDefinitionLocations": '{"tasks-1":{"x":1}}',
        "processDefinitionConnects": "[]",
    } | changes
