"""Limits the size of a document before any definition in it is checked. Pure.

Counting takes one pass over parsed lists. The checks of tasks take many times as long, and a server
can't stop a thread that runs them. The strict reader also parses texts within a document that hold
JSON, so that no repeated key hides in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from common.errors import InvalidDefinitionError
from common.strict_json import MAX_CONTAINERS, Budget, NotJsonError, strict_json
from operations.findings import Finding, Severity

MOST_DEFINITIONS: Final = 500
MOST_TASKS: Final = 20_000
MOST_RELATIONS: Final = 100_000
"""The number of pairs of a task and a task before it."""
MOST_UNKNOWN_KEYS: Final = 1_000
"""The number of different unknown keys; each is compared with all known keys."""
MOST_FINDINGS: Final = 50_000
_SPLIT: Final = "split the file into several, and import them one after another"
_JSON: Final = "processDefinitionJson"
_TASK_LISTS: Final = ("tasks", "taskDefinitionList")
_RELATION_LISTS: Final = ("processTaskRelationList", "workflowTaskRelationList")
_FIELDS: Final = frozenset(
    {
        *(_JSON, *_TASK_LISTS, *_RELATION_LISTS),
        *("params", "taskParams", "preTasks", "timeout", "waitStartTimeout"),
        *("globalParams", "globalParamList", "globalParamMap", "localParams", "resourceList"),
        *("dependence", "dependTaskList", "dependItemList", "conditionResult", "switchResult"),
        *("processDefinitionLocations", "processDefinitionConnects", "locations", "connects"),
        *("processDefinition", "workflowDefinition", "schedule", "schedules", "startParams"),
        *("depList", "conditionParams", "taskGroups", "locks", "workerSelect", "retryPolicy"),
        *("others", "conf", "connectionParams", "connection_params"),
    }
)
"""The keys of values that may be JSON or a text that holds JSON."""


@dataclass(slots=True)
class _Size:
    """The number of tasks and of relations in a definition."""

    tasks: int = 0
    relations: int = 0


def _excess(listed: Sequence[object]) -> str | None:
    """Return the mistake of a document above a limit; None within the limits."""
    if len(listed) > MOST_DEFINITIONS:
        return f"holds {len(listed):,} definitions, and at most {MOST_DEFINITIONS} go: {_SPLIT}"
    size = _Size()
    for entry in listed:
        if isinstance(entry, dict):
            _count(entry, size)
    if size.tasks > MOST_TASKS:
        return f"holds {size.tasks:,} tasks, and at most {MOST_TASKS:,} go: {_SPLIT}"
    if size.relations > MOST_RELATIONS:
        return (
            f"holds {size.relations:,} relations between tasks, and at most"
            f" {MOST_RELATIONS:,} go: {_SPLIT}"
        )
    return None


def _count(entry: Mapping[str, Any], size: _Size) -> None:
    inner = _parsed(entry.get(_JSON))
    for holder in (entry, inner if isinstance(inner, dict) else {}):
        for key in _TASK_LISTS:
            tasks = _parsed(holder.get(key))
            if isinstance(tasks, list):
                size.tasks += len(tasks)
                size.relations += sum(_above(each) for each in tasks)
    for key in _RELATION_LISTS:
        relations = _parsed(entry.get(key))
        if isinstance(relations, list):
            size.relations += len(relations)


def _above(task: object) -> int:
    """Return the number of tasks before a task, from a list or from a text with commas."""
    above = task.get("preTasks") if isinstance(task, dict) else None
    if isinstance(above, str):
        return above.count(",") + 1
    return len(above) if isinstance(above, list) else 0


def _parsed(value: object) -> object:
    """Parse a value that is text; None if it can't be parsed, which is reported elsewhere."""
    if not isinstance(value, str):
        return value
    try:
        return strict_json(value.encode())
    except InvalidDefinitionError:
        return None


def document_mistakes(document: object) -> list[tuple[int | None, str]]:
    """Return the mistakes in the size of a document and in the texts that hold JSON.

    A mistake in one definition of a list has the index of the definition.
    """
    listed = document if isinstance(document, list) else [document]
    if not listed:
        return [(None, "the list is empty")]
    if (fault := _excess(listed)) is not None:
        return [(None, fault)]
    budget = Budget(MAX_CONTAINERS)
    return [
        (index if isinstance(document, list) else None, text)
        for index, entry in enumerate(listed)
        for text in _text_mistakes(entry, budget)
    ]


_Place: TypeAlias = "tuple[_Place | None, str | int, object]"
"""The place of a value: the place of its container, its key, and the value."""


def _text_mistakes(entry: object, budget: Budget) -> Iterator[str]:
    """Yield the mistakes in texts of a definition that hold JSON, at any depth.

    `budget` limits the objects and lists in all texts of a document together. The reader of a field
    reports a text that is not JSON.
    """
    left: list[_Place] = [(None, "", entry)]
    while left and budget.containers >= 0:
        place = left.pop()
        value = place[2]
        if isinstance(value, list):
            left += [(place, at, each) for at, each in enumerate(value) if _is_holder(each)]
        elif isinstance(value, dict):
            for key, each in value.items():
                if _is_holder(each):
                    left.append((place, key, each))
                elif key in _FIELDS and isinstance(each, str) and each.lstrip()[:1] in ("{", "["):
                    try:
                        left.append((place, key, strict_json(each.encode(), budget)))
                    except NotJsonError:
                        continue
                    except InvalidDefinitionError as error:
                        where = _where((place, key, None))
                        yield from (f"{where}: {text}" for text in error.mistakes)


def _is_holder(value: object) -> bool:
    return isinstance(value, dict | list)


def _where(place: _Place) -> str:
    """Return the path of keys to a place, within a task after the task's name."""
    words = ""
    step: _Place | None = place
    while step is not None and step[0] is not None:
        above, key, value = step
        if above is not None and above[1] == "tasks" and isinstance(value, dict):
            name = value.get("name")
            if isinstance(name, str):
                return f"task {name[:80]!r}, {words.removeprefix('.')}"
        words = (f"[{key}]" if isinstance(key, int) else f".{key:.80}") + words
        step = above
    return words.removeprefix(".")


class FindingLimits:
    """A counter of the findings about keys in all definitions that are read together."""

    def __init__(self) -> None:
        self._number = 0
        self._keys: set[str] = set()

    def bounded(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield findings up to the limits, then a mistake that reports the end of the check."""
        for finding in found:
            self._number += 1
            self._keys.add(finding.key.rpartition(".")[2])
            yield finding
            if self._number > MOST_FINDINGS or len(self._keys) > MOST_UNKNOWN_KEYS:
                yield replace(
                    finding,
                    severity=Severity.MISTAKE,
                    problem=f"more than {MOST_UNKNOWN_KEYS:,} different keys are not known, or"
                    f" {MOST_FINDINGS:,} keys in all; the check ends here",
                    cure="take out the keys that have no effect",
                )
                return
