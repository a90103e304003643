"""Finds the keys of a definition that nothing reads.

A *near miss* is the misspelling of a known key: a mistake in every file, since the value is lost
that its author gave. Any other unknown key is a mistake in a *strict* reading, else a warning.
Reads no database and changes nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from common.model.node_keys import DEFINITION_KEYS, NODE_KEYS
from common.model.task_type import DIGESTS, LOCAL_PARAMS, RESOURCE_LIST, TaskTypeSpec
from operations.definition_document import nodes_of, object_of, objects_of
from operations.findings import Finding, Severity
from operations.task_params import spec_of

FILE_KEYS: Final = frozenset(
    {
        "name",
        "description",
        "processDefinitionJson",
        "processDefinitionDescription",
        "processDefinitionLocations",
        "processDefinitionConnects",
        "globalParams",
        "timeout",
        "tenantId",
        "executionType",
        "complementDateRule",
        "schedules",
    }
)
"""The keys of an object in a file of Orcaflow's own form."""

SCHEDULE_KEYS: Final = frozenset(
    {
        *("crontab", "startTime", "endTime", "timezoneId", "failureStrategy", "releaseState"),
        *("processInstancePriority", "warningType", "warningGroupId", "workerGroup"),
        *("environmentCode", "environmentName"),
        *("misfirePolicy", "misfireLimit", "deadline", "missingTime", "repeatedTime"),
        *("executionType", "startParams"),
    }
)
"""The keys of a schedule in such a file."""

_EDITORS_KEY: Final = "$schema"
_PARAMETER: Final = ("prop", "direct", "type", "value", "secret")
_TIMEOUT: Final = ("strategy", "interval", "enable")
_DEPENDENCE: Final = ("relation", "dependTaskList")
_GROUP: Final = ("relation", "dependItemList")
_ITEM: Final = (
    *("projectId", "projectName", "definitionId", "definitionName", "definitionList", "depTasks"),
    "projectCode",
    *("cycle", "dateValue", "intervals", "status", "state"),
    *("dataset", "lateness", "idleAfter"),
)
_BRANCHES: Final = ("successNode", "failedNode")
_SWITCH: Final = ("dependTaskList", "nextNode")
_CASE: Final = ("condition", "nextNode")
_PARTS_IN_PARAMS: Final = ("dependence", "conditionResult", "switchResult", "waitStartTimeout")
"""Parts of a node that later releases write into `params`."""

_MISSPELLED: Final = 0.88
_SIMILAR: Final = 0.75
_LONGEST: Final = 100
"""The number of characters of a key to compare; all known keys are shorter."""


def key_findings(document: Mapping[str, Any], *, strict: bool) -> Iterator[Finding]:
    """Yield a finding for each key of a definition's JSON that nothing reads."""
    yield from unread_keys(document, DEFINITION_KEYS, strict=strict)
    for place, holder, known in _parameters(document.get("globalParams"), "globalParams"):
        yield from unread_keys(holder, known, place, strict=strict)
    for node in nodes_of(document):
        task = str(node.get("name", ""))
        yield from unread_keys(node, NODE_KEYS, task=task, strict=strict)
        for place, holder, known in _parts_of(node, spec_of(node)):
            yield from unread_keys(holder, known, place, task=task, strict=strict)


def unread_keys(
    holder: Mapping[str, Any],
    known: Collection[str],
    place: str = "",
    *,
    task: str | None = None,
    strict: bool,
) -> Iterator[Finding]:
    """Yield a finding for each key of an object at this place that is not among the known ones."""
    cure = "take it out, or read the file with --lenient" if strict else ""
    for key in holder:
        if key in known or (key == _EDITORS_KEY and task is None):
            continue
        near, is_misspelled = _nearest(key[:_LONGEST].casefold(), tuple(sorted(known)))
        yield Finding(
            severity=Severity.MISTAKE if strict or is_misspelled else Severity.WARNING,
            node=task,
            key=f"{place}.{key:.80}" if place else f"{key:.80}",
            problem="is not known and has no effect",
            cure=f"did you mean {near!r}?" if near else cure,
        )


@lru_cache(maxsize=4096)
def _nearest(key: str, known: tuple[str, ...]) -> tuple[str | None, bool]:
    """Return the most similar known key, and True if the key is a misspelling of it."""
    like = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(key, like, n=1, cutoff=_SIMILAR)
    return (like[near[0]], _is_misspelled(key, near[0])) if near else (None, False)


def _is_misspelled(key: str, known: str) -> bool:
    # Letters that changed places make a short word less similar than they look.
    is_turned = len(key) > 3 and sorted(key) == sorted(known)
    return is_turned or difflib.SequenceMatcher(None, key, known).ratio() >= _MISSPELLED


_Part = tuple[str, Mapping[str, Any], Collection[str]]


def _parts_of(node: Mapping[str, Any], spec: TaskTypeSpec) -> Iterator[_Part]:
    """Yield the objects within a node, each with its place and the keys that are known there."""
    params = object_of(node.get("params"))
    yield "timeout", object_of(node.get("timeout")), _TIMEOUT
    if known := _keys_in_params(spec):
        yield "params", params, known
    yield from _parameters(params.get(LOCAL_PARAMS.name), f"params.{LOCAL_PARAMS.name}")
    for place, holder in (("", node), ("params.", params)):
        if "conditionResult" in spec.node_keys:
            result = object_of(holder.get("conditionResult"))
            yield f"{place}conditionResult", result, _BRANCHES
        if "dependence" in spec.node_keys:
            yield from _dependence(f"{place}dependence", object_of(holder.get("dependence")))
        if "switchResult" in spec.node_keys:
            result = object_of(holder.get("switchResult"))
            yield f"{place}switchResult", result, _SWITCH
            for index, case in enumerate(objects_of(result.get("dependTaskList"))):
                yield f"{place}switchResult.dependTaskList[{index}]", case, _CASE


def _keys_in_params(spec: TaskTypeSpec) -> tuple[str, ...]:
    """Return the keys that `params` may have; none for a type that does not say."""
    if not spec.keys and not spec.node_keys:
        return ()
    common = (LOCAL_PARAMS.name, RESOURCE_LIST.name, DIGESTS.name, *_PARTS_IN_PARAMS)
    return (*(key.name for key in spec.keys), *spec.ignored_keys, *common)


def _parameters(value: object, place: str) -> Iterator[_Part]:
    for index, item in enumerate(objects_of(value)):
        yield f"{place}[{index}]", item, _PARAMETER


def _dependence(place: str, dependence: Mapping[str, Any]) -> Iterator[_Part]:
    yield place, dependence, _DEPENDENCE
    for outer, group in enumerate(objects_of(dependence.get("dependTaskList"))):
        yield f"{place}.dependTaskList[{outer}]", group, _GROUP
        for inner, item in enumerate(objects_of(group.get("dependItemList"))):
            yield f"{place}.dependTaskList[{outer}].dependItemList[{inner}]", item, _ITEM
