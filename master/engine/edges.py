"""The state of an edge of a run's DAG, from its upper task and the choices above it. Pure.

A branching task (CONDITIONS, SWITCH) *refuses* a successor if its choice neither names that
successor nor leads to it by another path: that one is skipped, whatever else leads to it. A
branching task that is skipped itself takes no branch. It refuses its successors, except those to
which a choice leads that left it out, so that a join of both branches of that choice runs.

What an edge depends on does not change while a run is live: an edge that is not open stays as it
is, and loading finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from common.dag import Dag, leads
from common.model.control import Conditions, Switch
from common.model.definitions import TaskNode
from master.engine.task_run import Edge, TaskPhase, TaskRun

Find: TypeAlias = Callable[[str], TaskRun]
"""The look-up of a task by its name."""


# Looked up once: a class looks a member up anew each time that it is asked for one.
_SUCCEEDED, _PASSED, _TAKEN, _OPEN = TaskPhase.SUCCEEDED, TaskPhase.PASSED, Edge.TAKEN, Edge.OPEN
_DISTINGUISHING = (TaskPhase.BRANCHED, TaskPhase.SKIPPED, TaskPhase.TOLERATED)


def common_edge(phase: TaskPhase) -> Edge | None:
    """Return the state of all edges from a task in this phase; None if they are not alike.

    Nearly all are alike, and a dense DAG has far more edges than tasks.
    """
    if phase is _SUCCEEDED or phase is _PASSED:
        return _TAKEN
    return None if phase in _DISTINGUISHING else _OPEN


def edge_between(dag: Dag, find: Find, name: str, below: str) -> Edge:
    """Return the state of the edge from a task to its successor in the DAG."""
    task = find(name)
    if (common := common_edge(task.phase)) is not None:
        return common
    match task.phase:
        case TaskPhase.BRANCHED:
            if below in (task.branch or ()):
                return Edge.TAKEN
            return Edge.LEFT if _lead_on(dag, find, (name,), below) else Edge.REFUSED
        case TaskPhase.SKIPPED:
            if not _takes_branches(task.node) or _lead_on(dag, find, task.choosers, below):
                return Edge.LEFT
            return Edge.REFUSED
        case _:
            return Edge.TAKEN if looks_at_ends(find(below).node) else Edge.BLOCKED


def choosers_above(find: Find, name: str, upstream: Iterable[str]) -> tuple[str, ...]:
    """Return the branching tasks whose choices left a skipped task out."""
    found: dict[str, None] = {}
    for above in upstream:
        task = find(above)
        if task.phase is TaskPhase.SKIPPED:
            found.update(dict.fromkeys(task.choosers))
        elif task.phase is TaskPhase.BRANCHED and name not in (task.branch or ()):
            found[above] = None
    return tuple(found)


def looks_at_ends(node: TaskNode) -> bool:
    """True if the node evaluates the ends of its upstream, failures included."""
    return isinstance(node.control, Conditions) and not node.forbidden


def _takes_branches(node: TaskNode) -> bool:
    # A forbidden one leads to all its successors.
    return isinstance(node.control, Conditions | Switch) and not node.forbidden


def _lead_on(dag: Dag, find: Find, choosers: Iterable[str], below: str) -> bool:
    # An only edge decides alone: there is no other path to search for.
    return len(dag.upstream[below]) > 1 and any(
        leads(dag, find(chooser).branch or (), below) for chooser in choosers
    )
