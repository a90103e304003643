"""Lets exports in with tasks that can't run as they stand, and keeps their definitions OFFLINE.

In a file that somebody writes, a value that every attempt would fail by is a mistake. An export of
DolphinScheduler, of any line, is right where it comes from: what is wrong here with one of its
tasks becomes a finding that keeps the definition OFFLINE, and the rest of the file gets in.
Mistakes about the definition as a whole stay mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from common.model.task_type import DATASOURCES, DatasourceUse
from common.task_types import known_task_types
from operations.definition_document import (
    CHILD_CODES,
    DEPENDENT_CODE,
    DEPENDENT_TASK_CODE,
    definition_references,
    id_in,
    name_of,
    nodes_of,
    object_of,
    text_in,
)
from operations.findings import Finding, Severity
from operations.task_params import spec_of

_CODES: Final = (*CHILD_CODES, DEPENDENT_CODE, DEPENDENT_TASK_CODE)


def without_mistakes(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings about keys as warnings: what a program has written is no misspelling."""
    for each in findings:
        if each.key.rpartition(".")[2] in _CODES:
            continue  # They are read, where other definitions are looked up.
        yield replace(each, severity=Severity.WARNING) if each.is_mistake else each


def foreign_types(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each task of a type that is not run here."""
    known = known_task_types()
    for node in nodes_of(document):
        kind = node.get("type")
        if isinstance(kind, str) and kind and kind.upper() not in known:
            yield of_foreign_type(name_of(node), kind)


def of_foreign_type(node: str, kind: str) -> Finding:
    """Return the finding about a task of this type, which is not run here."""
    return Finding(
        severity=Severity.UNMAPPED,
        node=node,
        key="type",
        problem=f"{kind!r:.60} is no task type that is run here",
        cure="replace it by a task of another type",
        keeps_offline=True,
    )


def of_unknown_task(node: str) -> Finding:
    """Return the finding about a DEPENDENT item with a task code that no file defines."""
    return Finding(
        severity=Severity.WARNING,
        node=node,
        key=f"dependence.{DEPENDENT_TASK_CODE}",
        problem="it looks at a task by a code that is in none of these files: without it in the"
        " database the definition stays OFFLINE",
        cure="import the export of its definition before this one or with it",
        of_database=True,
    )


def within_foreign_tasks(findings: Iterable[Finding], foreign: Iterable[Finding]) -> list[Finding]:
    """Return the findings; a mistake in a task of a type that is not run here is unmapped.

    `foreign` are the findings about the types of these tasks.
    """
    tasks = {each.node for each in foreign}
    return [
        unmapped_reference(each) if each.is_mistake and each.node in tasks else each
        for each in findings
    ]


def taken_leniently(
    wrong: Iterable[str],
    row_of: Callable[[str], Mapping[str, object]],
    *,
    kept: Iterable[Finding] = (),
    known: Iterable[Finding],
) -> tuple[list[str], list[Finding]]:
    """Divide texts of mistakes into those that stay, and findings about single tasks.

    `row_of` returns the node, the key and the problem of a text. Those that `kept` holds stay.
    `known` are the findings so far: a task of a type that is not run here is among these, and one
    without any type stays a mistake.
    """
    staying = {str(each) for each in kept}
    known = list(known)
    foreign = {each.node for each in known if each.key == "type"}
    stay: list[str] = []
    findings: list[Finding] = []
    for text in wrong:
        row = row_of(text)
        node, key = row["node"], str(row["key"] or "preTasks")
        is_untyped = key == "type" and node not in foreign
        if not isinstance(node, str) or is_untyped or text in staying:
            stay.append(text)
        elif key != "type" and not _is_known(node, key, known):
            findings.append(_offline(node, key, str(row["problem"])))
    return stay, findings


def _is_known(node: str, key: str, known: Iterable[Finding]) -> bool:
    """Return whether a finding that keeps the definition OFFLINE is about the same part."""
    return any(
        each.keeps_offline
        and each.node == node
        and (each.key.startswith(key) or key.startswith(each.key))
        for each in known
    )


def unmapped_reference(finding: Finding) -> Finding:
    """Return the finding about a reference to what is not in this database, as no mistake."""
    # Without its tenant a task runs as that of the definition's owner.
    keeps_offline = finding.key != "tenantCode"
    return replace(finding, severity=Severity.UNMAPPED, keeps_offline=keeps_offline)


def without_foreign_ids(
    document: Mapping[str, Any], findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Remove the ids that have no name: here they are ids of other objects (T90).

    Yield the findings about references; what was a mistake keeps the definition OFFLINE instead.
    """
    for reference in definition_references(document):
        if reference.name is None and reference.number is not None:
            reference.holder.pop(reference.id_key, None)
    for node in nodes_of(document):
        if text_in(node, "workerGroup") is None and id_in(node.get("workerGroupId")) is not None:
            node.pop("workerGroupId")
        params = node.get("params")
        is_one = spec_of(node).datasources is DatasourceUse.ONE
        if is_one and isinstance(params, dict) and text_in(params, "datasourceName") is None:
            params.pop("datasource", None)
    for each in findings:
        # DolphinScheduler does not know the key, so its ids are ids of this database.
        is_own = each.key.startswith(f"params.{DATASOURCES}")
        yield unmapped_reference(each) if each.is_mistake and not is_own else each


def failing_warnings(
    document: Mapping[str, Any], warnings: Iterable[Finding], *, known: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield the warnings; one about a key without which the task fails keeps it OFFLINE.

    `known` are the findings so far, of which none is repeated.
    """
    said = {(each.node, each.key) for each in known if each.keeps_offline}
    missing = {
        (str(node.get("name", "")), f"params.{keys[0]}")
        for node in nodes_of(document)
        for keys in spec_of(node).missing_in(object_of(node.get("params")))
    }
    for each in warnings:
        if (each.node, each.key) in missing & said:
            continue
        if (each.node, each.key) in missing:
            yield replace(each, severity=Severity.UNMAPPED, keeps_offline=True)
        else:
            yield each


def _offline(node: str, key: str, problem: str) -> Finding:
    return Finding(
        severity=Severity.UNMAPPED, node=node, key=key, problem=problem, keeps_offline=True
    )
