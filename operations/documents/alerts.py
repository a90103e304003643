"""Alerts as documents: the fields of `orcaflow alert list -o json`."""

from __future__ import annotations

from common.model.alerts import AlertStatus, AlertType, ShowType
from common.store.people.alerts import AlertView
from operations.documents.instances import name_of


def alert_row(view: AlertView) -> dict[str, object]:
    """An alert; codes by their names in DolphinScheduler."""
    return {
        "id": view.id,
        "title": view.title,
        "status": name_of(AlertStatus, view.status),
        "show_type": name_of(ShowType, view.show_type),
        "alert_type": name_of(AlertType, view.alert_type),
        "alertgroup_id": view.group_id,
        "alertgroup": view.group_name,
        "receivers": view.receivers,
        "receivers_cc": view.receivers_cc,
        "create_time": view.create_time,
        "update_time": view.update_time,
        "content": view.content,
        "log": view.log,
    }
