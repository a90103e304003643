"""Lists alerts: rows of `t_ds_alert`, written with the changes that they tell of."""

from __future__ import annotations

from collections.abc import Sequence

from common.model.alerts import AlertStatus
from common.store.people import alerts as store
from common.store.people.alerts import AlertView
from operations.errors import UsageError
from operations.session import Session


def list_alerts(session: Session, *, statuses: Sequence[str] = (), limit: int) -> list[AlertView]:
    """The newest alerts first, `limit` at most; with one of the statuses."""
    codes = [_status_named(each) for each in statuses]
    with session.engine.connect() as db:
        return store.alerts(db, statuses=codes or None, limit=limit)


def _status_named(text: str) -> int:
    name = text.upper().replace("-", "_")
    for status in AlertStatus:
        if name in (status.name, status.word):
            return int(status)
    known = ", ".join(each.word.lower() for each in AlertStatus)
    raise UsageError("status", f"{text!r} is no status; known are {known}")
