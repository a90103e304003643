"""Process definitions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from common.model.states import ExecutionType, ReleaseState
from common.store.tables.columns import (
    code,
    code_is_no_other_id,
    known,
    metadata,
    not_empty,
    number,
    own_code,
    own_id,
    time_now,
    times,
)

process_definition: Final = Table(
    "t_ds_process_definition",
    metadata,
    own_id(),
    Column("name", String(255), nullable=False),
    number("version", 1),
    code("release_state", 0),
    number("project_id", 1),
    number("user_id", 1),
    Column("process_definition_json", Text),
    Column("description", Text),
    Column("global_params", Text),
    code("flag", 1),
    Column("locations", Text),
    Column("connects", Text),
    Column("receivers", Text),
    Column("receivers_cc", Text),
    *times(),
    number("timeout", 0),
    number("tenant_id", -1),
    Column("modify_by", String(36), server_default=text("''")),
    code("execution_type", 0),
    own_code(),
    UniqueConstraint("project_id", "name"),
    UniqueConstraint("code"),
    not_empty("name"),
    known("release_state", ReleaseState),
    known("flag", range(2)),
    known("execution_type", ExecutionType),
    CheckConstraint("version >= 1", name="version"),
    code_is_no_other_id(),
)
Index("process_definition_index", process_definition.c.project_id, process_definition.c.id)

# The versions of definitions. Their documents have references in the place of secrets.
process_definition_log: Final = Table(
    "t_ds_process_definition_log",
    metadata,
    Column(
        "process_definition_id",
        Integer,
        ForeignKey("t_ds_process_definition.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
    Column("user_id", Integer),
    Column("user_name", String(64)),
    Column("note", String(255)),
    time_now("create_time"),
)
