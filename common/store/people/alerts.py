"""The rows of `t_ds_alert`, as masters have written them; nothing here sends or changes one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, select

from common.masking import mask_json, shown_reason
from common.store.tables import alert, alertgroup

_ALERTS: Final = (
    select(
        alert.c.id,
        alert.c.title,
        alert.c.show_type,
        alert.c.content,
        alert.c.alert_type,
        alert.c.alert_status,
        alert.c.log,
        alert.c.alertgroup_id,
        alertgroup.c.group_name,
        alert.c.receivers,
        alert.c.receivers_cc,
        alert.c.create_time,
        alert.c.update_time,
    )
    .outerjoin_from(alert, alertgroup, alertgroup.c.id == alert.c.alertgroup_id)
    .order_by(alert.c.id.desc())
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView:
    """One alert. `content` is JSON, or nearly so, as contract §5.14 has it."""

    id: int
    title: str | None
    show_type: int
    content: str | None
    alert_type: int
    status: int
    log: str | None
    group_id: int | None
    group_name: str | None
    receivers: str | None
    receivers_cc: str | None
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertGroupView:
    """A group that alerts are for."""

    id: int
    name: str | None
    description: str | None
    create_time: datetime


def alert_groups(db: Connection, *, after: int, limit: int) -> list[AlertGroupView]:
    """List the groups behind an id, by id."""
    rows = db.execute(
        select(alertgroup).where(alertgroup.c.id > after).order_by(alertgroup.c.id).limit(limit)
    )
    return [
        AlertGroupView(
            id=row.id,
            name=row.group_name,
            description=row.description,
            create_time=row.create_time,
        )
        for row in rows
    ]


def alerts(
    db: Connection, *, statuses: list[int] | None, before: int | None = None, limit: int
) -> list[AlertView]:
    """List the newest alerts first, `limit` at most; None is any status."""
    statement = _ALERTS.limit(limit)
    if before is not None:
        statement = statement.where(alert.c.id < before)
    if statuses is not None:
        statement = statement.where(alert.c.alert_status.in_(statuses))
    return [
        AlertView(
            id=row.id,
            title=row.title,
            show_type=row.show_type,
            content=None if row.content is None else mask_json(row.content),
            alert_type=row.alert_type,
            status=row.alert_status,
            log=shown_reason(row.log),
            group_id=row.alertgroup_id,
            group_name=row.group_name,
            receivers=row.receivers,
            receivers_cc=row.receivers_cc,
            create_time=row.create_time,
            update_time=row.update_time,
        )
        for row in db.execute(statement)
    ]
