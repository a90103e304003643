"""Checks the shared objects that schedules and their definitions name against current grants.

The check runs before schedules are brought ONLINE, because a grant can be revoked after they were
saved. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from common.errors import NotAllowedError
from common.model.grants import GrantKind
from common.store.people.definitions import definition_by_id
from operations.granted_references import check_all_granted, definition_findings
from operations.grants import Granted

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.schedule_views import ScheduleView


def check_schedules_granted(db: Connection, views: Sequence[ScheduleView]) -> None:
    """Raise `NotAllowedError` if a schedule or its definition names an object without a grant."""
    ids = list(dict.fromkeys(view.process_definition_id for view in views))
    found = (definition_by_id(db, each) for each in ids)
    rows = {row.id: row for row in found if row is not None}
    projects = dict.fromkeys(row.project_id for row in rows.values())
    granted = {project: Granted(db, project) for project in projects}
    for row in rows.values():
        findings = definition_findings(row, granted[row.project_id])
        check_all_granted(findings, f"the schedules of {row.name!r} stay OFFLINE")
    for view in views:
        row_of_view = rows.get(view.process_definition_id)
        if row_of_view is None:
            continue
        of_project = granted[row_of_view.project_id]
        for kind, number, name in _named(view):
            if not of_project.has(kind, number):
                given = number if name is None else name
                raise NotAllowedError(
                    f"schedule {view.id} can't be brought ONLINE:"
                    f" {of_project.problem(kind, given)}: {of_project.cure(kind, given)}"
                )


def _named(view: ScheduleView) -> Iterator[tuple[GrantKind, int, str | None]]:
    if view.worker_group_id > 0:
        yield GrantKind.WORKER_GROUP, view.worker_group_id, view.worker_group
    if view.environment_code > 0:
        yield GrantKind.ENVIRONMENT, view.environment_code, view.environment
