"""Alerts, and the groups of people that they are for."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Index, String, Table, Text, text

from common.store.tables.columns import code, known, metadata, number, own_id, seen_by_reader, times

alert: Final = Table(
    "t_ds_alert",
    metadata,
    own_id(),
    Column("title", String(64)),
    code("show_type", 0),
    Column("content", Text),
    code("alert_type", 0),
    code("alert_status", 0),
    Column("log", Text),
    number("alertgroup_id", nullable=True),
    Column("receivers", Text),
    Column("receivers_cc", Text),
    *times(),
    known("show_type", range(4)),
    known("alert_type", range(2)),
    known("alert_status", range(3)),
    info=seen_by_reader(
        "id title show_type alert_type alert_status alertgroup_id create_time update_time"
    ),
)
Index("t_ds_alert_waiting_idx", alert.c.id, postgresql_where=text("alert_status = 0"))

alertgroup: Final = Table(
    "t_ds_alertgroup",
    metadata,
    own_id(),
    Column("group_name", String(255)),
    code("group_type", 0),
    Column("description", String(255)),
    *times(),
    known("group_type", range(2)),
    info=seen_by_reader("id group_name group_type description create_time update_time"),
)

relation_user_alertgroup: Final = Table(
    "t_ds_relation_user_alertgroup",
    metadata,
    own_id(),
    number("alertgroup_id"),
    number("user_id"),
    *times(),
    info=seen_by_reader("id alertgroup_id user_id create_time update_time"),
)
