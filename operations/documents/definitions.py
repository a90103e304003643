"""Definitions, tasks and findings as documents: the fields of `orcaflow definition … -o json`.

Reads no table, so that linting needs no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from common.model.definitions import TaskNode
from operations.findings import Finding, Severity

if TYPE_CHECKING:
    from pathlib import Path

    from common.store.people.definitions import DefinitionRow
    from operations.converting import Conversion
    from operations.definition_files import DefinitionDocument, Mistake
    from operations.definitions import ExecutionTypeSet, Released
    from operations.importing import Imported


def definition_row(found: DefinitionRow) -> dict[str, object]:
    """A definition without its tasks."""
    return {
        "id": found.id,
        "name": found.name,
        "version": found.version,
        "release_state": found.release_state.name,
        "usable": found.usable,
        "project_id": found.project_id,
        "project": found.project_name,
        "description": found.description,
        "create_time": found.create_time,
        "update_time": found.update_time,
    }


def node_row(node: TaskNode) -> dict[str, object]:
    """A task of a definition."""
    return {
        "name": node.name,
        "type": node.task_type,
        "upstream": list(node.upstream),
        "max_retry_times": node.max_retry_times,
        "priority": node.priority.name,
        "forbidden": node.forbidden,
        "worker_group_id": node.worker_group_id,
    }


def finding_rows(findings: Iterable[Finding], severity: Severity) -> list[dict[str, object]]:
    """The findings of one severity, each with its place and its cure.

    One about an unmapped part also says if the definition stays OFFLINE for want of it.
    """
    return [
        {
            "node": each.node,
            "key": each.key,
            "problem": each.problem,
            "cure": each.cure or None,
            **({"keeps_offline": each.keeps_offline} if severity is Severity.UNMAPPED else {}),
        }
        for each in findings
        if each.severity is severity
    ]


def imported_row(imported: Imported) -> dict[str, object]:
    """An imported definition, with everything that its author should know of the import."""
    schedules = [
        {"id": each.id, "crontab": each.crontab, "new": each.is_new} for each in imported.schedules
    ]
    return {
        "name": imported.document.name,
        "id": imported.id,
        "project": imported.project,
        "version": imported.version,
        "release_state": imported.release_state.name,
        "tasks": imported.document.task_count,
        "changed": imported.changed,
        "kept_offline": imported.is_kept_offline,
        "schedule": schedules[0] if schedules else None,
        "schedules": schedules,
        "unmapped": finding_rows(imported.findings, Severity.UNMAPPED),
        "warnings": finding_rows(imported.findings, Severity.WARNING),
    }


def lint_document(
    documents: Sequence[DefinitionDocument], mistakes: Sequence[Mistake]
) -> dict[str, object]:
    """The result of linting files: the definitions that are right, mistakes and findings."""

    def found(severity: Severity) -> list[dict[str, object]]:
        return [
            {"file": str(document.file), "definition": document.name, **row}
            for document in documents
            for row in finding_rows(document.findings, severity)
        ]

    return {
        "definitions": [
            {"file": str(document.file), "name": document.name, "tasks": document.task_count}
            for document in documents
        ],
        "mistakes": [mistake.row() for mistake in mistakes],
        "unmapped": found(Severity.UNMAPPED),
        "warnings": found(Severity.WARNING),
    }


def conversion_document(conversion: Conversion, files: Sequence[Path]) -> dict[str, object]:
    """The result of converting a file, with the paths of the definitions' files."""
    return {
        "definitions": [
            {
                "definition": each.definition,
                "file": str(file),
                "tasks": each.tasks,
                "whole": each.is_whole,
                "unmapped": finding_rows(each.findings, Severity.UNMAPPED),
                "warnings": finding_rows(each.findings, Severity.WARNING),
                "notes": list(each.notes),
            }
            for each, file in zip(conversion.converted, files, strict=True)
        ],
        "resources": list(conversion.resources),
        "runs": list(conversion.runs),
    }


def released_row(released: Released) -> dict[str, object]:
    """A change of a release state, with the schedules that went OFFLINE by it."""
    return {
        "name": released.row.name,
        "id": released.row.id,
        "release_state": released.release_state.name,
        "changed": released.changed,
        "schedules": list(released.schedules_taken_offline),
    }


def execution_type_row(changed: ExecutionTypeSet) -> dict[str, object]:
    """A change of an execution type."""
    return {
        "name": changed.row.name,
        "id": changed.row.id,
        "execution_type": changed.execution_type.name,
        "changed": changed.changed,
    }
