"""Versions as documents: the fields of `definition versions|diff` and `instance diff -o json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.definition_diff import Difference, TaskChange, ValueChange
    from operations.definition_versions import Compared, Version
    from operations.run_versions import RunAndLatest

VERSION_COLUMNS = ("version", "current", "user", "create_time", "note")


def version_row(version: Version) -> dict[str, object]:
    """A version without its document."""
    return {
        "version": version.version,
        "current": version.is_current,
        "user": version.user_name,
        "create_time": version.create_time,
        "note": version.note,
    }


def difference_document(compared: Compared) -> dict[str, object]:
    """The difference of two versions."""
    return {
        "definition": compared.name,
        "from": compared.before,
        "to": compared.after,
        **changes_document(compared.difference),
    }


def run_and_latest_document(compared: RunAndLatest) -> dict[str, object]:
    """The difference between a run's copy of its definition and the latest version."""
    return {
        "process_instance_id": compared.process_instance_id,
        "definition": compared.definition,
        "version": compared.version,
        "latest_version": compared.latest_version,
        "kept": list(compared.kept),
        "runs": list(compared.runs),
        "removed_tasks": list(compared.removed),
        **changes_document(compared.difference),
    }


def changes_document(found: Difference) -> dict[str, object]:
    """All that differs between two documents; edges are pairs of names."""
    return {
        "added": list(found.added),
        "removed": list(found.removed),
        "changed": [_task_row(each) for each in found.changed],
        "contents": [_task_row(each) for each in found.contents],
        "edges_added": [list(each) for each in found.edges_added],
        "edges_removed": [list(each) for each in found.edges_removed],
        "settings": [_change_row(each) for each in found.settings],
        "risks": list(found.risks),
    }


def _task_row(task: TaskChange) -> dict[str, object]:
    changes = [_change_row(each) for each in task.changes]
    return {"name": task.name, "was": task.was, "changes": changes}


def _change_row(change: ValueChange) -> dict[str, object]:
    return {
        "key": change.key,
        "before": change.before,
        "after": change.after,
        "lines": list(change.lines),
    }
