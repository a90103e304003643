"""Definitions in the shape of the later dialects: tasks and the relations between their codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from common.model.codes import code_in
from operations.definition_document import CHILD_ID, id_in, listed, object_of, type_of
from operations.environment_references import ENVIRONMENT_CODE
from operations.task_codes import Graph

_NAMES: Final = {"WARN": "WARN", "FAILED": "FAILED", "WARNFAILED": "WARNFAILED"}


def relations(graph: Graph, word: str, definition_code: int, version: int) -> list[dict[str, Any]]:
    """Return the relations: one for each edge, and one from 0 for each first task."""
    return [
        {
            "name": "",
            f"{word}DefinitionCode": definition_code,
            f"{word}DefinitionVersion": version,
            "preTaskCode": before,
            "preTaskVersion": 0 if before == 0 else 1,
            "postTaskCode": graph.codes[name],
            "postTaskVersion": 1,
            "conditionType": "NONE",
            "conditionParams": {},
        }
        for name, node in graph.nodes.items()
        for before in _codes_above(node, graph) or [0]
    ]


def _codes_above(node: Mapping[str, Any], graph: Graph) -> list[int]:
    above = [str(each) for each in listed(_decoded(node.get("preTasks")))]
    return [graph.codes[each] for each in above if each in graph.codes]


def tasks(graph: Graph, project_code: int, child_codes: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return the task definitions; `child_codes` are the codes of sub processes by their ids."""
    return [
        _task(name, node, graph, project_code, child_codes) for name, node in graph.nodes.items()
    ]


def children_of(graph: Graph) -> list[int]:
    """Return the ids of the definitions that tasks run as sub processes."""
    found = [id_in(object_of(node.get("params")).get(CHILD_ID)) for node in graph.nodes.values()]
    return sorted({each for each in found if each is not None})


def _task(
    name: str,
    node: Mapping[str, Any],
    graph: Graph,
    project_code: int,
    child_codes: Mapping[int, int],
) -> dict[str, Any]:
    timeout = object_of(node.get("timeout"))
    enabled = timeout.get("enable") in (True, "true")
    return {
        "code": graph.codes[name],
        "name": name,
        "version": 1,
        "description": str(node.get("description") or ""),
        "projectCode": project_code,
        "taskType": type_of(node),
        "taskParams": _params(node, graph, child_codes),
        "flag": "NO" if node.get("runFlag") == "FORBIDDEN" else "YES",
        "taskPriority": str(node.get("taskInstancePriority") or "MEDIUM"),
        "workerGroup": str(node.get("workerGroup") or "default"),
        "environmentCode": code_in(node.get(ENVIRONMENT_CODE)) or -1,
        "failRetryTimes": _number(node.get("maxRetryTimes")),
        "failRetryInterval": _number(node.get("retryInterval")),
        "timeoutFlag": "OPEN" if enabled else "CLOSE",
        "timeoutNotifyStrategy": _NAMES.get(str(timeout.get("strategy") or ""))
        if enabled
        else None,
        "timeout": _number(timeout.get("interval")) if enabled else 0,
        "delayTime": _number(node.get("delayTime")),
        "resourceIds": "",
        "taskGroupId": 0,
        "taskGroupPriority": 0,
        "cpuQuota": -1,
        "memoryMax": -1,
        "taskExecuteType": "BATCH",
    }


def _params(
    node: Mapping[str, Any], graph: Graph, child_codes: Mapping[int, int]
) -> dict[str, Any]:
    params = dict(object_of(node.get("params")))
    for key in ("dependence", "switchResult"):
        if node.get(key):
            params[key] = _coded(_decoded(node[key]), graph)
    if node.get("conditionResult"):
        result = object_of(_decoded(node["conditionResult"]))
        params["conditionResult"] = {key: _codes(value, graph) for key, value in result.items()}
    child = id_in(params.pop(CHILD_ID, None))
    if child is not None:
        params["processDefinitionCode"] = child_codes.get(child, child)
        params["workflowDefinitionCode"] = params["processDefinitionCode"]
    params.setdefault("localParams", [])
    params.setdefault("resourceList", [])
    return params


def _coded(value: object, graph: Graph) -> object:
    """Put the codes of this definition's tasks beside, or in the place of, their names."""
    if isinstance(value, list):
        return [_coded(each, graph) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _coded(each, graph) for key, each in value.items()}
    if "nextNode" in made:
        made["nextNode"] = _codes(made["nextNode"], graph)
    name = made.get("depTasks")
    if isinstance(name, str) and name in graph.codes and "definitionId" not in made:
        made["depTaskCode"] = graph.codes[name]
    return made


def _codes(value: object, graph: Graph) -> object:
    if isinstance(value, list):
        return [graph.codes.get(str(each), each) for each in value]
    return graph.codes.get(str(value), value)


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found


def _number(value: object) -> int:
    text = str(value or 0).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
