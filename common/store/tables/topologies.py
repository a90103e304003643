"""Topologies: what people want of them, the last report of each, and their versions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from common.store.tables.columns import (
    metadata,
    not_empty,
    number,
    seen_by_reader,
    time,
    time_now,
    times,
)

# One row a topology. `generation` grows when one that was killed is submitted anew: each has a
# folder of its own. `wanted` is written by people, `report` by the worker that runs the attempt
# `task_instance_id`, which no other attempt takes over before that one has ended.
topology: Final = Table(
    "t_ds_topology",
    metadata,
    Column("name", String(255), primary_key=True),
    number("project_id", 1),
    number("process_definition_id"),
    # 0 between the row and its first version, within one transaction.
    number("version", 0),
    number("generation", 1),
    Column("wanted", JSONB, server_default=text("'{}'"), nullable=False),
    Column("report", JSONB(none_as_null=True)),
    time("report_time"),
    number("task_instance_id", nullable=True),
    *times(),
    not_empty("name"),
    CheckConstraint("generation >= 1", name="generation"),
    info=seen_by_reader(
        "name project_id process_definition_id version generation report_time "
        "task_instance_id create_time update_time",
    ),
)

# A version of a topology; rows are never changed. `graph` is its shape for people: the server
# never imports what authors have written.
topology_version: Final = Table(
    "t_ds_topology_version",
    metadata,
    Column(
        "topology", String(255), ForeignKey(topology.c.name, ondelete="CASCADE"), nullable=False
    ),
    Column("version", Integer, nullable=False),
    Column("code", JSONB, nullable=False),
    Column("graph", JSONB, nullable=False),
    number("user_id", nullable=True),
    time_now("create_time"),
    PrimaryKeyConstraint("topology", "version"),
    CheckConstraint("version >= 1", name="version"),
    info=seen_by_reader("topology version user_id create_time"),
)
