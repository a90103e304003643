"""Lets later exports in with tasks that can't run as they stand, and keeps these OFFLINE.

In a file that somebody writes, a value that every attempt would fail by is a mistake. A *later
export* (DolphinScheduler 2.x, 3.x) is right where it comes from: what is wrong here with one of its
tasks becomes a finding that keeps the definition OFFLINE, and the rest of the file gets in.
Mistakes about the definition as a whole stay mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from common.model.task_type import DatasourceUse
from operations.definition_document import (
    CHILD_CODES,
    DEPENDENT_CODE,
    DEPENDENT_TASK_CODE,
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
        yield replace(each, severity=Severity.WARNING) if _is_mistake(each) else each


def taken_leniently(
    wrong: Iterable[str], row_of: Callable[[str], Mapping[str, object]]
) -> tuple[list[str], list[Finding]]:
    """Divide texts of mistakes into those that stay, and findings about single tasks.

    `row_of` returns the node, the key and the problem of a text.
    """
    stay: list[str] = []
    findings: list[Finding] = []
    for text in wrong:
        row = row_of(text)
        node, key = row["node"], str(row["key"] or "preTasks")
        if not isinstance(node, str):
            stay.append(text)
        elif key != "type":  # A type that is not run here has been reported before.
            findings.append(_offline(node, key, str(row["problem"])))
    return stay, findings


def unmapped_reference(finding: Finding) -> Finding:
    """Return the finding about a reference to what is not in this database, as no mistake."""
    # Without its tenant a task runs as that of the definition's owner.
    keeps_offline = finding.key != "tenantCode"
    return replace(finding, severity=Severity.UNMAPPED, keeps_offline=keeps_offline)


def drop_foreign_datasources(document: Mapping[str, Any]) -> None:
    """Take out the ids of data sources that have no name: here they are those of others (T90)."""
    for node in nodes_of(document):
        params = node.get("params")
        is_one = spec_of(node).datasources is DatasourceUse.ONE
        if is_one and isinstance(params, dict) and text_in(params, "datasourceName") is None:
            params.pop("datasource", None)


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


def _is_mistake(finding: Finding) -> bool:
    return finding.severity is Severity.MISTAKE


def _offline(node: str, key: str, problem: str) -> Finding:
    return Finding(
        severity=Severity.UNMAPPED, node=node, key=key, problem=problem, keeps_offline=True
    )
