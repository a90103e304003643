"""Lines of the audit as documents: the fields of `orcaflow audit list -o json`."""

from __future__ import annotations

from common.store.people.audit import AuditLine


def audit_row(line: AuditLine) -> dict[str, object]:
    """A line of the audit; `user_id` null is somebody with the database's password."""
    return {
        "id": line.id,
        "at": line.at,
        "user": line.user_name,
        "user_id": line.user_id,
        "token_id": line.token_id,
        "address": line.address,
        "action": line.action,
        "object_type": line.object_type,
        "object_id": line.object_id,
        "object": line.object_name,
        "project_id": line.project_id,
        "outcome": line.outcome,
        "detail": line.detail,
        "request": line.request,
    }
