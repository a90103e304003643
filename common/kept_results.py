"""Decides which results of a run stay valid under another version of its definition. Pure.

A task is *stale* if it differs between the two versions, if a task above it is stale, or if the
earlier version does not have it. The name identifies a task. The master restarts runs by this rule,
and people can read its decision before that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.model.definitions import ProcessGraph, TaskNode
from common.model.states import TaskState
from common.params import Property, parse_properties

_NO_MATTER: Final = ("id", "code", "desc", "description", "preTasks", "depList")
"""The keys of a task that no result depends on; `TaskNode.upstream` has the tasks above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResults:
    """The decision about the tasks of two versions.

    `kept` names the tasks that keep their results, `runs` all others of the later version, and
    `removed` the tasks of the earlier version alone. `stale` is in topological order.
    """

    kept: tuple[str, ...]
    runs: tuple[str, ...]
    stale: tuple[str, ...]
    removed: tuple[str, ...]


def kept_results(
    before: ProcessGraph, after: ProcessGraph, states: Mapping[str, TaskState]
) -> KeptResults:
    """Compare two versions; `states` are those of the valid attempts under the earlier one.

    Raises `ParameterError` for global parameters that can't be read.
    """
    stale = stale_tasks(before, after)
    names = after.dag.names
    kept = tuple(
        name for name in names if name not in stale and name in states and states[name].is_success
    )
    is_kept = frozenset(kept)
    return KeptResults(
        kept=kept,
        runs=tuple(name for name in names if name not in is_kept),
        stale=tuple(stale),
        removed=tuple(name for name in before.dag.names if name not in after.nodes),
    )


def stale_tasks(before: ProcessGraph, after: ProcessGraph) -> dict[str, None]:
    """Return the stale tasks of the later version, in topological order.

    A changed or removed global parameter makes all tasks stale, since a program may read any
    parameter. An added parameter makes the tasks stale that name it, and all SUB_PROCESS tasks.
    """
    old, new = _declared(before), _declared(after)
    if any(new.get(name) != each for name, each in old.items()):
        return dict.fromkeys(after.dag.names)
    added = tuple(name.casefold() for name in new if name not in old)
    stale: dict[str, None] = {}
    for name in after.dag.names:
        node = after.nodes[name]
        if (
            any(above in stale for above in after.dag.upstream[name])
            or _differs(before.nodes.get(name), node)
            or (added and _reads(node, added))
        ):
            stale[name] = None
    return stale


def _declared(graph: ProcessGraph) -> dict[str, Property]:
    return {each.prop: each for each in parse_properties(graph.global_params)}


def _differs(before: TaskNode | None, after: TaskNode) -> bool:
    if before is None or set(before.upstream) != set(after.upstream):
        return True
    return before.task_json != after.task_json and _meaning(before) != _meaning(after)


def _meaning(node: TaskNode) -> dict[str, Any]:
    document = json.loads(node.task_json)
    return {key: _decoded(value) for key, value in document.items() if key not in _NO_MATTER}


def _decoded(value: Any) -> Any:
    """Return the object that a text holds as JSON; the order of its keys is of no account."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _reads(node: TaskNode, parameters: tuple[str, ...]) -> bool:
    if node.task_type == "SUB_PROCESS":
        return True
    texts = [text.casefold() for text in _texts(json.loads(node.task_json))]
    return any(name in text for name in parameters for text in texts)


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a document, the names of its keys too."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list):
            waiting += each
