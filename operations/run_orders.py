"""Orders of people to a run, read from the audit for all who see the run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from common.store.people import audit
from operations.lookup import instance_with_id
from operations.session import Session

_MOST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """An order that was carried out: `action` as the audit names it, as `instance.stop`."""

    at: datetime
    user_name: str
    action: str
    task_instance_id: int | None
    """The attempt that it was about; None for one about the whole run."""
    detail: str | None


def orders_of(session: Session, process_instance_id: int) -> list[RunOrder]:
    """The orders to a run and its attempts, the newest first, 200 at most.

    Names are told, as in the versions of a definition; addresses are for administrators.
    """
    with session.engine.connect() as db:
        instance_with_id(db, session.principal, process_instance_id)
        lines = audit.orders_on(db, process_instance_id, most=_MOST)
    return [
        RunOrder(
            at=line.at,
            user_name=line.user_name,
            action=line.action,
            task_instance_id=line.object_id if line.object_type == "task" else None,
            detail=line.detail,
        )
        for line in lines
    ]
