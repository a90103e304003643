"""A second opinion on runs: the meaning of a run's rows, in as few lines as possible.

It shares no line with the engine. A definition is read from its JSON as it stands in the process
instance, and every question is answered from the rows at one moment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from common.model.states import TaskDependType, TaskState
from tests.memory.store import ProcessRecord, TaskRecord

Node = Mapping[str, Any]

_GOOD = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)
_LOST = TaskState.NEED_FAULT_TOLERANCE
DONE = ("good", "branch", "passed", "skipped", "tolerated")
"""The words of `phases` that are compatible with success."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A definition, with its nodes in topological order."""

    nodes: dict[str, Node]
    upstream: dict[str, tuple[str, ...]]

    def looks_at_ends(self, name: str) -> bool:
        """True if this node reacts to the failures above it."""
        node = self.nodes[name]
        return bool(node["type"] == "CONDITIONS" and node["runFlag"] != "FORBIDDEN")

    def takes_branches(self, name: str) -> bool:
        """True if this node chooses among those below it."""
        node = self.nodes[name]
        return node["type"] in ("CONDITIONS", "SWITCH") and node["runFlag"] != "FORBIDDEN"


@lru_cache(maxsize=256)
def read(text: str) -> Graph:
    """The graph of a process instance."""
    nodes: dict[str, Node] = {node["name"]: node for node in json.loads(text)["tasks"]}
    ordered: dict[str, Node] = {}
    while len(ordered) < len(nodes):
        for name, node in nodes.items():
            if name not in ordered and all(above in ordered for above in node["preTasks"]):
                ordered[name] = node
    upstream = {name: tuple(node["preTasks"]) for name, node in ordered.items()}
    return Graph(ordered, upstream)


@lru_cache(maxsize=256)
def params(text: str | None) -> dict[str, Any]:
    """An instance's own `command_param`."""
    document = json.loads(text or "{}")
    assert isinstance(document, dict)
    return document


def selected(process: ProcessRecord) -> frozenset[str]:
    """The start nodes in the first command of an instance."""
    text = params(process.command_param).get("StartNodeNameList", "")
    return _selection(process.process_instance_json, text, process.task_depend_type)


@lru_cache(maxsize=256)
def _selection(process_json: str, text: str, depend_type: int) -> frozenset[str]:
    graph = read(process_json)
    if not text:
        return frozenset(graph.nodes)
    return reach(graph, text.split(","), depend_type, frozenset(graph.nodes))


def reach(
    graph: Graph, start: Iterable[str], depend_type: int, among: Collection[str]
) -> frozenset[str]:
    """The start nodes, with their downstream, or their upstream, or by themselves."""
    chosen = {name for name in start if name in among}
    while depend_type != TaskDependType.TASK_ONLY:
        grown = set(chosen)
        for name in among:
            for above in graph.upstream[name]:
                if above not in among:
                    continue
                if depend_type == TaskDependType.TASK_POST and above in chosen:
                    grown.add(name)
                if depend_type == TaskDependType.TASK_PRE and name in chosen:
                    grown.add(above)
        if grown == chosen:
            break
        chosen = grown
    return frozenset(chosen)


def phases(
    graph: Graph,
    names: Collection[str],
    rows: Mapping[str, TaskRecord],
    *,
    whole: Collection[str] | None = None,
    known: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The phase of each of these nodes; `rows` are the valid attempts.

    open: something above is not decided, or failed. ready: it may begin. live, retry: as they say. good,
    branch, passed, skipped, tolerated: done. bad: failed. held: paused, killed or withdrawn.
    `whole`: all that were ever selected, among which a CONDITIONS may look at a failure.
    `known`: phases to be believed.
    """
    found: dict[str, str] = {}
    everything = names if whole is None else whole
    # Of each skipped node, the branching tasks that chose against it.
    against: dict[str, set[str]] = {}

    def chose_against(above: str, name: str) -> set[str]:
        if found[above] == "skipped":
            return against[above]
        return {above} if found[above] == "branch" and name not in branch_of(rows[above]) else set()

    def is_outside(upstream: Iterable[str]) -> bool:
        return any(above in everything and above not in names for above in upstream)

    def all_outside(above: str) -> bool:
        taken = branch_of(rows[above]) if found[above] == "branch" else []
        return bool(taken) and not any(target in names for target in taken)

    def refuses(above: str, name: str) -> bool:
        chose = chose_against(above, name)
        if is_outside(graph.upstream[name]) and all_outside(above):
            return False
        return bool(chose and graph.takes_branches(above)) and not any(
            name in reach(graph, branch_of(rows[one]), TaskDependType.TASK_POST, everything)
            for one in chose
        )

    for name in graph.nodes:
        if name not in names:
            continue
        upstream = [above for above in graph.upstream[name] if above in names]
        against[name] = set().union(*(chose_against(above, name) for above in upstream))
        if known is not None and name in known:
            found[name] = known[name]
            continue
        edges = [_edge(graph, above, found[above], name, rows) for above in upstream]
        is_refused = all(found[above] in DONE for above in upstream) and any(
            refuses(above, name) for above in upstream
        )
        row = rows.get(name)
        is_held_up = None in edges or (bool(edges) and True not in edges) or is_refused
        if row is None or (row.settled and row.retry_at is not None and is_held_up):
            if is_refused:
                found[name] = "skipped"
            elif None in edges:
                found[name] = "open"
            elif edges and True not in edges:
                found[name] = "skipped"
            elif graph.nodes[name]["runFlag"] == "FORBIDDEN":
                found[name] = "passed"
            else:
                found[name] = "ready"
        else:
            found[name] = _phase_of(graph, name, row, everything)
    return found


def _phase_of(graph: Graph, name: str, row: TaskRecord, whole: Collection[str]) -> str:
    if not row.settled:
        return "live"
    if row.retry_at is not None and row.state not in _GOOD:
        return "retry"
    if row.branch is not None:
        return "branch"
    if row.state in _GOOD:
        return "good"
    if row.state == TaskState.PAUSE or (
        row.state != TaskState.FAILURE and row.wanted_state == TaskState.KILL
    ):
        return "held"
    watched = any(
        name in graph.upstream[below] and graph.looks_at_ends(below)
        for below in graph.nodes
        if below in whole
    )
    return "tolerated" if watched else "bad"


def _edge(
    graph: Graph, above: str, phase: str, name: str, rows: Mapping[str, TaskRecord]
) -> bool | None:
    """True if the edge from `above` to `name` is taken; None while it is open."""
    match phase:
        case "good" | "passed":
            return True
        case "branch":
            return name in branch_of(rows[above])
        case "skipped":
            return False
        case "tolerated":
            return True if graph.looks_at_ends(name) else None
    return None


def is_worth_a_retry(graph: Graph, row: TaskRecord) -> bool:
    """True if the author wants a retry after a failure like this one."""
    node = graph.nodes[row.name]
    reason = row.failure_reason or ("KILLED" if row.state == TaskState.KILL else "EXIT_CODE")
    return reason not in node.get("noRetryOn", ()) and reason in node.get("retryOn", (reason,))


def memory_factor(graph: Graph, new: TaskRecord, last: TaskRecord | None) -> float:
    """The factor for the memory of a new attempt; `last` is the one before it."""
    raising = graph.nodes[new.name].get("memoryRetry")
    if new.retry_times == 0 or last is None or raising is None:
        return 1.0
    is_raised = last.failure_reason == "OUT_OF_MEMORY" and last.state != _LOST
    return last.memory_factor * float(raising["factor"] if is_raised else 1)


def branch_of(row: TaskRecord) -> list[str]:
    """The nodes that a branching task took."""
    taken: list[str] = json.loads(row.branch or "[]")
    return taken


def chosen_branch(
    graph: Graph, name: str, process: ProcessRecord, rows: Mapping[str, TaskRecord]
) -> list[str] | None:
    """The branch that a CONDITIONS or SWITCH must take, by these rows; None if several may be."""
    node = graph.nodes[name]
    whole = selected(process)
    if node["type"] == "SWITCH":
        return _case(graph, name, process, rows)
    of = phases(graph, whole, rows)
    groups = node["dependence"]["dependTaskList"]
    held = [
        _joined(group["relation"], [_holds(item, of) for item in group["dependItemList"]])
        for group in groups
    ]
    result: dict[str, list[str]] = node["conditionResult"]
    holds = _joined(node["dependence"]["relation"], held)
    return result["successNode"] if holds else result["failedNode"]


def _holds(item: Mapping[str, str], of: Mapping[str, str]) -> bool:
    phase = of.get(item["depTasks"], "not selected")
    wanted = ("good", "passed", "branch") if item["status"] == "SUCCESS" else ("tolerated", "bad")
    return phase in wanted


def _joined(relation: str, truths: Iterable[bool]) -> bool:
    return all(truths) if relation == "AND" else any(truths)


def _case(
    graph: Graph, name: str, process: ProcessRecord, rows: Mapping[str, TaskRecord]
) -> list[str] | None:
    value = _value(graph, name, process, rows)
    if value is None:
        return None
    result = graph.nodes[name]["params"]["switchResult"]
    for case in result["dependTaskList"]:
        if case["condition"].endswith(f"== {value}"):
            return [case["nextNode"]]
    return [result["nextNode"]]


def _value(
    graph: Graph, name: str, process: ProcessRecord, rows: Mapping[str, TaskRecord]
) -> str | None:
    """The value of the only parameter: as given at the start, put out above, or global."""
    given = params(process.command_param).get("StartParams")
    if given:
        start = json.loads(given) if isinstance(given, str) else given
        return str(start["v"])
    above = reach(graph, [name], TaskDependType.TASK_PRE, selected(process)) - {name}
    of = phases(graph, selected(process), rows)
    put_out = [
        (row.end_time, json.loads(row.var_pool)[0]["value"])
        for other in above
        if of[other] == "good" and (row := rows[other]).var_pool
    ]
    if put_out:
        last = max(put_out, key=lambda one: one[0].timestamp() if one[0] else 0.0)
        if len({value for at, value in put_out if at == last[0]}) > 1:
            return None
        return str(last[1])
    for each in json.loads(process.global_params or "[]"):
        if each["prop"] == "v":
            return str(each["value"])
    return None


@lru_cache(maxsize=256)
def scope(text: str | None) -> frozenset[str] | None:
    """An instance's `run_scope`."""
    return None if text is None else frozenset(json.loads(text))
