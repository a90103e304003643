"""The audit log of changes that people make: written with the change, and read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, insert, select

from common.model.rights import Principal
from common.store.tables import audit_log
from common.store.transaction import storable


def add_line(
    db: Connection,
    principal: Principal,
    *,
    action: str,
    object_type: str,
    object_id: int | None,
    object_name: str | None,
    project_id: int | None,
    refused: bool,
    detail: str | None,
) -> None:
    """Add a line within the transaction of the change, or in one of its own after a refusal."""
    db.execute(
        insert(audit_log).values(
            user_id=None if principal.owns_database else principal.user_id,
            user_name=storable(principal.user_name, 64),
            token_id=principal.token_id,
            address=principal.address,
            action=action,
            object_type=object_type,
            object_id=object_id if object_id is not None and 0 < object_id < 2**31 else None,
            object_name=None if object_name is None else storable(object_name, 255),
            project_id=project_id,
            outcome="refused" if refused else "done",
            request=principal.request,
            detail=None if detail is None else storable(detail),
        )
    )


def last_change(
    db: Connection, object_type: str, object_id: int, *, actions: Collection[str]
) -> tuple[str, datetime] | None:
    """Read who has done one of these to the object last, and when; None if nobody is known."""
    found = db.execute(
        select(audit_log.c.user_name, audit_log.c.at)
        .where(audit_log.c.object_type == object_type)
        .where(audit_log.c.object_id == object_id)
        .where(audit_log.c.action.in_(actions))
        .where(audit_log.c.outcome == "done")
        .order_by(audit_log.c.id.desc())
        .limit(1)
    ).first()
    return None if found is None else (found.user_name, found.at)
