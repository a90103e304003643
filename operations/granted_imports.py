"""Handles the shared objects that the documents of an import name.

An administrator's import creates missing worker groups and grants them to the project. An author's
import reports a missing group like a group without a grant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from common.model.grants import GrantKind
from common.model.rights import Principal
from common.store.people.worker_groups import make_worker_group, worker_group_id
from operations.definition_document import text_in
from operations.findings import Finding, Severity
from operations.grants import Granted, grant_new, sees_all
from operations.leniency import unmapped_reference

if TYPE_CHECKING:
    from common.store.connect import Connection


def make_group_for(
    db: Connection, principal: Principal, name: str, project_id: int, granted: Granted
) -> bool:
    """Create a missing worker group and grant it to the project, if the principal may.

    Returns False if no group was created.
    """
    if granted.numbers_of(GrantKind.WORKER_GROUP, name) or not sees_all(db, principal):
        return False
    if worker_group_id(db, name) is not None:
        return False
    made = make_worker_group(db, name)
    grant_new(db, principal, GrantKind.WORKER_GROUP, made, (project_id,))
    granted.reload()
    return True


def of_new_group(name: str) -> Finding:
    """Return the finding about a worker group that the import created."""
    return Finding(
        severity=Severity.WARNING,
        key="workerGroup",
        problem=f"the worker group {name!r:.200} is new: its tasks wait until a worker serves it",
        cure=f"orcaflow server start worker-server --groups {name}",
    )


def without_unknown_tenant(inner: dict[str, Any], granted: Granted) -> Iterator[Finding]:
    """Remove a tenant that the project may not use, and yield a finding.

    The tasks then run as the tenant of the definition's owner.
    """
    code = text_in(inner, "tenantCode")
    if code is None:
        inner.pop("tenantCode", None)
    elif not granted.numbers_of(GrantKind.TENANT, code):
        inner.pop("tenantCode")
        yield unmapped_reference(
            Finding(
                severity=Severity.MISTAKE,
                key="tenantCode",
                problem=granted.problem(GrantKind.TENANT, code),
                cure=granted.cure(GrantKind.TENANT, code),
            )
        )


def group_of_schedule(name: str | None, granted: Granted) -> tuple[int, list[Finding]]:
    """Return the worker group of a schedule, and a finding if the project may not use it."""
    if name is None:
        return -1, []
    numbers = granted.numbers_of(GrantKind.WORKER_GROUP, name)
    if numbers:
        return numbers[0], []
    lost = Finding(
        severity=Severity.UNMAPPED,
        key="workerGroup",
        problem=f"{granted.problem(GrantKind.WORKER_GROUP, name)}: the schedule names none",
        cure=granted.cure(GrantKind.WORKER_GROUP, name),
    )
    return -1, [lost]
