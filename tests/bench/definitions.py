"""The process definitions that are measured, as the JSON of `t_ds_process_definition`. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def chain(length: int, script: str) -> str:
    """`t0` to `t<length-1>` in a line."""
    return _process(
        [_task(f"t{n}", script, [f"t{n - 1}"] if n else []) for n in range(length)],
    )


def fan(width: int, end_script: str, leaf_script: str) -> str:
    """`root`, this many parallel `leaf`s, and `join`."""
    leaves = [f"leaf{n}" for n in range(width)]
    return _process(
        [
            _task("root", end_script, []),
            *(_task(name, leaf_script, ["root"]) for name in leaves),
            _task("join", end_script, leaves),
        ]
    )


def layered(widths: Sequence[int], first_script: str, script: str) -> str:
    """Layers of this many tasks, each after all of the layer above; `l<layer>n<number>`."""
    tasks: list[dict[str, Any]] = []
    above: list[str] = []
    for layer, width in enumerate(widths):
        names = [f"l{layer}n{n}" for n in range(width)]
        tasks += [_task(name, script if layer else first_script, above) for name in names]
        above = names
    return _process(tasks)


def typed_chain(length: int, script: str, task_type: str) -> str:
    """`t0` to `t<length-1>` in a line, of a type that takes a script."""
    return _process(
        [_task(f"t{n}", script, [f"t{n - 1}"] if n else [], task_type) for n in range(length)]
    )


def one_task(name: str, script: str) -> str:
    """The JSON of a task alone, as its row has it."""
    return json.dumps(_task(name, script, []))


def retried_later(widths: Sequence[int]) -> str:
    """Layers of which the first fails at once and is tried again in an hour."""
    read = json.loads(layered(widths, "exit 1", "true"))
    for task in read["tasks"][: widths[0]]:
        task |= {"maxRetryTimes": 1, "retryInterval": 60}
    return json.dumps(read)


def pooled(width: int, script: str, pool: int) -> str:
    """Parallel tasks, `t0` and on, that each take a slot of a pool."""
    return _process([_task(f"t{n}", script, []) | {"taskGroupId": pool} for n in range(width)])


def dependents(width: int, definition: int) -> str:
    """Parallel DEPENDENT tasks, `t0` and on, that wait for today's run of a definition."""
    item = {
        "definitionId": definition,
        "projectId": 1,
        "depTasks": "ALL",
        "cycle": "day",
        "dateValue": "today",
    }
    groups = [{"relation": "AND", "dependItemList": [item]}]
    dependence = {"relation": "AND", "dependTaskList": groups}
    return _process(
        [_task(f"t{n}", "", [], "DEPENDENT") | {"dependence": dependence} for n in range(width)]
    )


def spark_chain(length: int, script: str, **params: object) -> str:
    """PYSPARK tasks in a line, `t0` and on; `params` besides the script."""
    return _process(
        [
            _task(f"t{n}", script, [f"t{n - 1}"] if n else [], "PYSPARK", params)
            for n in range(length)
        ]
    )


def spark_crowd(width: int, script: str) -> str:
    """Parallel PYSPARK tasks, `t0` and on."""
    return _process([_task(f"t{n}", script, [], "PYSPARK") for n in range(width)])


def _task(
    name: str,
    script: str,
    upstream: list[str],
    task_type: str = "SHELL",
    params: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    return {
        "id": f"tasks-{name}",
        "name": name,
        "type": task_type,
        "runFlag": "NORMAL",
        "params": {"rawScript": script, "localParams": [], "resourceList": [], **(params or {})},
        "preTasks": upstream,
        "maxRetryTimes": 0,
        "retryInterval": 1,
        "taskInstancePriority": "MEDIUM",
        "workerGroupId": -1,
        "dependence": {},
        "timeout": {"enable": False},
    }


def _process(tasks: list[dict[str, Any]]) -> str:
    return json.dumps({"globalParams": [], "tasks": tasks, "tenantId": -1, "timeout": 0})
