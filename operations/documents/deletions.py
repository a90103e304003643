"""Deletions as documents: the fields of `orcaflow instance|definition delete … -o json`."""

from __future__ import annotations

from operations.deleting import Deleted, DeletedDefinitions


def deleted_row(deleted: Deleted) -> dict[str, object]:
    """The instances that are gone, and what is left of their files."""
    return {
        "deleted": list(deleted.ids),
        "task_instances": deleted.attempts,
        "folders": deleted.folders,
        "left": list(deleted.left),
        "hosts": list(deleted.hosts),
    }


def deleted_definition_rows(deleted: DeletedDefinitions) -> dict[str, object]:
    """The definitions that are gone, with their schedules and their runs."""
    return {
        "deleted": [{"id": row.id, "name": row.name} for row in deleted.rows],
        "schedules": list(deleted.schedules),
        "kept_instances": deleted.kept_instances,
        "instances": None if deleted.instances is None else deleted_row(deleted.instances),
    }
