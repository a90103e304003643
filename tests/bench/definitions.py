"""The process definitions that are measured, as the JSON of `t_ds_process_definition`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def chain(length: int, script: str) -> str:
    """`t0` to `t<length-1>` in a line."""
    return _process(
        [_task(f"t{n}", script, [f"t{n - 1}"] if n else []) for n in range(length)],
    )


def fan(width: int, end_script: str, leaf_script: str) -> str:
    """`root`, so many parallel `leaf`s, and `join`."""
    leaves = [f"leaf{n}" for n in range(width)]
    return _process(
        [
            _task("root", end_script, []),
            *(_task(name, leaf_script, ["root"]) for name in leaves),
            _task("join", end_script, leaves),
        ]
    )


def layered(widths: Sequence[int], first_script: str, script: str) -> str:
    """Layers of so many tasks, each task after all of the layer above; `l<layer>n<number>`."""
    tasks: list[dict[str, Any]] = []
    above: list[str] = []
    for layer, width in enumerate(widths):
        names = [f"l{layer}n{n}" for n in range(width)]
        tasks += [_task(name, script if layer else first_script, above) for name in names]
        above = names
    return _process(tasks)


def _task(name: str, script: str, upstream: list[str]) -> dict[str, Any]:
    return {
        "id": f"tasks-{name}",
        "name": name,
        "type": "SHELL",
        "runFlag": "NORMAL",
        "params": {"rawScript": script, "localParams": [], "resourceList": []},
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
