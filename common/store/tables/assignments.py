"""Attempts that ask for a worker, the strategies by which one is chosen, and workers that fail."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from common.store.tables.columns import metadata, number, seen_by_reader, time, time_now
from common.store.tables.runs import task_instance

# What an attempt asks for, from its submission to its end. The worker that was chosen is the
# attempt's host. `excluded`: workers that were chosen before and did not claim it.
task_assignment: Final = Table(
    "t_ds_task_assignment",
    metadata,
    Column(
        "task_id",
        Integer,
        ForeignKey(task_instance.c.id, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("dataset", String(255), server_default=text("''"), nullable=False),
    Column("availability_group", String(255)),
    number("capacity", 1),
    time("assigned_at"),
    number("tries", 0),
    Column("excluded", ARRAY(Text), server_default=text("'{}'"), nullable=False),
    time_now("create_time"),
    CheckConstraint("capacity > 0", name="capacity"),
    info=seen_by_reader(
        "task_id dataset availability_group capacity assigned_at tries excluded create_time"
    ),
)

# The strategies, of which the newest holds; rows are never changed.
worker_strategy: Final = Table(
    "t_ds_worker_strategy",
    metadata,
    Column("version", Integer, Identity(), primary_key=True),
    Column("document", JSONB, nullable=False),
    Column("user_name", String(64)),
    Column("note", String(255)),
    time_now("create_time"),
    info=seen_by_reader("version user_name note create_time"),
)

# The consecutive failures of a project's attempts on a worker, by its address, and the time until
# which it gets no attempt of the project.
project_failures: Final = Table(
    "t_ds_project_failures",
    metadata,
    Column("project_id", Integer, nullable=False),
    Column("worker", String(255), nullable=False),
    number("failures", 0),
    time("until"),
    PrimaryKeyConstraint("project_id", "worker"),
    info=seen_by_reader("project_id worker failures until"),
)

# The same for all projects together. Only the former version uses it.
worker_failures: Final = Table(
    "t_ds_worker_failures",
    metadata,
    Column("worker", String(255), primary_key=True),
    number("failures", 0),
    time("until"),
    info=seen_by_reader("worker failures until"),
)
