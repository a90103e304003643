"""Warns of parts of a definition that are allowed and may not do what their author thinks.

A *warning* is a finding that keeps nothing out. One definition's JSON is looked at, which has been
read without a mistake before; reads no database and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from common.model.task_type import LOCAL_PARAMS, TaskTypeSpec
from common.params import DataType
from operations.awaited import dependent_items
from operations.definition_document import (
    PRESENT,
    asks_for_all,
    nodes_of,
    object_of,
    objects_of,
)
from operations.findings import Finding, Severity
from operations.lint_children import children_warnings
from operations.lint_scripts import splicing_warnings
from operations.lint_texts import text_warnings
from operations.task_params import spec_of


def lint_warnings(
    name: str, document: Mapping[str, Any], inherited: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield the warnings, in the order of the tasks; `name` is the definition's own.

    `inherited` are the names of parameters that parents of this sub process give it.
    """
    yield from _repeated_parameters(document)
    limit = _whole(document.get("timeout"))
    for node in nodes_of(document):
        task = str(node.get("name", ""))
        spec = spec_of(node)
        yield from _of_retries(task, node)
        yield from _of_timeout(task, node, limit)
        if spec.problem:
            yield _warning(task, "type", f"its values are not checked: {spec.problem}")
        yield from _of_branches(task, node, spec)
        yield from _of_needs(task, node, spec)
        yield from _of_type(task, node, spec)
    yield from text_warnings(document, inherited)
    yield from _file_parameters(document)
    yield from splicing_warnings(document)
    yield from children_warnings(document)
    for task, where, target, item in dependent_items(document):
        if target == name and item.get("dateValue") in PRESENT and asks_for_all(item):
            yield _warning(
                task,
                where,
                f"waits for another run of its own definition in the interval"
                f" {item['dateValue']!r}, in which this run lies",
                "take an interval before it, as last1Days",
            )


def _repeated_parameters(document: Mapping[str, Any]) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, item in enumerate(objects_of(document.get("globalParams"))):
        prop = item.get("prop")
        if isinstance(prop, str) and prop in seen:
            yield _warning(
                None,
                f"globalParams[{index}].prop",
                f"{prop:.80} is declared again: the last one wins",
            )
        seen.add(str(prop))


def _file_parameters(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning for each parameter of type FILE, whose value is only a text here."""
    holders: list[tuple[str | None, str, object]] = [
        (None, "globalParams", document.get("globalParams"))
    ]
    for node in nodes_of(document):
        local = object_of(node.get("params")).get(LOCAL_PARAMS.name)
        holders.append((str(node.get("name", "")), f"params.{LOCAL_PARAMS.name}", local))
    for task, key, listed in holders:
        for index, item in enumerate(objects_of(listed)):
            if str(item.get("type")).strip().upper() in ("FILE", str(DataType.FILE.value)):
                yield _warning(
                    task,
                    f"{key}[{index}].type",
                    "FILE passes no file from task to task: the value is a text",
                    "write the file to $ORCAFLOW_DATA_DIR and pass its path as VARCHAR",
                )


def _of_retries(task: str, node: Mapping[str, Any]) -> Iterator[Finding]:
    retries = _whole(node.get("maxRetryTimes"))
    if retries > 0 and _whole(node.get("retryInterval")) == 0 and not node.get("retryBackoff"):
        yield _warning(
            task,
            "retryInterval",
            f"is 0, so {retries} retries follow each other at once",
            "give the minutes between them",
        )
    for key in ("retryOn", "noRetryOn", "memoryRetry"):
        if node.get(key) and retries == 0:
            yield _warning(
                task,
                key,
                "has no effect: maxRetryTimes is 0, so nothing is tried again",
                "give the number of retries",
            )


def _of_timeout(task: str, node: Mapping[str, Any], limit: int) -> Iterator[Finding]:
    timeout = object_of(node.get("timeout"))
    if timeout.get("enable") not in (True, "true"):
        return
    interval = _whole(timeout.get("interval"))
    if 0 < limit < interval:
        yield _warning(
            task,
            "timeout.interval",
            f"{interval} minutes are more than the {limit} of the whole process",
        )


def _of_branches(task: str, node: Mapping[str, Any], spec: TaskTypeSpec) -> Iterator[Finding]:
    dependence = object_of(node.get("dependence"))
    if dependence.get("dependTaskList") and "dependence" not in spec.node_keys:
        yield _warning(
            task,
            "dependence",
            f"has no effect on {spec.name}: only DEPENDENT and CONDITIONS read it",
        )
    result = object_of(node.get("conditionResult"))
    # The front end writes [""] into both for every other type.
    named = any(
        result.get(key) not in (None, "", [], [""]) for key in ("successNode", "failedNode")
    )
    if named and "conditionResult" not in spec.node_keys:
        yield _warning(
            task, "conditionResult", f"has no effect on {spec.name}: only CONDITIONS takes branches"
        )


def _of_needs(task: str, node: Mapping[str, Any], spec: TaskTypeSpec) -> Iterator[Finding]:
    if node.get("runFlag") == "FORBIDDEN":
        return
    params = object_of(node.get("params"))
    for keys in spec.missing_in(params):
        other = "".join(f", and so is {key}" for key in keys[1:])
        yield _warning(task, f"params.{keys[0]}", f"is missing{other}: the task fails")
    for fault in spec.faults_in(params):
        if fault.is_missing:
            yield _warning(task, f"params.{fault.key}", f"{fault.problem}: the task fails")


def _of_type(task: str, node: Mapping[str, Any], spec: TaskTypeSpec) -> Iterator[Finding]:
    for each in spec.warnings(object_of(node.get("params"))):
        yield _warning(task, f"params.{each.key}", each.problem)


def _warning(task: str | None, key: str, problem: str, cure: str = "") -> Finding:
    return Finding(severity=Severity.WARNING, node=task, key=key, problem=problem, cure=cure)


def _whole(value: object) -> int:
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
