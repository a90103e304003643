"""Pools: the slots that tasks share, and the attempts that hold them or wait for them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    text,
)

from common.store.tables.columns import (
    code,
    known,
    metadata,
    not_empty,
    number,
    own_id,
    seen_by_reader,
    times,
)
from common.store.tables.runs import task_instance

# A *pool*: how many slots its tasks share, whatever they run. How many are taken is not kept here,
# where it could go wrong, but follows from the attempts.
task_group: Final = Table(
    "t_ds_task_group",
    metadata,
    own_id(),
    Column("name", String(255), nullable=False),
    Column("description", String(255)),
    number("group_size"),
    number("use_size", 0),
    number("user_id", 1),
    Column("project_code", BigInteger, server_default=text("0"), nullable=False),
    code("status", 1),
    *times(),
    UniqueConstraint("name"),
    not_empty("name"),
    known("status", range(2)),
    CheckConstraint("group_size BETWEEN 1 AND 1000000", name="group_size"),
    info=seen_by_reader(
        "id name description group_size use_size user_id project_code status create_time "
        "update_time",
    ),
)

# An attempt's request for slots of a pool. `group_id` is 0 if no pool has that name.
task_group_queue: Final = Table(
    "t_ds_task_group_queue",
    metadata,
    own_id(),
    Column(
        "task_id",
        Integer,
        ForeignKey(task_instance.c.id, ondelete="CASCADE"),
        nullable=False,
    ),
    Column("task_name", String(255)),
    number("group_id"),
    Column("group_name", String(255)),
    number("process_id", nullable=True),
    number("priority", 0),
    code("status", -1),
    code("force_start", 0),
    code("in_queue", 0),
    number("weight", 1),
    *times(),
    UniqueConstraint("task_id", "group_id"),
    known("status", (-1, 1, 2)),
    known("force_start", range(2)),
    known("in_queue", range(2)),
    CheckConstraint("weight >= 1", name="weight"),
    info=seen_by_reader(
        "id task_id task_name group_id group_name process_id priority status force_start "
        "in_queue weight create_time update_time",
    ),
)
Index(
    "t_ds_task_group_queue_waiting_idx",
    task_group_queue.c.task_id,
    postgresql_where=text("status = -1"),
)
Index(
    "t_ds_task_group_queue_taken_idx",
    task_group_queue.c.group_id,
    postgresql_where=text("status = 1"),
)
