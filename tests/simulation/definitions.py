"""The process definitions of a seed: small ones, with every kind of node and most of their features.

A shape is a DAG in the words of `tests.builders.edges`; the first letter of a name says what the
node is: q CONDITIONS, w SWITCH, p SUB_PROCESS, e DEPENDENT, f forbidden, any other SHELL or, where
its memory may be raised, PYSPARK.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from common.model.states import ExecutionType
from tests.builders import edges
from tests.memory.store import MemoryDatabase
from tests.simulation.faults import Options

PLAIN_SHAPES = (
    "a",
    "a >> b",
    "a b >> c",
    "a >> b c >> d",
    "a >> b; c >> d; b d >> g",
    "a >> f >> b; c >> f",
)
BRANCHING_SHAPES = (
    "a b >> q; q >> s x; s x >> z",
    "a >> q >> s x",
    "a >> w; w >> s x d; s x d >> z",
    "a >> w; w >> s x; s >> q; q >> y z",
    "a f >> q; q >> s x; x >> z",
    "a >> w; w >> s x; b >> x; s >> x >> z",
    "a b; a >> q >> s x; b >> s >> z; z x >> y",
    "a >> q1 >> q2 x; q2 >> s z; a >> s; b x >> z",
)
NESTING_SHAPES = (
    "p",
    "a >> p >> b",
    "a p >> q; q >> s x",
    "p1 >> p2",
    "a >> w; w >> p1 p2; p1 p2 >> z",
)
WAITING_SHAPES = ("e >> b", "a e >> b", "a >> e >> b", "e >> q; q >> s x")
_KINDS_OF_SHAPES = (PLAIN_SHAPES, BRANCHING_SHAPES, NESTING_SHAPES, NESTING_SHAPES, WAITING_SHAPES)

GOOD_VALUE, OTHER_VALUES = "1", ("2", "3")
PARAMETER = "v"

FAILURES = ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "FETCH_FAILED", "PYTHON_ERROR", None)
"""The failure reasons to draw from."""
POLICIES: tuple[dict[str, Any], ...] = (
    {"retryOn": ["OUT_OF_MEMORY", "FETCH_FAILED"]},
    {"retryOn": ["OUT_OF_MEMORY", "EXIT_CODE", "TIMED_OUT"], "noRetryOn": ["PYTHON_ERROR"]},
    {"noRetryOn": ["PYTHON_ERROR", "FETCH_FAILED"]},
)


_LOCK_TYPES = ("EXCLUSIVE", "EXCLUSIVE", "SHARED", "APPEND", "REPLACE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A definition of the seed."""

    id: int
    name: str
    nodes: tuple[str, ...]


def draw_definitions(
    random: Random, options: Options, database: MemoryDatabase
) -> tuple[Drawn, ...]:
    """Write a seed's pools and definitions; a sub process is always a definition before its own."""
    pools = [f"pool{index}" for index in range(random.choice((1, 2)))] if options.pools else []
    for pool in pools:
        database.insert(database.pools, name=pool, group_size=random.choice((1, 1, 2, 3)))
    count = random.randint(2, 4)
    drawn: list[Drawn] = []
    for index in range(count):
        shape = random.choice(_shapes(random, options, first=index == 0))
        upstream = edges(shape)
        author = _Author(random, options, upstream, pools, index, count)
        document: dict[str, Any] = {
            "globalParams": [
                {"prop": PARAMETER, "direct": random.choice(("IN", "OUT")), "value": "2"}
            ],
            "tasks": [author.node(name) for name in upstream],
            "tenantId": -1,
            "timeout": 0,
        }
        if random.random() < options.minutes / 3:
            document["timeout"] = 1
            document["timeoutStrategy"] = random.choice(("WARN", "FAILED", "WARN,FAILED"))
        serial = random.random() < options.serial
        name = f"d{index + 1}"
        definition_id = database.insert(
            database.definitions,
            name=name,
            release_state=1,
            process_definition_json=json.dumps(document),
            execution_type=int(random.choice(tuple(ExecutionType)[1:])) if serial else 0,
        )
        drawn.append(Drawn(id=definition_id, name=name, nodes=tuple(upstream)))
    return tuple(drawn)


def _shapes(random: Random, options: Options, *, first: bool) -> tuple[str, ...]:
    """The first definition has none that it could begin."""
    shapes = options.shapes or random.choice(_KINDS_OF_SHAPES)
    if not first:
        return shapes
    return tuple(shape for shape in shapes if "p" not in shape) or PLAIN_SHAPES


@dataclass(frozen=True, slots=True)
class _Author:
    """Writes the nodes of one definition."""

    random: Random
    options: Options
    upstream: dict[str, list[str]]
    pools: list[str]
    index: int
    count: int

    def node(self, name: str) -> dict[str, Any]:
        node: dict[str, Any] = {
            "id": f"tasks-{name}",
            "name": name,
            "type": "SHELL",
            "params": {"rawScript": "true", "localParams": []},
            "runFlag": "FORBIDDEN" if name.startswith("f") else "NORMAL",
            "preTasks": self.upstream[name],
        }
        match name[0]:
            case "q":
                return node | self._conditions(name)
            case "w":
                return node | self._switch(name)
            case "p":
                return node | self._sub_process() | self._retries() | self._timeout()
            case "e":
                return node | self._dependent() | self._retries() | self._timeout()
            case _:
                node |= self._shell() | self._retries() | self._timeout() | self._waits()
                return node | self._policy()

    def _downstream(self, name: str) -> list[str]:
        return [below for below, above in self.upstream.items() if name in above]

    def _conditions(self, name: str) -> dict[str, Any]:
        random, below = self.random, self._downstream(name)
        items = [
            {"depTasks": above, "status": random.choice(("SUCCESS", "SUCCESS", "FAILURE"))}
            for above in self.upstream[name]
        ]
        groups = [items[:1], items[1:]] if len(items) > 1 and random.random() < 0.5 else [items]
        middle = max(1, len(below) // 2)
        return {
            "type": "CONDITIONS",
            "dependence": {
                "relation": random.choice(("AND", "OR")),
                "dependTaskList": [
                    {"relation": random.choice(("AND", "OR")), "dependItemList": group}
                    for group in groups
                ],
            },
            "conditionResult": {"successNode": below[:middle], "failedNode": below[middle:]},
        }

    def _switch(self, name: str) -> dict[str, Any]:
        *conditional, default = self._downstream(name)
        cases = [
            {"condition": f"${{{PARAMETER}}} == {number}", "nextNode": target}
            for number, target in enumerate(conditional, start=1)
        ]
        return {
            "type": "SWITCH",
            "params": {"switchResult": {"dependTaskList": cases, "nextNode": default}},
        }

    def _sub_process(self) -> dict[str, Any]:
        random = self.random
        # Mostly the one just before, so that trees grow deep.
        child = self.index if random.random() < 0.6 else random.randint(1, self.index or 1)
        if random.random() < 0.03:
            return {"type": "SUB_PROCESS", "params": {"processDefinitionName": "nobody"}}
        if random.random() < 0.5:
            return {"type": "SUB_PROCESS", "params": {"processDefinitionName": f"d{child}"}}
        return {"type": "SUB_PROCESS", "params": {"processDefinitionId": child}}

    def _dependent(self) -> dict[str, Any]:
        random = self.random
        items = []
        for _ in range(random.choice((1, 1, 2))):
            cycle, value = random.choice(
                (("day", "today"), ("day", "today"), ("hour", "currentHour"), ("day", "last1Days"))
            )
            items.append(
                {
                    "definitionName": f"d{random.randint(1, self.count)}",
                    "depTasks": random.choice(("ALL", "ALL", "a")),
                    "cycle": cycle,
                    "dateValue": value,
                }
            )
        return {
            "type": "DEPENDENT",
            "dependence": {
                "relation": "AND",
                "dependTaskList": [
                    {"relation": random.choice(("AND", "OR")), "dependItemList": items}
                ],
            },
        }

    def _shell(self) -> dict[str, Any]:
        if self.random.random() < 0.4:
            out = [{"prop": PARAMETER, "direct": "OUT", "type": "VARCHAR", "value": ""}]
            return {"params": {"rawScript": "true", "localParams": out}}
        return {}

    def _retries(self) -> dict[str, Any]:
        random = self.random
        found: dict[str, Any] = {"maxRetryTimes": random.choice((0, 0, 1, 2)), "retryInterval": 0}
        if random.random() < self.options.minutes / 3:
            found["retryInterval"] = 1
            if random.random() < 0.5:
                found["retryBackoff"] = {"factor": 1.5, "maxInterval": 2, "jitter": 0.5}
        return found

    def _policy(self) -> dict[str, Any]:
        """The keys for retries by reason, and for more memory; never of a sub process."""
        random = self.random
        found: dict[str, Any] = {}
        if random.random() < 0.3:
            found |= random.choice(POLICIES)
        if random.random() < 0.3:
            found |= {"type": "PYSPARK", "memoryRetry": {"factor": 1.5, "ceiling": "8G"}}
        return found

    def _timeout(self) -> dict[str, Any]:
        if self.random.random() >= self.options.minutes / 2:
            return {}
        strategy = self.random.choice(("WARN", "FAILED", "WARN,FAILED"))
        return {"timeout": {"strategy": strategy, "interval": 1, "enable": True}}

    def _waits(self) -> dict[str, Any]:
        random = self.random
        found: dict[str, Any] = {}
        if random.random() < self.options.minutes / 4:
            found["delayTime"] = 1
        if self.pools and random.random() < self.options.pools:
            found["taskGroups"] = [
                {"name": pool, "slots": random.choice((1, 1, 1, 2))}
                for pool in self.pools
                if random.random() < 0.7
            ]
            found["taskGroupPriority"] = random.choice((0, 0, 5))
        if self.options.locks and random.random() < self.options.locks:
            found["locks"] = [
                {"dataset": name, "interval": "2026-01-01/P1D", "type": random.choice(_LOCK_TYPES)}
                for name in random.choice((("x",), ("y",), ("x", "y")))
            ]
        return found
