"""Reads the audit: what people have changed and ordered, and what was refused to them."""

from __future__ import annotations

from typing import Final

from common.store.people import audit as store
from common.store.people.audit import AuditLine
from operations.errors import UsageError
from operations.rights import check_administrator
from operations.session import Session, operation

OUTCOMES: Final = ("done", "refused")


@operation
def list_audit(
    session: Session,
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
    """The newest lines first, `limit` at most, older than an id; with all that is given.

    `action` is a word, as `definition`, or one with its verb, as `definition.delete`. For
    administrators: lines tell names and addresses of people.
    """
    if outcome is not None and outcome not in OUTCOMES:
        raise UsageError("outcome", f"{outcome!r:.50} is none; known are {', '.join(OUTCOMES)}")
    texts = {"user": user, "action": action, "object_type": object_type}
    for field, text in texts.items():
        if text is not None and "\0" in text:
            raise UsageError(field, "has a NUL character")
    with session.engine.connect() as db:
        check_administrator(db, session.principal)
        return store.lines(
            db,
            user=user,
            action=action,
            object_type=object_type,
            object_id=object_id,
            project_id=project_id,
            outcome=outcome,
            before=before,
            limit=limit,
        )
