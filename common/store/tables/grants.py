"""Grants: the shared objects that the tasks of a project may name."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, SmallInteger, Table

from common.model.grants import GrantKind
from common.store.tables.columns import known, metadata, number, time_now
from common.store.tables.projects import project

# `object_id` is the id of a tenant, data source, pool or worker group, or the code of an
# environment. When an object is deleted, triggers delete its rows.
grant: Final = Table(
    "t_ds_grant",
    metadata,
    Column("object_type", SmallInteger, primary_key=True, autoincrement=False),
    Column("object_id", BigInteger, primary_key=True, autoincrement=False),
    Column(
        "project_id",
        Integer,
        ForeignKey(project.c.id, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    number("user_id", 1),
    time_now("create_time"),
    known("object_type", GrantKind),
)
Index("t_ds_grant_project_idx", grant.c.project_id, grant.c.object_type)
