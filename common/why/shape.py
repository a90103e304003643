"""The tasks of one run, from its definition and its rows: those that can still begin. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from common.dag import Dag, leads, select
from common.errors import BadCommandError, InvalidDefinitionError
from common.model.command_param import CommandParam
from common.model.definitions import ProcessGraph, read_process_json
from common.model.states import TaskDependType, TaskState
from common.model.task_type import TaskTypeSpec
from common.why.facts import Attempt, Run

_BRANCHING: Final = frozenset({"SWITCH", "CONDITIONS"})
BAD_ENDS: Final = frozenset(
    int(state) for state in (TaskState.FAILURE, TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE)
)
"""Ends that nothing downstream builds on."""


class Shape:
    """The DAG of a run with the state of its tasks."""

    def __init__(self, graph: ProcessGraph, dag: Dag, begun: Mapping[str, Attempt]) -> None:
        self.graph = graph
        self.dag = dag
        self.begun = begun
        self._above: dict[str, tuple[str, ...]] = {}
        self.left_out = self._left_out()
        """Tasks that no path reaches any more, each with the branching task that decided it."""

    def working_above(self, name: str) -> tuple[str, ...]:
        """Return the upstream tasks that run: a forbidden one is replaced by its own upstream."""
        if name not in self._above:
            self._above[name] = tuple(self._look_above(name))
        return self._above[name]

    def _look_above(self, name: str) -> Iterator[str]:
        waiting = deque(self.dag.upstream[name])
        seen = dict.fromkeys(waiting)
        while waiting:
            above = waiting.popleft()
            if above in self.left_out:
                continue
            if not self.graph.nodes[above].forbidden:
                yield above
                continue
            for each in self.dag.upstream[above]:
                if each not in seen:
                    seen[each] = None
                    waiting.append(each)

    def is_open(self, name: str) -> bool:
        """True if its end is still to come."""
        attempt = self.begun.get(name)
        return attempt is None or is_live(attempt) or attempt.retry_at is not None

    def is_bad(self, name: str) -> bool:
        """True if it ended so that only a branching task may still follow."""
        attempt = self.begun.get(name)
        if attempt is None or self.is_open(name) or self._branch(name) is not None:
            return False
        return attempt.state in BAD_ENDS or attempt.state == TaskState.PAUSE

    def is_looked_at(self, name: str) -> bool:
        """True if a CONDITIONS task evaluates its end."""
        below = self.dag.downstream.get(name, ())
        return any(self.graph.nodes[each].task_type == "CONDITIONS" for each in below)

    def frontier(self, names: Sequence[str]) -> list[str]:
        """Return those tasks, among these and all they wait for, that wait for no other task."""
        waiting = deque(names)
        seen = dict.fromkeys(waiting)
        found: list[str] = []
        while waiting:
            name = waiting.popleft()
            above = [] if name in self.begun else self.working_above(name)
            open_ = [each for each in above if self.is_open(each)]
            if not open_:
                found.append(name)
            for each in open_:
                if each not in seen:
                    seen[each] = None
                    waiting.append(each)
        # What has begun says most.
        return sorted(found, key=lambda name: name not in self.begun)

    def _left_out(self) -> dict[str, str]:
        # Of each task that is left out, the branching tasks that chose against it.
        out: dict[str, tuple[str, ...]] = {}
        settled: dict[str, bool] = {}
        for name in self.dag.names:
            above = self.dag.upstream[name]
            over = all(settled[each] for each in above)
            if above and over and name not in self.begun:
                choosers = [self._choosers(each, name, out) for each in above]
                refused = [each for each in above if self._refuses(each, name, out)]
                if refused or all(choosers):
                    chose = dict.fromkeys(one for found in choosers for one in found)
                    first = self._choosers(refused[0], name, out) if refused else ()
                    out[name] = tuple(dict.fromkeys((*first, *chose)))
            is_passed = over and self.graph.nodes[name].forbidden
            settled[name] = name in out or is_passed or not self.is_open(name)
        return {name: choosers[0] for name, choosers in out.items()}

    def _choosers(
        self, above: str, name: str, out: Mapping[str, tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return the branching tasks because of which an upstream task does not lead on."""
        if above in out:
            return out[above]
        taken = self._branch(above)
        return (above,) if taken is not None and name not in taken else ()

    def _refuses(self, above: str, name: str, out: Mapping[str, tuple[str, ...]]) -> bool:
        """True if it has branches, and no choice that it or others made leads to the task."""
        node = self.graph.nodes[above]
        choosers = self._choosers(above, name, out)
        if node.forbidden or node.task_type not in _BRANCHING or not choosers:
            return False
        return not any(leads(self.dag, self._branch(one) or (), name) for one in choosers)

    def _branch(self, name: str) -> tuple[str, ...] | None:
        attempt = self.begun.get(name)
        if attempt is None or attempt.task_type not in _BRANCHING or is_live(attempt):
            return None
        return names_in(attempt.branch)


class Shapes:
    """The shapes of runs, each read once; None for one whose definition can't be read."""

    def __init__(self, task_types: Mapping[str, TaskTypeSpec]) -> None:
        self._task_types = task_types
        self._known: dict[int, Shape | None] = {}

    def of(self, run: Run) -> Shape | None:
        if run.id not in self._known:
            graph, dag = graph_of(run, self._task_types)
            self._known[run.id] = (
                None if graph is None or dag is None else Shape(graph, dag, attempts_by_name(run))
            )
        return self._known[run.id]


def graph_of(
    run: Run, task_types: Mapping[str, TaskTypeSpec]
) -> tuple[ProcessGraph | None, Dag | None]:
    """Return a run's graph and the DAG its first command selected; None twice if unreadable."""
    try:
        graph = read_process_json(run.process_instance_json, task_types=task_types)
        names = CommandParam.of_instance(run.command_param).start_node_names
        return graph, select(graph.dag, names, TaskDependType(run.task_depend_type))
    except (InvalidDefinitionError, BadCommandError, ValueError):
        return None, None


def attempts_by_name(run: Run) -> dict[str, Attempt]:
    return {each.name: each for each in run.attempts}


def is_live(attempt: Attempt) -> bool:
    """True if the attempt has not ended; an unknown state counts as ended."""
    try:
        return not TaskState(attempt.state).is_finished
    except ValueError:
        return False


def names_in(stored: str | None) -> tuple[str, ...] | None:
    """Return a column's JSON list of names; None if it is empty or unreadable."""
    if stored is None:
        return None
    try:
        names = json.loads(stored)
    except (ValueError, RecursionError):
        return None
    return tuple(str(name) for name in names) if isinstance(names, list) else None
