"""The definitions that chaos runs, and the ends that each of them may have.

Pure. Every task of type SHELL appends `begin` to a common file when it starts, and `end` or `fail`
before it exits; the file is the evidence of what was done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

POOL, POOL_SIZE = "narrow", 2
PARALLEL, SERIAL_WAIT, SERIAL_DISCARD, SERIAL_PRIORITY = range(4)
CHILD = "child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A definition with the rules for its ends.

    `good` are the sets of nodes of which one has succeeded in a run that is a success. `above` are
    the nodes that have ended before a node begins, by lines of the same run. Tasks of `narrow` take
    a slot of the pool each.
    """

    name: str
    tasks: tuple[Mapping[str, Any], ...]
    good: tuple[frozenset[str], ...]
    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    may_fail: frozenset[str] = frozenset()
    narrow: frozenset[str] = frozenset()
    execution_type: int = PARALLEL

    def document(self) -> str:
        return json.dumps({"tasks": list(self.tasks)})

    @property
    def is_serial(self) -> bool:
        return self.execution_type != PARALLEL


def workload(lines: str) -> dict[str, Expected]:
    """Return all definitions by name; a child before its parent. Tasks append to the file `lines`."""
    shell = _Shell(lines)
    made = (
        _plain(
            "layers",
            shell("a", 0.3),
            shell("b", 0.8, "a"),
            shell("c", 1.5, "a"),
            shell("d", 0.1, "b", "c"),
        ),
        _plain("long", shell("a", 7), shell("b", 0.1, "a")),
        _plain(
            "retries",
            shell("a", 0.2, fails="$ORCAFLOW_ATTEMPT -lt 3", maxRetryTimes=2, retryInterval=0),
            shell("b", 0.3, "a"),
            may_fail=("a",),
        ),
        _plain(
            "failing",
            shell("a", 0.4),
            shell("b", 0.3, fails="1 -eq 1", maxRetryTimes=1, retryInterval=0),
            shell("c", 0.2, "a", "b"),
            may_fail=("b",),
        ),
        _plain("stubborn", shell("a", 4, before="trap '' TERM"), shell("b", 0.1, "a")),
        _plain("leaves", shell("a", 0.2, before="setsid sleep 300 &"), shell("b", 0.1, "a")),
        _plain("narrow", *(shell(f"p{n}", 0.8, taskGroups=[POOL]) for n in range(4)), narrow=True),
        _branching(shell),
        _switching(shell),
        _plain(CHILD, shell("a", 0.4), shell("b", 0.6, "a")),
        _plain("parent", shell("a", 0.2), _sub_process("s", "a"), shell("b", 0.2, "s")),
        _plain("in_turn", shell("a", 0.5), shell("b", 0.9, "a"), execution_type=SERIAL_WAIT),
        _plain("alone", shell("a", 1.0), shell("b", 0.5, "a"), execution_type=SERIAL_DISCARD),
        _plain("latest", shell("a", 1.5), shell("b", 0.5, "a"), execution_type=SERIAL_PRIORITY),
    )
    return {each.name: each for each in made}


@dataclass(frozen=True, slots=True)
class _Shell:
    """Writes SHELL nodes."""

    lines: str

    def __call__(
        self, name: str, seconds: float, *above: str, before: str = "", fails: str = "", **more: Any
    ) -> dict[str, Any]:
        script = [before, self._line("begin"), f"sleep {seconds}"]
        if fails:
            script.append(f"if [ {fails} ]; then {self._line('fail')}; exit 3; fi")
        script.append(self._line("end"))
        return {
            "name": name,
            "type": "SHELL",
            "params": {"rawScript": "\n".join(filter(None, script))},
            "preTasks": list(above),
            **more,
        }

    def _line(self, word: str) -> str:
        # Appended by one short write, so lines of several tasks never mix.
        numbers = "$ORCAFLOW_TASK_INSTANCE_ID $ORCAFLOW_ATTEMPT"
        return f"echo \"{word} {numbers}\" >> '{self.lines}'"


def _plain(
    name: str,
    *tasks: Mapping[str, Any],
    may_fail: tuple[str, ...] = (),
    narrow: bool = False,
    execution_type: int = PARALLEL,
) -> Expected:
    names = frozenset(task["name"] for task in tasks)
    return Expected(
        name=name,
        tasks=tasks,
        good=(names,),
        above=_lines_above(tasks),
        may_fail=frozenset(may_fail),
        narrow=names if narrow else frozenset(),
        execution_type=execution_type,
    )


def _lines_above(tasks: tuple[Mapping[str, Any], ...]) -> dict[str, tuple[str, ...]]:
    """Return, for each SHELL node, the SHELL nodes right above it: they leave lines."""
    shells = {task["name"] for task in tasks if task["type"] == "SHELL"}
    return {
        task["name"]: tuple(name for name in task["preTasks"] if name in shells)
        for task in tasks
        if task["name"] in shells
    }


def _sub_process(name: str, *above: str) -> dict[str, Any]:
    params = {"processDefinitionName": CHILD}
    return {"name": name, "type": "SUB_PROCESS", "params": params, "preTasks": list(above)}


def _branching(shell: _Shell) -> Expected:
    """A check that fails at its first attempts, a CONDITIONS that observes it, a join of both."""
    item = {"depTasks": "check", "status": "SUCCESS"}
    decide = {
        "name": "decide",
        "type": "CONDITIONS",
        "preTasks": ["check"],
        "conditionResult": {"successNode": ["load"], "failedNode": ["mend"]},
        "dependence": {
            "relation": "AND",
            "dependTaskList": [{"relation": "AND", "dependItemList": [item]}],
        },
    }
    tasks = (
        shell("check", 0.3, fails="$ORCAFLOW_ATTEMPT -lt 2"),
        decide,
        shell("load", 0.3, "decide"),
        shell("mend", 0.3, "decide"),
        shell("join", 0.1, "load", "mend"),
    )
    return Expected(
        name="branching",
        tasks=tasks,
        # The second attempt at the check, after a failover or a recovery, succeeds. The row of a
        # CONDITIONS says whether its condition holds.
        good=(
            frozenset({"check", "decide", "load", "join"}),
            frozenset({"mend", "join"}),
        ),
        above={"load": ("check",), "mend": ("check",)},
        may_fail=frozenset({"check"}),
    )


def _switching(shell: _Shell) -> Expected:
    switch = {
        "name": "choose",
        "type": "SWITCH",
        "preTasks": ["a"],
        "switchResult": {
            "dependTaskList": [{"condition": "1 == 2", "nextNode": "never"}],
            "nextNode": "always",
        },
    }
    tasks = (
        shell("a", 0.2),
        switch,
        shell("never", 0.1, "choose"),
        shell("always", 0.3, "choose"),
    )
    return Expected(
        name="switching",
        tasks=tasks,
        good=(frozenset({"a", "choose", "always"}),),
        above={"always": ("a",)},
    )
