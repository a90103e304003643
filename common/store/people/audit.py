"""The audit log of changes that people make: written with the change, and read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, any_, func, insert, literal, or_, select

from common.model.rights import Principal
from common.store.tables import audit_log, process_instance, task_instance
from common.store.transaction import storable


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """Something that a person did, or was refused (`outcome`).

    The names are those of then. `user_id` is None for whoever has the database's password.
    """

    id: int
    at: datetime
    user_id: int | None
    user_name: str
    token_id: int | None
    address: str | None
    action: str
    object_type: str
    object_id: int | None
    object_name: str | None
    project_id: int | None
    outcome: str
    request: str | None
    detail: str | None


def lines(
    db: Connection,
    *,
    user: str | None = None,
    action: str | None = None,
    object_type: str | None = None,
    object_id: int | None = None,
    project_id: int | None = None,
    outcome: str | None = None,
    before: int | None = None,
    limit: int,
) -> list[AuditLine]:
    """List lines, the newest first, older than an id; `action` is all of it, or its first word."""
    statement = select(audit_log).order_by(audit_log.c.id.desc()).limit(limit)
    for column, wanted in (
        (audit_log.c.user_name, user),
        (audit_log.c.object_type, object_type),
        (audit_log.c.object_id, object_id),
        (audit_log.c.project_id, project_id),
        (audit_log.c.outcome, outcome),
    ):
        if wanted is not None:
            statement = statement.where(column == wanted)
    if action is not None:
        within = audit_log.c.action.startswith(f"{action}.", autoescape=True)
        statement = statement.where(or_(audit_log.c.action == action, within))
    if before is not None:
        statement = statement.where(audit_log.c.id < before)
    return [AuditLine(**row) for row in db.execute(statement).mappings()]


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


def orders_on(db: Connection, process_instance_id: int, *, most: int) -> list[AuditLine]:
    """List what was done to a run and its attempts, the newest first.

    An order to many runs has their ids in its name. A rerun may begin a run anew, behind the order
    for it: so lines are sought from the first moment on that is known of the run.
    """
    first = (
        select(
            func.least(
                process_instance.c.start_time,
                process_instance.c.command_start_time,
                select(func.min(task_instance.c.submit_time))
                .where(task_instance.c.process_instance_id == process_instance_id)
                .scalar_subquery(),
            )
        )
        .where(process_instance.c.id == process_instance_id)
        .scalar_subquery()
    )
    attempts = select(task_instance.c.id).where(
        task_instance.c.process_instance_id == process_instance_id
    )
    listed = literal(str(process_instance_id)) == any_(
        func.string_to_array(audit_log.c.object_name, ", ")
    )
    rows = db.execute(
        select(audit_log)
        .where(audit_log.c.at >= first)
        .where(audit_log.c.outcome == "done")
        .where(
            or_(
                and_(
                    audit_log.c.object_type == "instance",
                    or_(
                        audit_log.c.object_id == process_instance_id,
                        and_(audit_log.c.object_id.is_(None), listed),
                    ),
                ),
                and_(audit_log.c.object_type == "task", audit_log.c.object_id.in_(attempts)),
            )
        )
        .order_by(audit_log.c.id.desc())
        .limit(most)
    )
    return [AuditLine(**row) for row in rows.mappings()]


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
