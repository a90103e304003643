"""Lists alerts: rows of `t_ds_alert`, written with the changes that they tell of."""

from __future__ import annotations

from collections.abc import Sequence

from common.model.alerts import AlertStatus
from common.store.people import alerts as store
from common.store.people.alerts import AlertGroupView, AlertView
from operations.errors import UsageError
from operations.rights import check_administrator
from operations.session import Session, operation


@operation
def list_alerts(
    session: Session, *, statuses: Sequence[str] = (), before: int | None = None, limit: int
) -> list[AlertView]:
    """The newest alerts first, `limit` at most, older than an id; with one of the statuses.

    For administrators: an alert names no project.
    """
    codes = [_status_named(each) for each in statuses]
    with session.engine.connect() as db:
        check_administrator(db, session.principal)
        return store.alerts(db, statuses=codes or None, before=before, limit=limit)


def alert_groups(session: Session, *, after: int, limit: int) -> list[AlertGroupView]:
    """The groups that alerts are for, by id."""
    with session.engine.connect() as db:
        return store.alert_groups(db, after=after, limit=limit)


def _status_named(text: str) -> int:
    name = text.upper().replace("-", "_")
    for status in AlertStatus:
        if name in (status.name, status.word):
            return int(status)
    known = ", ".join(each.word.lower() for each in AlertStatus)
    raise UsageError("status", f"{text!r} is no status; known are {known}")
