"""Alerts and the groups that they are for, listed."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query

from api import cursors
from api.asking import Asked
from api.cluster_answers import AlertGroupPage, AlertPage
from api.cursors import After, Limit
from api.route import Route, get
from operations import alerts as operations
from operations.documents.alerts import alert_row


def list_alerts(
    session: Asked,
    status: Annotated[list[str] | None, Query(max_length=20)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the alerts, the newest first; of the given statuses only. They name no project."""
    found = operations.list_alerts(
        session, statuses=status or (), before=cursors.read("alerts", after), limit=limit
    )
    return {
        "items": [alert_row(each) for each in found],
        "next": cursors.next_of("alerts", [each.id for each in found], limit),
    }


def list_alert_groups(session: Asked, limit: Limit = 50, after: After = None) -> dict[str, Any]:
    """List the groups that alerts are for, by id."""
    found = operations.alert_groups(
        session, after=cursors.read("alert-groups", after) or 0, limit=limit
    )
    rows = [
        {
            "id": each.id,
            "name": each.name,
            "description": each.description,
            "create_time": each.create_time,
        }
        for each in found
    ]
    return {
        "items": rows,
        "next": cursors.next_of("alert-groups", [each.id for each in found], limit),
    }


ROUTES: Final[tuple[Route, ...]] = (
    get("/alerts", list_alerts, AlertPage),
    get("/alert-groups", list_alert_groups, AlertGroupPage),
)
