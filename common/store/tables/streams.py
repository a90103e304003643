"""Supervisors of streams: their specifications, their owners, requests to them, and their tasks."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from common.model.streams.requests import RequestKind
from common.store.tables.columns import (
    known_words,
    metadata,
    not_empty,
    number,
    own_id,
    seen_by_reader,
    time,
    time_now,
    word,
)
from common.store.tables.runs import process_instance


def _flag(name: str, *, default: bool = False) -> Column[bool]:
    value = text("true" if default else "false")
    return Column(name, Boolean, server_default=value, nullable=False)


# A version of a supervisor's specification; rows are never changed. A *tombstone* has none: it is
# the last version of a supervisor that was terminated. The id is the name of the dataset.
supervisor: Final = Table(
    "t_ds_supervisor",
    metadata,
    Column("id", String(255), nullable=False),
    Column("version", Integer, nullable=False),
    Column("spec", JSONB(none_as_null=True)),
    _flag("suspended"),
    _flag("tombstone"),
    number("user_id", nullable=True),
    time_now("create_time"),
    PrimaryKeyConstraint("id", "version"),
    not_empty("id"),
    CheckConstraint("version >= 1", name="version"),
    CheckConstraint("(spec IS NULL) = tombstone", name="spec"),
    info=seen_by_reader("id version suspended tombstone user_id create_time"),
)

# One row a supervisor. Its owner is the master that has the *lease*, until `lease_until` by the
# clock of the database; each take-over raises the epoch, and every write of the keeper names it.
supervisor_runtime: Final = Table(
    "t_ds_supervisor_runtime",
    metadata,
    Column("id", String(255), primary_key=True),
    # 0 between the row and its first version, within one transaction.
    number("version", 0),
    number("project_id", 1),
    number("process_definition_id"),
    # Somebody has to look after it: it was submitted, and has not ended since.
    _flag("active", default=True),
    Column("owner", String(255)),
    Column("owner_incarnation", BigInteger),
    Column("epoch", BigInteger, server_default=text("0"), nullable=False),
    time("lease_until"),
    Column("state", String(32), server_default=text("'PENDING'"), nullable=False),
    Column("detailed_state", String(32), server_default=text("'PENDING'"), nullable=False),
    _flag("healthy", default=True),
    Column("recent_errors", JSONB, server_default=text("'[]'"), nullable=False),
    # For people: partitions, groups, offsets, lag.
    Column("status", JSONB, server_default=text("'{}'"), nullable=False),
    time_now("update_time"),
    not_empty("id"),
    CheckConstraint("epoch >= 0", name="epoch"),
    info=seen_by_reader(
        "id version project_id process_definition_id active owner owner_incarnation epoch "
        "lease_until state detailed_state healthy update_time",
    ),
)
Index(
    "t_ds_supervisor_runtime_lease_idx",
    supervisor_runtime.c.lease_until,
    postgresql_where=text("active"),
)

# A request to a supervisor, until its keeper has carried it out.
supervisor_command: Final = Table(
    "t_ds_supervisor_command",
    metadata,
    own_id(),
    Column(
        "supervisor",
        String(255),
        ForeignKey(supervisor_runtime.c.id, ondelete="CASCADE"),
        nullable=False,
    ),
    word("kind"),
    Column("body", JSONB, server_default=text("'{}'"), nullable=False),
    number("user_id", nullable=True),
    time_now("create_time"),
    known_words("kind", RequestKind),
    info=seen_by_reader("id supervisor kind user_id create_time"),
)
Index(
    "t_ds_supervisor_command_supervisor_idx",
    supervisor_command.c.supervisor,
    supervisor_command.c.id,
)

# One *stream task*: the letter box between keeper and task. The task itself is the run that its
# command became. `closed`: it has ended and no group has it.
stream_task: Final = Table(
    "t_ds_stream_task",
    metadata,
    own_id(),
    Column("name", Text, nullable=False),
    Column("supervisor", String(255), nullable=False),
    number("version"),
    Column("epoch", BigInteger, nullable=False),
    number("group_id"),
    Column("base_sequence", Text, nullable=False),
    Column("assignment", JSONB, nullable=False),
    Column("command_id", BigInteger, nullable=False),
    Column("process_instance_id", Integer, ForeignKey(process_instance.c.id, ondelete="CASCADE")),
    # The keeper's.
    Column("orders", JSONB, server_default=text("'{}'"), nullable=False),
    number("orders_version", 0),
    time("ending_since"),
    Column("ending_reason", Text),
    _flag("killed"),
    _flag("closed"),
    # The worker's, for the attempt that it runs.
    number("task_instance_id", nullable=True),
    Column("status", JSONB(none_as_null=True)),
    time("status_time"),
    time_now("create_time"),
    UniqueConstraint("name"),
    UniqueConstraint("command_id"),
    not_empty("name"),
    info=seen_by_reader(
        "id name supervisor version epoch group_id base_sequence command_id "
        "process_instance_id orders_version ending_since killed closed task_instance_id "
        "status_time create_time",
        masked="ending_reason",
    ),
)
Index("t_ds_stream_task_open_idx", stream_task.c.supervisor, postgresql_where=text("NOT closed"))
Index("t_ds_stream_task_process_instance_idx", stream_task.c.process_instance_id)
